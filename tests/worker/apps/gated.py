"""An app whose processes of a pool begin when a test lets them; see ``test_process_pool``.

The environment names two files: while ``GATE_SHUT`` is there an import waits, and while
``GATE_BROKEN`` is there it fails. A worker's own import does neither.
"""

from __future__ import annotations

import os
import sys
import time

from interlock.app import App
from interlock.retry import Retry

app = App(retry=Retry(1))

if "interlock.worker.pools.process_child" in sys.modules and "GATE_SHUT" in os.environ:
    while os.path.exists(os.environ["GATE_SHUT"]):
        time.sleep(0.01)
    if os.path.exists(os.environ["GATE_BROKEN"]):
        raise LookupError("no such table")


@app.task(keys="{number}")
def handle(number: int) -> None:
    """Does nothing; ends its process for a number below 0."""
    if number < 0:
        os._exit(3)
