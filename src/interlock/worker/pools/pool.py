"""The place where handlers run, and its events for the worker's owner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from interlock.worker.message.execution import Execution, Outcome
from interlock.worker.message.scope import Scope

if TYPE_CHECKING:
    from interlock.worker.message.tasks import Tasks
    from interlock.worker.settings import WorkerSettings

__all__ = ["DONE", "Pool", "PoolEvents", "pool_of"]


class PoolEvents(Protocol):
    """The events of a pool, sent from any thread; none of these calls waits or raises."""

    @property
    def stops(self) -> bool:
        """Return whether no further handler is to begin."""

    def handlers_ended(self, ended: Sequence[tuple[Execution, Outcome]]) -> None:
        """Note that some handlers, at least one, have ended. RELEASED: it was not begun, because
        its lease has expired."""

    def places_moved(self, count: int) -> None:
        """Note that this many places were added, or removed if the number is negative."""

    def pool_broke(self, error: BaseException) -> None:
        """Note that the pool can handle nothing and does not expect to recover."""


class Pool(Protocol):
    """Runs handlers. Only the owner calls its methods. While handlers are brief it offers more
    messages than can run at once; a place that becomes free begins the next waiting one."""

    @property
    def places(self) -> int:
        """Return the number of handlers it has room for initially; it reports changes later."""

    @property
    def is_up(self) -> bool:
        """Return whether a place is free for a handler."""

    def start(self, scope: Scope | None = None) -> None:
        """Start what the pool needs, before the first message, and enter the scope. Raises what
        that raises, or an error if the pool cannot start; ``close`` ends what has started."""

    def offer(self, batch: Sequence[Execution]) -> None:
        """Handle these in order, each as soon as a place is free, which claims it first. One whose
        lease has expired by then is not begun."""

    def withdraw(self, execution: Execution) -> bool:
        """Take back a message that no handler has begun. False: a handler has."""

    @property
    def only_compute(self) -> bool:
        """Return whether handlers only compute, so that several threads run them no sooner than
        one."""

    def look(self) -> None:
        """Begin a message that waits although a place is free. Called every 10 ms while messages
        are leased ahead, otherwise every 50 ms."""

    def stack(self, execution: Execution) -> str:
        """Return the stack of its handler, as text; may be called by any thread."""

    def stop(self, execution: Execution) -> None:
        """End a handler whose lease is revoked, if that is possible."""

    def tell_lost(self, execution: Execution) -> None:
        """Notify its handler that the lease is lost, in case it asks. Called repeatedly."""

    def close(self) -> None:
        """Leave the scope and end, once all messages are settled. Does not wait for a handler that
        hangs."""


def pool_of(settings: WorkerSettings, events: PoolEvents, tasks: Tasks) -> Pool:
    """Return the pool of these settings."""
    if settings.pool == "asyncio":
        from interlock.worker.pools.loop_pool import LoopPool

        return LoopPool(settings.concurrency, events)
    if settings.pool == "process":
        from interlock.worker.pools.process_pool import ProcessPool

        return ProcessPool(settings.concurrency, settings.reference, events, tasks)
    from interlock.worker.pools.thread_pool import ThreadPool

    return ThreadPool(settings.concurrency, events)


DONE = b""
"""Sent by a process of a pool: handlers have returned, and keep no result; see ``Progress``."""
