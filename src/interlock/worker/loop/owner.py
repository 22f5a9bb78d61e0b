"""The one thread that knows the whole state of a worker: leased, running and ended messages, free
places, and the progress of a shutdown.

Everything reaches it as an event of one queue: answers of engines, handlers that have ended, places
added or removed, commands of the program. It also watches the time: see ``_look``.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import queue as _queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from interlock.client.faces import handler_time
from interlock.worker.loop.batch_lending import BatchLending
from interlock.worker.loop.batch_run import BatchRun
from interlock.worker.loop.batch_runner import BatchRunner, Returned
from interlock.worker.loop.lease_plan import LeasePlan
from interlock.worker.loop.state import Phase, WorkerState
from interlock.worker.message.execution import Execution, Outcome, details, stopped
from interlock.worker.message.source import Call, Source, SourceState
from interlock.worker.message.tasks import Tasks
from interlock.worker.pools.pool import pool_of

if TYPE_CHECKING:
    from interlock.worker.settings import WorkerSettings

__all__ = ["Owner"]

_log = logging.getLogger("interlock.worker")


class Owner:
    """The whole state of a worker. Its public methods may be called by any thread."""

    def __init__(
        self, settings: WorkerSettings, tasks: Tasks, broken: Callable[[BaseException], None]
    ) -> None:
        self.idle = threading.Event()
        """It takes no further messages, and holds none."""
        self.ended = threading.Event()
        self.whole = False
        """True if every held message was settled by its handler at shutdown."""
        self.state = WorkerState(settings, tasks, pool_of(settings, self, tasks))
        self._handles_here = settings.pool != "process"
        """In this process, not in those of a pool."""
        self._broken = broken
        self._batches = BatchLending(self.state, self)
        self._plan = LeasePlan(self.state, self._batches)
        self._events: _queue.SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]]] = (
            _queue.SimpleQueue()
        )
        self._ended: collections.deque[tuple[Execution, Outcome]] = collections.deque()
        """Handlers that have ended since the last turn."""
        self._woken = False
        """The owner was woken for them, and has not looked at them yet."""
        self._enough = 1
        """Number of them for which the owner is woken."""
        self._looked = 0.0
        self._worked = 0.0
        """The time at which handlers last ended and others were left to run; 0: none were."""
        self._until = 0.0
        """The time at which the shutdown is given up."""
        self._recalled = 0.0
        """The time until which a message that has not begun may be returned by its process."""
        self._left = False
        """Messages were still held at the end."""

    def start(self, sources: Sequence[Source]) -> None:
        """Begin to lease from these. Raises the exceptions of the program's startup code, or an
        error if the pool cannot start."""
        state = self.state
        try:
            state.pool.start(state.tasks.scope(True, self._handles_here))
        except BaseException:
            state.pool.close()
            raise
        state.sources = sources
        self._plan.begin()
        state.phase = Phase.RUNNING
        self._events.put((self._look, (time.monotonic(),)))
        threading.Thread(target=self._run, name="interlock-worker", daemon=True).start()

    # -- Events, told by any thread ---------------------------------------------------------------

    def handlers_ended(self, ended: Sequence[tuple[Execution, Outcome]]) -> None:
        """See ``PoolEvents``."""
        self._ended.extend(ended)
        if self._woken or len(self._ended) < self._enough:
            return
        # The answer to the call in flight wakes the owner; until then it could settle nothing. The
        # state is read after the list has changed, and the owner reads the list last.
        if any(one.source.state is not SourceState.CALLING for one, _ in ended):
            self._woken = True
            self._events.put((self._all_ended, ()))

    @property
    def stops(self) -> bool:
        """See ``PoolEvents``."""
        return self.state.phase not in (Phase.NEW, Phase.RUNNING)

    def places_moved(self, count: int) -> None:
        """See ``PoolEvents``."""
        self._events.put((self.state.places.moved, (count,)))

    def pool_broke(self, error: BaseException) -> None:
        """See ``PoolEvents``."""
        _log.error("no message can be handled any more: %s", error)
        self._broken(error)

    def replied(self, source: Source, call: Call) -> None:
        """See ``Replies``."""
        self._events.put((self._plan.replied, (source, call)))

    def turn_came(self, kept: bool) -> None:
        """See ``Replies``."""
        self._events.put((self.state.turn_came, (kept,)))

    def source_broke(self, error: BaseException) -> None:
        """See ``Replies``."""
        self._broken(error)

    def batches_ended(self, runner: BatchRunner, returned: Returned) -> None:
        """See ``BatchEvents``."""
        self._events.put((self._batches.returned, (runner, returned)))

    def batch_waits(self, runner: BatchRunner, run: BatchRun) -> None:
        """See ``BatchEvents``."""
        self._events.put((self._batches.call_waits, (runner, run)))

    def straggler_ended(self, run: BatchRun) -> None:
        """See ``BatchEvents``."""
        self._events.put((self._batches.straggler_ended, (run,)))

    def stop(self) -> None:
        """Take no further messages; running handlers continue, and messages that have not begun are
        returned."""
        self._events.put((self._stop, ()))

    def end(self, patience: float) -> None:
        """End: messages whose handlers still run are returned as failed, and settlements are sent
        for up to ``patience``. ``ended`` is set then."""
        self._events.put((self._end, (patience,)))

    def ask(self) -> list[Execution]:
        """Return the held messages, as reported by the owner's thread: it answers unless it
        hangs."""
        self.answers(float("inf"))
        return list(self.state.executions.values())

    def answers(self, timeout: float) -> bool:
        """Return whether the owner's thread responds within ``timeout``, or has ended."""
        answer: _queue.SimpleQueue[None] = _queue.SimpleQueue()
        self._events.put((answer.put, (None,)))
        until = time.monotonic() + timeout
        while self.state.phase not in (Phase.NEW, Phase.ENDED):
            left = until - time.monotonic()
            if left <= 0:
                return False
            with contextlib.suppress(_queue.Empty):
                answer.get(timeout=min(left, PATIENCE))
                break
        return True

    # -- The thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while self.state.phase is not Phase.ENDED:
            try:
                self._turn()
            except Exception:
                _log.exception("the worker's owner failed; continuing")
        # Also while handlers run whose messages were returned: nobody waits for them.
        self.idle.set()
        self.ended.set()

    def _turn(self) -> None:
        # A function of its own, so that no name holds the last message while the next is awaited.
        try:
            handle, given = self._events.get(timeout=self._patience())
        except _queue.Empty:
            pass
        else:
            handle(*given)
            for _ in range(MOST_EVENTS):
                if self._events.empty():
                    break
                handle, given = self._events.get()
                handle(*given)
        self._all_ended()
        now = time.monotonic()
        looks = now >= self._next_look(now)
        if looks:
            self._looked = now
            self._look(now)
        if self.state.phase is Phase.ENDING:
            self._leave(now)
        self.state.next_alone()
        self._plan.serve_all(now, looks)
        self._end_in_order(now)

    def _next_look(self, now: float) -> float:
        """Return the time of the next check."""
        soon, late = self._looked + handler_time.LOOK, self._looked + TICK
        if self.state.runner is not None and not self.state.executions:
            # A check interrupts the handlers, so it waits until one may be late.
            return max(soon, min(late, self._batches.late_at(now)))
        brief = self.state.runner is not None or self.state.times.leased_ahead
        return soon if brief else late

    def _patience(self) -> float | None:
        """Return how many seconds to wait for an event; None: without limit."""
        self._enough = self._plan.enough
        if len(self._ended) >= self._enough:
            return 0.0
        times = [one.resumes for one in self.state.sources if one.state is SourceState.PAUSED]
        if self.state.holds or self.state.deferrals:
            times.append(self._next_look(time.monotonic()))
        if self.state.phase is Phase.ENDING:
            times.append(self._until)
        if not times:
            return None
        return max(min(times) - time.monotonic(), 0.0)

    def _all_ended(self) -> None:
        # Before it looks: a handler that ends later wakes it again.
        self._woken = False
        if not self._ended:
            return
        count, now = 0, time.monotonic()
        while self._ended:
            self.state.ended(*self._ended.popleft())
            count += 1
        if self.state.runner is None:
            if self._worked:
                self.state.times.pool_ended(now - self._worked, count)
            self._worked = now if self.state.executions else 0.0

    # -- The time ---------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        """Act on the passing of time.

        - A message that no handler has begun within 100 ms is returned: it keeps its lanes closed.
          So is one whose lease is lost.
        - A handler that holds up the thread of a batch keeps that thread alone.
        - A handler that exceeds its timeout loses its lease, and its stack is logged.
        - A message of an unknown task is returned when its time is over.
        """
        self._batches.look(now)
        self.state.pool.look()
        for one in list(self.state.executions.values()):
            if one.over:
                continue
            if one.started is None:
                if self.stops or one.lost or now - one.offered > LONGEST_UNSTARTED:
                    self.state.give_back(one)
                continue
            if one.lost:
                self.state.pool.tell_lost(one)
            if (limit := one.timeout) is not None and now - one.started >= limit:
                self._revoke(one, limit)
        self.state.release_deferred(now)

    def _revoke(self, execution: Execution, limit: float) -> None:
        """Handle a timeout: the lease ends, by its own token, and the handler is on its own."""
        held = execution.held
        held._over = True

        def explain() -> None:
            # On another thread: a process may take a while to report its handler's stack.
            _log.error(
                "message %d was handled for more than %.3g s; its lease is revoked. The handler "
                "is at\n%s",
                held.id, limit, self.state.pool.stack(execution), extra=details(held),
            )  # fmt: skip
            self._events.put((self._revoked, (execution, limit)))

        threading.Thread(target=explain, name="interlock-timeout", daemon=True).start()

    def _revoked(self, execution: Execution, limit: float) -> None:
        held = execution.held
        if self.state.audit is not None:
            self.state.audit.ended(held)
        error = f"handled for more than {limit:.3g} s"
        # First, so that what it has reported is final.
        self.state.pool.stop(execution)
        outcome = stopped(execution.retry, held, error, HANDED_BACK)
        if held.run is not None:
            took = time.monotonic() - (execution.started or execution.offered)
            outcome = self.state.run_ended(execution, outcome, took)
        execution.source.add(execution.batch, held, outcome)
        if execution.source.meter is not None:
            execution.source.meter.timed_out(held)
            execution.source.meter.settled(held, outcome)

    # -- The end ----------------------------------------------------------------------------------

    def _stop(self) -> None:
        if self.state.phase is not Phase.RUNNING:
            return
        self.state.phase = Phase.STOPPING
        for source in self.state.sources:
            if source.state is SourceState.WAITING:
                # Only then: a call that settles must not be interrupted.
                source.interrupt()
        self._batches.stop()
        for execution in list(self.state.executions.values()):
            if execution.started is None:
                self.state.give_back(execution)
        self.state.release_deferred(float("inf"))

    def _end(self, patience: float) -> None:
        self._stop()
        self.state.phase = Phase.ENDING
        now = time.monotonic()
        self._until, self._recalled = now + patience, now + LONGEST_RECALL

    def _leave(self, now: float) -> None:
        """Return the messages whose handlers still run, or may, because their process does not
        answer."""
        # A process may have handled messages that it has not reported.
        self.state.pool.look()
        self._all_ended()
        for execution in list(self.state.executions.values()):
            if execution.over or (execution.started is None and now < self._recalled):
                continue
            self._left = True
            held = execution.held
            _log.error(
                "message %d in queue %r is returned, its attempt unchanged: the worker was "
                "stopped while its handler ran",
                held.id, held.queue, extra=details(held),
            )  # fmt: skip
            # The message is not at fault. Delayed, because the handler may still run for a moment.
            outcome = Outcome("defer", delay=HANDED_BACK, expected="released")
            execution.source.add(execution.batch, held, outcome)
            if execution.source.meter is not None:
                execution.source.meter.settled(held, outcome)

    def _end_in_order(self, now: float) -> None:
        if self.state.phase is Phase.RUNNING:
            return
        if not (self.state.holds or self.state.alone_one or self.idle.is_set()):
            self.idle.set()
        if self.state.phase is Phase.ENDING:
            quiet = (
                all(source.is_quiet for source in self.state.sources)
                and self.state.runner is None
                and all(one.over for one in self.state.executions.values())
            )
            if quiet or now >= self._until:
                self._close(quiet)

    def _close(self, quiet: bool) -> None:
        self.whole = quiet and not self._left
        for source in self.state.sources:
            source.close()
        self._batches.close()
        self.state.pool.close()
        if self.state.audit is not None:
            self.state.audit.close()
        self.state.phase = Phase.ENDED


TICK = 0.05
"""Seconds between two checks while any message is held."""
LONGEST_UNSTARTED = 0.1
LONGEST_RECALL = 0.5
"""Seconds for which a process is asked for the messages that it has not begun."""
HANDED_BACK = 1.0
"""Seconds after which a message of a stopped worker is leased again."""
PATIENCE = 1.0
MOST_EVENTS = 1000
"""Events that are handled before the next check."""
