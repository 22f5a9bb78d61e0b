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

    def serve_all(self, now: float, hurry: bool) -> None:
        """Have each source make the calls that are due; ``hurry``: settle whatever is pending."""
        for source in tuple(self._turns):
            if self._serve(source, now, hurry):
                # If places are scarce, the other sources come first the next time.
                self._turns.remove(source)
                self._turns.append(source)

    @property
    def enough(self) -> int:
        """Return the number of handlers that have to end before a call is due."""
        found = []
        for source in self._turns:
            if source.state is not SourceState.CALLING:
                ahead = self._ahead(source) if source.state is SourceState.IDLE else 0
                held = 0 if self._lends(source) else ahead // 2
                found.append(held + 1 - self._room(source) if ahead else 1)
        return max(1, min(found, default=1))

    def _ahead(self, source: Source) -> int:
        """Return the number of messages to lease beyond those for which a handler is idle: while
        handlers are brief and the queue has more, those that they begin within 10 ms. So the pool
        has work while the next call is in flight, and a call settles many."""
        return self._state.times.leased_ahead if source.more and self._leases else 0

    def _room(self, source: Source) -> int:
        """Return the number of messages that may be leased; negative if more are held."""
        # Messages leased ahead would keep all places of the pool from the runner.
        ahead = 0 if self._lends(source) else self._ahead(source)
        return self._state.places.free(source.kind) + ahead

    def _lends(self, source: Source) -> bool:
        """Return whether a runner of batches is to have the source once a place is free."""
        return self._state.lends and self._state.times.quick and source.more and self._leases

    @property
    def _leases(self) -> bool:
        state = self._state
        more = state.alone_one is None and not state.deferrals.full
        return more and state.phase is Phase.RUNNING

    def _serve(self, source: Source, now: float, hurry: bool) -> bool:
        """Return whether the source leases."""
        if source.state is SourceState.PAUSED:
            if now < source.resumes and (self._state.phase is Phase.RUNNING or source.failures):
                return False
            source.state = SourceState.IDLE
        if source.state is not SourceState.IDLE:
            if source.pending and not source.settling and source.state is not SourceState.CALLING:
                source.settle()
            return False
        ahead, room = self._ahead(source), self._room(source)
        if self._leases:
            if self._lends(source):
                if self._batches.lend(source):
                    return True
                # If the system has no thread for it, the pool handles the messages.
                ahead, room = self._ahead(source), self._room(source)
            if not hurry and room * 2 <= ahead and ahead:
                return False
            if room > 0:
                self._state.places.overdraw(source.kind, room)
                self._lease(source, room)
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
            source.more = call.batch is not None and call.batch.heads == room
        if call.batch is not None:
            batch = call.batch
            source.tally.leased += len(batch.places)
            room -= self._state.dispatch(source, batch, batch.places, call.began, room)
        self._state.places.give(source.kind, room)


LONGEST_WAIT = 10.0
"""Seconds for which a call waits for work."""
TIGHT_WAIT = 0.05
"""The same while others wait: for the place that it keeps, or to be handled alone."""
