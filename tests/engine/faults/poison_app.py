"""The app of the poison runs: transfers between accounts, and messages that end their process.

`POISON_FOLDER` names the folder of the run, `POISON_HOW` the pool.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from pathlib import Path

from interlock import Retry, current_lease
from interlock.app import App
from tests.engine.faults.bank import Bank, Operation, Stale
from tests.engine.faults.lines import Log, begun

FOLDER = Path(os.environ.get("POISON_FOLDER", "/nonexistent"))
KEYS = ["{source}", "{target}"]
ATTEMPTS = 2
"""Of poison. Innocent messages have as many as they need: who is killed from outside is charged."""
POISON = Retry(attempts=ATTEMPTS, first=0.02, factor=1.0, longest=0.02)
INNOCENT = Retry(attempts=None, first=0.02, factor=1.0, longest=0.02)


def log() -> Log:
    """The lines of this process. A process that was forked has its own."""
    return Log(FOLDER, f"handler-{os.getpid()}")


def die() -> None:
    """End the process, as `os._exit` or the kernel does."""
    if random.random() < 0.5:
        os._exit(9)
    os.kill(os.getpid(), signal.SIGKILL)


def said(name: str) -> dict[str, object]:
    found = begun(current_lease())
    del found["what"]
    return {**found, "name": name}


def apply(name: str, source: str, target: str, amount: int) -> None:
    lines, lease = log(), current_lease()
    lines.say("begin", **said(name))
    bank = Bank(FOLDER / "bank.sqlite")
    try:
        what = Operation(name, "transfer", source, target, amount)
        # How long the handler takes.
        bank.apply(what, lease.id, lease.token, lambda: time.sleep(random.expovariate(10)))
    except Stale:
        lines.say("stale", id=lease.id)
    finally:
        bank.close()
    lines.say("end", id=lease.id, token=lease.token)
    lines.close()


def transfer(name: str, source: str, target: str, amount: int) -> None:
    apply(name, source, target, amount)


async def atransfer(name: str, source: str, target: str, amount: int) -> None:
    # The handlers of one loop take turns, so that several are in the middle.
    await asyncio.sleep(random.expovariate(50))
    apply(name, source, target, amount)


def poison(name: str, source: str, target: str) -> None:
    log().say("begin", **said(name))
    if random.random() < 0.7:
        time.sleep(random.expovariate(50))
    die()


async def apoison(name: str, source: str, target: str) -> None:
    log().say("begin", **said(name))
    if random.random() < 0.7:
        await asyncio.sleep(random.expovariate(50))
    die()


def make(url: str, pool: str = "thread") -> App:
    """The app as workers of such a pool run it."""
    made, asyncs = App(url), pool == "asyncio"
    made.task(keys=KEYS, name="transfer", retry=INNOCENT)(atransfer if asyncs else transfer)
    made.task(keys=KEYS, name="poison", retry=POISON)(apoison if asyncs else poison)
    return made


app = make(os.environ.get("INTERLOCK_URL", "memory://"), os.environ.get("POISON_HOW", "thread"))
