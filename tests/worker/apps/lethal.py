"""Handlers that end their process, for `interlock worker` and for this module as a program."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path

from interlock import connect
from interlock.app import App

TOGETHER = 4
"""Messages that are in hand when the first process dies, the one that ends it among them."""

URL = os.environ.get("INTERLOCK_URL", "memory://")
MARK = Path(os.environ.get("LETHAL_MARK", "/nonexistent"))
"""The file by which a later process knows that it is not the first."""
FIRST = not MARK.exists()
WAITS = os.environ.get("LETHAL_HOW") != "quick"
_met, _never = threading.Barrier(TOGETHER, timeout=20), threading.Event()
_begun: list[str] = []

app = App(URL)


def die() -> None:
    """End the process as the kernel would."""
    MARK.touch()
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
def call(kind: str) -> None:
    """In the first process all begin before one dies."""
    if FIRST and WAITS:
        _met.wait()
    if kind == "poison":
        die()
    if FIRST and WAITS:
        _never.wait()


@app.task
async def acall(kind: str) -> None:
    """The same as a coroutine function."""
    _begun.append(kind)
    while FIRST and len(_begun) < TOGETHER:
        await asyncio.sleep(0.001)
    if kind == "poison":
        die()
    if FIRST:
        await asyncio.Event().wait()


def main() -> None:
    """Consume, until the process ends."""
    with connect(URL) as client:
        client.queue("default", lease=1).consume(call.function, threads=TOGETHER).join()


if __name__ == "__main__":
    main()
