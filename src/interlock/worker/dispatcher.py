"""From leased messages to the pool: what is handled, what is put off and what goes back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from interlock.errors import EngineUnavailable, InterlockError, ShutDown
from interlock.retry import Retry
from interlock.worker.batch_run import lease_at
from interlock.worker.deferrals import Deferral
from interlock.worker.execution import Execution
from interlock.worker.outcome import RELEASED, judge
from interlock.worker.source import Call, Source, SourceState
from interlock.worker.state import Phase, WorkerState
from interlock.worker.tasks import Invocation, NotHere, TaskLease, details

if TYPE_CHECKING:
    from interlock.engine.batch import LeasedBatch

__all__ = ["Dispatcher"]

_log = logging.getLogger("interlock.worker")


class Dispatcher:
    """Takes what calls to the engine came to."""

    def __init__(self, state: WorkerState, broken: Callable[[BaseException], None]) -> None:
        self._state = state
        self._broken = broken

    def dispatch(
        self,
        source: Source,
        batch: LeasedBatch,
        places: Sequence[int],
        began: float,
        room: int,
    ) -> int:
        """Give so many leased messages to the pool as there is room; the others go back. Return how
        many places they take."""
        now = time.monotonic()
        # No call waits so long: this process was frozen, and so are these leases perhaps over.
        refused = self._state.phase is not Phase.RUNNING or now - began > source.lease
        found: list[Execution] = []
        for at in places:
            held = lease_at(source.name, batch, at)
            if refused or len(found) >= room:
                source.add(batch, held, RELEASED)
                continue
            invocation = self._prepared(source, batch, held)
            if invocation is not None:
                found.append(Execution(batch, held, invocation, source, now))
        for execution in found:
            self._state.executions[id(execution)] = execution
        if found:
            self._state.pool.offer(found)
        return len(found)

    def distribute(
        self, source: Source, batch: LeasedBatch, places: Sequence[int], began: float
    ) -> None:
        """Give what was leased ahead to places that are free, as far as there are any."""
        room = self._state.places.take(source.kind, self._state.places.size(source.kind))
        room -= self.dispatch(source, batch, places, began, room)
        self._state.places.give(source.kind, room)

    def failed(self, source: Source, call: Call, error: BaseException) -> None:
        """Take it that a call has failed."""
        if isinstance(error, EngineUnavailable):
            source.pending[:0] = call.pending
            self._pause(source, source.missed(error))
        elif isinstance(error, ShutDown):
            # Sealed and drained; it may be opened again. Or closed, at the end.
            self._pause(source, SEALED_PAUSE)
        else:
            # What an engine refuses says itself what is wrong; all else is a fault of ours.
            known = isinstance(error, InterlockError)
            _log.error(
                "queue %r can be served no more: %s", source.name, error,
                exc_info=None if known else error,
            )  # fmt: skip
            self._pause(source, BROKEN_PAUSE)
            self._broken(error)

    def _prepared(self, source: Source, batch: LeasedBatch, held: TaskLease) -> Invocation | None:
        try:
            invocation = self._state.tasks.prepare(held)
        except NotHere as unknown:
            seconds = self._state.deferrals.seconds(held)
            _log.warning(
                "message %d in queue %r %s; it goes back in %g s, its attempt unchanged",
                held.id, held.queue, unknown, seconds, extra=details(held),
            )  # fmt: skip
            if seconds:
                until = time.monotonic() + seconds
                self._state.deferrals.add(Deferral(until, batch, held, source))
            else:
                source.add(batch, held, RELEASED)
            return None
        except Exception as error:
            # What a message holds is anybody's: it fails by itself, and holds up no other.
            source.add(batch, held, judge(Retry(), held, error))
            return None
        if self._state.audit is not None:
            self._state.audit.begun(held)
        return invocation

    def _pause(self, source: Source, seconds: float) -> None:
        source.resumes = time.monotonic() + seconds
        if source.state is SourceState.IDLE:
            source.state = SourceState.PAUSED


SEALED_PAUSE = 1.0
BROKEN_PAUSE = 10.0
