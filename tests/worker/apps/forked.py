"""An app whose handlers fork, and come back in the child; see ``test_forked_handlers``."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import warnings
from collections.abc import Callable

from interlock.app import App
from interlock.retry import Retry

app = App(retry=Retry(1))


def come_back(how: str) -> None:
    """Fork; the parent waits for the child, and notes how that ended."""
    child = forked()
    if not child:
        # So that one that does not end there ends at all.
        signal.alarm(60)
        logging.getLogger("child").warning("the child is here")
        in_child(how)
        return
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(os.environ["FORKED"], "a") as notes:
        notes.write(f"{how} {status}\n")


def forked() -> int:
    with warnings.catch_warnings():
        # Other threads do run.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def in_child(how: str) -> None:
    if how == "raises":
        raise ValueError("of the child")
    if how == "exits":
        raise SystemExit(7)


CODES = {"returns": 0, "raises": 1, "exits": 7}


@app.task(keys="all")
def quick() -> None:
    """Take no time: what follows is handled in batches, where a pool has them."""


@app.task(keys="all")
def plain(how: str) -> None:
    """Fork in a plain function."""
    come_back(how)


@app.task(keys="all")
async def awaited(how: str) -> None:
    """Fork in a coroutine function."""
    await asyncio.sleep(0)
    come_back(how)


@app.task(keys="all")
def leave_a_child() -> None:
    """Fork a child that outlives its parent, which is killed in the middle of its message."""
    child = forked()
    if not child:
        # Until the test has seen what it waits for.
        with open(os.environ["FORKED_HOLDS"]) as pipe:
            pipe.read()
        os._exit(0)
    os.kill(os.getpid(), 9)


TASKS: dict[str, Callable[[str], object]] = {"plain": plain.send, "awaited": awaited.send}
