"""A message between its lease and its settlement, and where handlers run."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from interlock.worker.handle import Outcome
from interlock.worker.work import Invocation, TaskLease, details

__all__ = ["Done", "Pool", "Running", "finish"]

_log = logging.getLogger("interlock.worker")


@dataclass(slots=True, eq=False)
class Running:
    """One message that this worker holds."""

    lease: Any
    """The client's."""

    held: TaskLease
    """The lease as the handler sees it."""

    invocation: Invocation
    feeder: Any
    """Through which it is settled."""

    offered: float
    """The time at which it was leased, to be given to the pool at once; by time.monotonic()."""

    started: float | None = None
    """The time at which a handler began; None: not yet."""

    at: Any = None
    """The place where it is handled: a thread's number, a task, a process of the pool."""

    @property
    def over(self) -> bool:
        """It is settled, or about to be: what its handler says no longer counts."""
        return self.held._over

    def settles(self) -> bool:
        """Whoever settles it asks first; True for the first. With the worker's lock held."""
        mine = not self.held._over
        self.held._over = True
        return mine

    def begin(self, at: int | asyncio.Task[Any] | object) -> None:
        """A handler begins now."""
        self.at = at
        self.started = time.monotonic()


Done = Callable[[Running, Outcome], None]
"""Called by a pool, on any thread, when a handler has ended."""


def finish(done: Done, running: Running, outcome: Outcome) -> None:
    """Calls ``done``. Whatever that raises, the place in the pool goes on."""
    try:
        done(running, outcome)
    except Exception:
        text = "message %d in queue %r could not be settled; its lease will run out"
        _log.exception(text, running.held.id, running.held.queue, extra=details(running.held))


class Pool(Protocol):
    """The place where handlers run. It is never offered more than it has room for."""

    emptied: Callable[[], None]
    """Called when the last of what it was offered begins."""

    moved: Callable[[int], None]
    """Called with how many places have come, or less than 0, gone, since it was made."""

    broke: Callable[[BaseException], None]
    """Called when it can handle nothing and does not expect to."""

    @property
    def places(self) -> int:
        """The number of handlers it has room for when it is made; of others it tells ``moved``."""

    @property
    def is_up(self) -> bool:
        """There is a place for a handler."""

    @property
    def is_empty(self) -> bool:
        """All that it was offered has begun. Until then it is of no use to lease more for places
        that have fallen free, and what was settled goes out with the rest."""

    def start(self, done: Done) -> None:
        """Before the first message."""

    def offer(self, batch: Sequence[Running]) -> None:
        """Handle these, each at once."""

    def work(self) -> None:
        """Called by the thread that offered, when it would lease again: it handles what waits, in
        a pool that has no other thread for that."""

    def leave(self) -> None:
        """Called by a thread that has called ``work``, when it ends."""

    def withdraw(self, running: Running) -> bool:
        """Take back a message that no handler has begun; False: one has."""

    def stack(self, running: Running) -> str:
        """Return the stack of its handler, as text."""

    def stop(self, running: Running) -> None:
        """End a handler whose lease is revoked, where that can be done."""

    def tell_lost(self, running: Running) -> None:
        """Its lease is lost, in case its handler asks. Told again and again."""

    def close(self) -> None:
        """All messages are settled: end. Does not wait for a handler that hangs."""
