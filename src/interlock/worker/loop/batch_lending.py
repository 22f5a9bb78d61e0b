"""The owner's side of batches of quick handlers: it lends a source, watches, and takes it back."""

from __future__ import annotations

import time

from interlock.client.faces import handler_time
from interlock.worker.loop.batch_run import BatchRun
from interlock.worker.loop.batch_runner import (
    BatchEvents,
    BatchRunner,
    BatchThread,
    Returned,
)
from interlock.worker.loop.state import Straggler, WorkerState
from interlock.worker.message.execution import RELEASED, Execution
from interlock.worker.message.source import Call, Source, SourceState, count_outcome
from interlock.worker.pools.loop_pool import LoopPool
from interlock.worker.pools.thread_pool import ThreadPool

__all__ = ["BatchLending"]


class BatchLending:
    """The runner of batches, and the handlers that held up a batch."""

    def __init__(self, state: WorkerState, events: BatchEvents) -> None:
        self._state, self._events = state, events
        self._thread: BatchThread | None = None

    def lend(self, source: Source) -> bool:
        """Start a runner of batches. False: there is no free place for it."""
        if not self._state.places.take(source.kind, 1):
            return False
        source.state = SourceState.BATCHES
        if self._thread is None:
            self._thread = BatchThread(source.name)
        state = self._state
        assert isinstance(state.pool, ThreadPool | LoopPool)
        # When they return to the pool, it looks again.
        state.pool.computed = 0
        state.runner = runner = BatchRunner(
            source, state.tasks, state.times, state.audit, self._events, state.alone, self._thread,
            state.loop,
        )  # fmt: skip
        pending = source.taken()
        try:
            runner.start(pending)
        except RuntimeError:
            # The system cannot start a thread for it; the pool has its own.
            self.returned(runner, Returned(pending))
            return False
        return True

    def returned(self, runner: BatchRunner, returned: Returned) -> None:
        """Note that a runner has ended its stretch, with no handler running."""
        source = self._state.sources[0]
        self._state.runner = None
        source.state = SourceState.IDLE
        source.dry, source.more = returned.dry, False
        source.pending[:0] = returned.pending
        self._state.places.give(source.kind, 1)
        if returned.error is not None:
            source.failed(Call([], 0), returned.error)
        for batch, places, began in returned.leased:
            self._state.distribute(source, batch, places, began)

    def look(self, now: float) -> None:
        """Take over the rest of a batch in which one message holds up the thread."""
        for straggling in self._state.stragglers:
            self._note_straggler(straggling, now)
        runner = self._state.runner
        run = None if runner is None else runner.run
        if runner is None or run is None:
            return
        if run.at and now - (since := run.since) >= handler_time.LATE:
            self._take_over(runner, run, since)
            if self._state.runner is None:
                self._state.times.slow(held_up=True)

    def late_at(self, now: float) -> float:
        """Return the time at which a message that has not ended holds up the thread for too
        long."""
        runner = self._state.runner
        run = None if runner is None else runner.run
        since = now if run is None or not run.at else run.since
        # On a busy machine many threads pause for about as long as LATE, and then continue.
        return since + handler_time.LATE + handler_time.LOOK

    def call_waits(self, runner: BatchRunner, run: BatchRun) -> None:
        """Take over the rest of a batch in which a coroutine waits."""
        call = run.suspended
        if call is not None and self._state.runner is runner and runner.run is run:
            self._take_over(runner, run, call.began)
            if self._state.runner is None:
                self._state.times.slow(held_up=True)

    def close(self) -> None:
        """End the batch thread when it has finished its work; the next batch gets a new one."""
        if self._thread is not None:
            self._thread.end()
            self._thread = None

    def stop(self) -> None:
        """Begin no further batches, and take back the messages that have not begun."""
        runner = self._state.runner
        if runner is not None:
            runner.stop()
            run = runner.run
            if run is not None:
                self._take_over(runner, run, time.monotonic())

    def _take_over(self, runner: BatchRunner, run: BatchRun, since: float) -> None:
        """Take over the rest of a batch, and everything else its runner has, except the message
        that is being handled."""
        places, mine = run.rest()
        if not mine:
            return
        source = self._state.sources[0]
        done, others = len(run.done), len(run.others)
        source.pending += run.pending(slice(done), slice(others))
        count = source.tally
        count.handled += done
        for _, outcome in run.others[:others]:
            count_outcome(count, outcome)
        if source.meter is not None:
            source.meter.handled(run, 0, done + others, since)
        self._state.runner = None
        source.state = SourceState.IDLE
        self._state.stragglers[run] = Straggler(runner, done, others, None)
        # That thread ends with its handler.
        self.close()
        self._note_straggler(run, since)
        pending, asked = runner.give_up()
        source.pending += pending
        for one in asked:
            call = Call(one.all_pending(), 0, SourceState.BATCHES, one.began)
            source.receive(call, one.answer)
        self._state.distribute(source, run.batch, places, run.began)

    def _note_straggler(self, run: BatchRun, since: float) -> None:
        """Watch the message that was being handled when the rest of its batch was taken over."""
        runner, done, others, execution = self._state.stragglers[run]
        if execution is not None or not run.at or run.outcome(run.at) is not None:
            return
        held = run.lease(run.at)
        try:
            invocation = self._state.tasks.prepare(held)
        except Exception:
            # The thread that runs it reports that.
            return
        execution = Execution(run.batch, held, invocation, run.source, since, since)
        execution.claim()
        if run.task is not None:
            execution.at = run.task
        else:
            execution.at = runner.ident
            assert isinstance(self._state.pool, ThreadPool)
            self._state.pool.adopt(runner.ident, runner.thread.runner)
        self._state.executions[id(execution)] = execution
        self._state.stragglers[run] = Straggler(runner, done, others, execution)

    def straggler_ended(self, run: BatchRun) -> None:
        """Handle the end of the handler that held up a batch."""
        runner, done, others, execution = self._state.stragglers.pop(run)
        source = run.source
        if isinstance(self._state.pool, ThreadPool):
            self._state.pool.forget(runner.ident)
        outcome = run.outcome(run.at)
        if execution is not None and outcome is not None:
            execution.end()
            # The thread of the batch has told the auditor and the log.
            self._state.ended(execution, outcome, told=True)
            return
        if execution is not None:
            self._state.forget(execution)
        else:
            self._state.places.give(source.kind, 1)
        source.pending += run.pending(slice(done, None), slice(others, None))
        source.tally.handled += len(run.done) - done
        for _, other in run.others[others:]:
            count_outcome(source.tally, other)
        if source.meter is not None:
            source.meter.handled(run, done + others, run.ended, time.monotonic())
        if outcome is None and run.at:
            # It was left to the holder of the rest.
            source.add(run.batch, run.lease(run.at), RELEASED)
