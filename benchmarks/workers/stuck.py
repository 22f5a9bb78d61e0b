"""A task that never ends in the first worker, and at once in the second: it tells when it begins.

    python -m benchmarks.workers.stuck

sends it once, and prints the id of the message. BENCH_STUCK is set in the first worker.
"""

from __future__ import annotations

import json
import os
import threading
import time

from benchmarks.workers.handled import BROKER, DONE
from interlock import Retry
from interlock.app import App

app = App(BROKER, retry=Retry(first=0))


@app.task(name="stuck", keys="account:{number}")
def stuck(number: int) -> None:
    with open(DONE, "w") as pipe:
        print(json.dumps({"at": time.time()}), file=pipe)
    if "BENCH_STUCK" in os.environ:
        threading.Event().wait()


if __name__ == "__main__":
    print(stuck.send(1).id)
