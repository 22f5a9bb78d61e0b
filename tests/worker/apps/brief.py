"""Brief handlers with every outcome, for all pools; see ``test_brief`` and ``test_expired``.

The environment names a folder: each handler adds a line to its file `begun` and, if it is not
ended with its process, to `ended`; the handler of ``slow``, and the first of ``hang``, wait there
for the file `gate`; the first of ``halt`` stops its process until SIGCONT. The first of
``freeze`` stops its process, and the worker, until both get SIGCONT. With BRIEF_AHEAD, every
handler is brief, however slow this machine is.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from interlock import Reject, RetryAfter, current_lease
from interlock.app import App
from interlock.client.faces import handler_time
from interlock.client.requests import result_wait
from interlock.retry import Retry

if "BRIEF_AHEAD" in os.environ:
    handler_time.QUICK, handler_time.BRIEF, handler_time.LONGEST_BATCH = 0.0, 60.0, 0.1

app = App(retry=Retry(3, first=0.001))
_last: ContextVar[int] = ContextVar("last")
"""Each handler sets it, and notes in the file `leaked` if another has."""


def _handle(key: str, number: int, how: str) -> None:
    folder, attempt = Path(os.environ["BRIEF_FOLDER"]), current_lease().attempt
    line = f"{key} {number} {attempt}\n"
    if _last.get(None) is not None:
        _note(folder / "leaked", f"{_last.get()} {line}")
    _last.set(number)
    _note(folder / "events", f"begun {line}")
    try:
        if how == "slow":
            while not (folder / "gate").exists():
                time.sleep(0.001)
        if how == "hang" and attempt == 1:
            while not (folder / "gate").exists():
                time.sleep(0.001)
        if how == "freeze" and not (folder / "frozen").exists():
            _freeze(folder / "frozen", number)
        if how == "halt" and attempt == 1:
            _note(folder / "halted", str(os.getpid()))
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
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


def _freeze(file: Path, number: int) -> None:
    relay: Any = result_wait.relay
    if relay is not None:
        # In a process of a pool: with messages queued here too, and its worker first.
        if len(relay._work) < 3:
            return
        parent = os.getppid()
        os.kill(parent, signal.SIGSTOP)
        while Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.001)
    _note(file, f"{os.getpid()} {number}\n")
    # Sent to this thread, so that it does not continue before a thread has received the signal.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


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
