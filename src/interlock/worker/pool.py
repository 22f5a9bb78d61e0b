"""The place where handlers run, and what it tells the worker's owner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from interlock.worker.execution import Execution, Outcome
from interlock.worker.scope import Scope

if TYPE_CHECKING:
    from interlock.worker.settings import WorkerSettings
    from interlock.worker.tasks import Tasks

__all__ = ["Pool", "PoolEvents", "pool_of"]


class PoolEvents(Protocol):
    """The events of a pool, told from any thread; none of these calls waits or raises."""

    def handler_ended(self, execution: Execution, outcome: Outcome) -> None:
        """Note that a handler has ended."""

    def handlers_ended(self, ended: Sequence[tuple[Execution, Outcome]]) -> None:
        """Note that some handlers have ended."""

    def places_moved(self, count: int) -> None:
        """So many places have come, or where it is less than 0, are gone."""

    def pool_broke(self, error: BaseException) -> None:
        """Note that it can handle nothing and does not expect to."""


class Pool(Protocol):
    """Runs handlers. Its methods are called by the owner alone, which offers no more than there are
    places for, but to a pool that queues."""

    queues: bool
    """It may be offered more than may run at once, as long as handlers are quick: what ends makes
    room for what waits without a word to anybody."""

    @property
    def places(self) -> int:
        """Return the number of handlers it has room for when it is made; it tells of others."""

    @property
    def is_up(self) -> bool:
        """Return whether there is a place for a handler."""

    def start(self, scope: Scope | None = None) -> None:
        """Start what it needs, before the first message, and enter the scope. Raises what that
        raises, or an error where it cannot start; ``close`` ends what has."""

    def offer(self, batch: Sequence[Execution]) -> None:
        """Handle these, each at once: whoever begins one claims it first."""

    def withdraw(self, execution: Execution) -> bool:
        """Take back a message that no handler has begun. False: one has."""

    def stack(self, execution: Execution) -> str:
        """Return the stack of its handler, as text; may be called by any thread."""

    def stop(self, execution: Execution) -> None:
        """End a handler whose lease is revoked, where that can be done."""

    def tell_lost(self, execution: Execution) -> None:
        """Tell its handler that the lease is lost, in case it asks. Told again and again."""

    def close(self) -> None:
        """All messages are settled: leave the scope and end. Does not wait for a handler that
        hangs."""


def pool_of(settings: WorkerSettings, events: PoolEvents, tasks: Tasks) -> Pool:
    """Return the pool of these settings."""
    if settings.pool == "asyncio":
        from interlock.worker.loop_pool import LoopPool

        return LoopPool(settings.concurrency, events)
    if settings.pool == "process":
        from interlock.worker.process_pool import ProcessPool

        return ProcessPool(settings.concurrency, settings.reference, events, tasks)
    from interlock.worker.thread_pool import ThreadPool

    return ThreadPool(settings.concurrency, events)
