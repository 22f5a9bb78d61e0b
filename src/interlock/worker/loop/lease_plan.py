"""Takes turns among the sources of a worker: which one leases next, for how many places, and which
one waits."""

from __future__ import annotations

import collections
import time

from interlock.worker.loop.batch_lending import BatchLending
from interlock.worker.loop.state import Phase, WorkerState
from interlock.worker.message.source import Call, Source, SourceState

__all__ = ["LeasePlan"]


class LeasePlan:
    """Decides which calls the sources make."""

    def __init__(self, state: WorkerState, batches: BatchLending) -> None:
        self._state, self._batches = state, batches
        self._turns: collections.deque[Source] = collections.deque()
        """The sources; the first one's turn is next."""

    def begin(self) -> None:
        """Begin with all sources."""
        self._turns.extend(self._state.sources)

    def serve_all(self, now: float) -> None:
        """Have each source make the calls that are due."""
        for source in tuple(self._turns):
            if self._serve(source, now):
                # If places are scarce, the other sources come first the next time.
                self._turns.remove(source)
                self._turns.append(source)

    def _serve(self, source: Source, now: float) -> bool:
        """Return whether the source leases."""
        if source.state is SourceState.PAUSED:
            if now < source.resumes and (self._state.phase is Phase.RUNNING or source.failures):
                return False
            source.state = SourceState.IDLE
        if source.state is not SourceState.IDLE:
            if source.pending and not source.settling and source.state is not SourceState.CALLING:
                source.settle()
            return False
        leases = self._state.alone_one is None and not self._state.deferrals.full
        if self._state.phase is Phase.RUNNING and leases:
            if (
                self._state.lends
                and self._state.times.quick
                and source.more
                and self._batches.lend(source)
            ):
                return True
            places = self._state.places.take(source.kind, self._state.places.size(source.kind))
            if places:
                more = self._state.times.batch_size - places
                if self._state.pool.queues and self._state.times.quick and source.more and more > 0:
                    self._state.places.overdraw(source.kind, more)
                    places += more
                self._lease(source, places)
                return True
        if source.pending:
            source.settle()
        return False

    def _lease(self, source: Source, places: int) -> None:
        others = [
            one for one in self._state.sources if one.kind == source.kind and one is not source
        ]
        tight = bool(others) and self._state.places.size(source.kind) <= len(others) + 1
        if source.pending or not source.dry or (tight and not all(one.dry for one in others)):
            source.exchange(places)
            return
        if others and places > 1:
            # While it only waits it keeps one place, because the other sources may find work.
            self._state.places.give(source.kind, places - 1)
            places = 1
        # A message that must run alone waits until no call is in flight: another such may follow.
        lately = bool(others) and time.monotonic() - self._state.alone_at < source.lease
        longest = min(LONGEST_WAIT, source.lease / 3)
        source.wait(places, TIGHT_WAIT if tight or lately else longest)

    def replied(self, source: Source, call: Call) -> None:
        """Process the answer to a call."""
        if call.state is SourceState.BATCHES:
            source.receiving -= 1
        elif call.state is SourceState.IDLE:
            source.settling = False
        else:
            source.state = SourceState.IDLE
        if call.error is not None:
            source.failed(call, call.error)
        else:
            source.reached()
            source.told(call.pending, call.answers, source.tally)
        room = call.places
        if call.state is SourceState.BATCHES:
            room = self._state.places.take(source.kind, self._state.places.size(source.kind))
        elif room:
            source.dry = call.batch is None
            source.more = call.batch is not None and len(call.batch.places) == room
        if call.batch is not None:
            batch = call.batch
            source.tally.leased += len(batch.places)
            room -= self._state.dispatch(source, batch, batch.places, call.began, room)
        self._state.places.give(source.kind, room)


LONGEST_WAIT = 10.0
"""Seconds for which a call waits for work."""
TIGHT_WAIT = 0.05
"""The same while others wait: for the place that it keeps, or to be handled alone."""
