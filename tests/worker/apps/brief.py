"""Brief handlers with every outcome, for all pools; see ``test_brief``.

The environment names a folder: each handler adds a line to its file `begun` and, if it is not ended
with its process, to `ended`; the handler of ``slow`` waits there for the file `gate`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from interlock import Reject, RetryAfter, current_lease
from interlock.app import App
from interlock.retry import Retry

app = App(retry=Retry(3, first=0.001))


def _handle(key: str, number: int, how: str) -> None:
    folder, attempt = Path(os.environ["BRIEF_FOLDER"]), current_lease().attempt
    line = f"{key} {number} {attempt}\n"
    _note(folder / "events", f"begun {line}")
    try:
        if how == "slow":
            while not (folder / "gate").exists():
                time.sleep(0.001)
        if how == "die" and attempt == 1:
            os._exit(3)
        if how == "fails" or (how == "once" and attempt == 1):
            raise ValueError(how)
        if how == "reject":
            raise Reject(how)
        if how == "later" and not (folder / f"later-{number}").exists():
            (folder / f"later-{number}").touch()
            raise RetryAfter(0.001)
    finally:
        _note(folder / "events", f"ended {line}")


def _note(file: Path, line: str) -> None:
    # One write each, so that lines of several processes do not mix.
    place = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(place, line.encode())
    os.close(place)


@app.task(keys="{key}")
def handle(key: str, number: int, how: str) -> None:
    """Do what the message says."""
    _handle(key, number, how)


@app.task(keys="{key}")
async def ahandle(key: str, number: int, how: str) -> None:
    """The same as a coroutine function."""
    _handle(key, number, how)
