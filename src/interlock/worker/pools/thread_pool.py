"""A pool of threads. Coroutine functions run there too, on a loop of each thread."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import queue
import resource
import threading
from collections.abc import Sequence

from interlock.aio import stack_of
from interlock.runtime.frames import frame_of, stack_text
from interlock.worker.message.execution import (
    RELEASED,
    Execution,
    Invocation,
    Outcome,
    TaskLease,
    ahandle,
    handle,
    judge,
)
from interlock.worker.message.scope import LONGEST_LEAVE, HeldScope, Scope, ScopeThread
from interlock.worker.pools.pool import PoolEvents

__all__ = ["COUNTS_WAITS", "Runner", "ThreadPool", "stack_at", "waits"]


class ThreadPool:
    """Handlers on a number of daemon threads."""

    def __init__(self, size: int, events: PoolEvents) -> None:
        self._size = size
        self._events = events
        self._waiting: collections.deque[Execution] = collections.deque()
        self._wakes: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """Wakes one idle thread each; False ends it."""
        self._waking = False
        """A thread was woken that has not looked at the waiting messages yet."""
        self._handling: set[int] = set()
        """The threads that take waiting messages."""
        self._count = 0
        """Handlers that have ended."""
        self._woken_at = self._looked_at = self._tried_at = 0
        """Number of ended handlers when a thread was last woken, when the owner last looked, and
        when a handler was last tried for whether it only computes."""
        self.computed = 0
        """Handlers in a row that kept the interpreter to themselves."""
        self._scope: ScopeThread | None = None
        self._runners: dict[int, Runner] = {}
        """The runners by thread number, to find where a coroutine function is."""

    @property
    def places(self) -> int:
        """See ``Pool``."""
        return self._size

    @property
    def is_up(self) -> bool:
        """See ``Pool``."""
        return True

    def start(self, scope: Scope | None = None) -> None:
        """See ``Pool``. The scope has its own loop, separate from those of the threads."""
        if scope is not None:
            self._scope = ScopeThread(scope)
        for n in range(self._size):
            threading.Thread(target=self._run, name=f"interlock-handler-{n}", daemon=True).start()

    def offer(self, batch: Sequence[Execution]) -> None:
        """See ``Pool``."""
        self._waiting.extend(batch)
        # A thread that stops taking messages looks once more after it has said so.
        if not (self.only_compute and self._handling):
            self._wake()

    def look(self) -> None:
        """See ``Pool``: a handler that only computed until now may wait."""
        if self._waiting and self._count == self._looked_at:
            self.computed = 0
            self._wake()
        self._looked_at = self._count

    def withdraw(self, execution: Execution) -> bool:
        """See ``Pool``: the thread that takes it from the queue finds it claimed."""
        return execution.claim()

    def stack(self, execution: Execution) -> str:
        """See ``Pool``."""
        return stack_at(execution, self._runners)

    def adopt(self, thread: int, runner: Runner) -> None:
        """Know a thread that is not part of the pool, for as long as it handles a message."""
        self._runners[thread] = runner

    def forget(self, thread: int) -> None:
        """End the thread."""
        self._runners.pop(thread, None)

    def stop(self, execution: Execution) -> None:
        """Do nothing: a thread cannot be ended, and keeps its place until the handler returns."""

    def tell_lost(self, execution: Execution) -> None:
        """See ``Pool``: the handler's lease notices that itself."""

    def close(self) -> None:
        """See ``Pool``."""
        if self._scope is not None:
            self._scope.close(LONGEST_LEAVE)
        for _ in range(self._size):
            self._wakes.put(False)

    def _run(self) -> None:
        with contextlib.closing(Runner()) as runner:
            me = threading.get_ident()
            self._runners[me] = runner
            while self._wakes.get():
                self._waking = False
                if self.only_compute and self._handling and self._count != self._woken_at:
                    # The handler that this thread was to run beside has ended.
                    continue
                while self._waiting:
                    self._handling.add(me)
                    while self._handle_next(runner, me):
                        pass
                    self._handling.discard(me)

    @property
    def only_compute(self) -> bool:
        """Return whether handlers only compute: they would wait for each other, each in the middle
        of its work, if several threads ran them."""
        return self.computed >= COMPUTED

    @property
    def _is_idle(self) -> bool:
        """Return whether a thread takes no messages."""
        return len(self._handling) < self._size

    def _wake(self) -> bool:
        # One thread at a time, which wakes the next before it begins a handler. So as many threads
        # run as the handlers need.
        if not self._waiting or self._waking:
            return False
        self._waking, self._woken_at = True, self._count
        self._wakes.put(True)
        return True

    def _handle_next(self, runner: Runner, me: int) -> bool:
        # A function of its own, so that no name holds the last message while the next is awaited.
        try:
            execution = self._waiting.popleft()
        except IndexError:
            return False
        tries = not self.only_compute or self._count - self._tried_at >= BETWEEN_TRIES
        woken = tries and self._wake()
        waking, woken_at = self._waking and self._is_idle, self._woken_at
        if execution.claim():
            outcome = RELEASED
            if not execution.expired:
                execution.begin(me)
                outcome = runner.handled(execution.invocation, execution.held)
                execution.end()
                if waking and self._waking and self._woken_at == woken_at and self._is_idle:
                    self.computed += 1
                elif woken:
                    # It waited, or computed without the interpreter, and let the woken thread run.
                    # One that was woken for an earlier handler runs after some time in any case.
                    self.computed = 0
                if woken:
                    self._tried_at = self._count
            self._events.handlers_ended(((execution, outcome),))
        self._count += 1
        return True


def waits() -> int:
    """Return how often this thread has waited for anything; see ``COUNTS_WAITS``."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def stack_at(execution: Execution, runners: dict[int, Runner]) -> str:
    """Return the stack of a handler that runs on one of these threads, as text."""
    frame = frame_of(execution.at) if isinstance(execution.at, int) else None
    if frame is None:
        return "(it has ended)\n"
    runner = runners.get(execution.at) if execution.invocation.is_async else None
    if runner is not None and (task := runner.task) is not None:
        # While the handler awaits, the thread is inside its loop.
        return stack_of(task)
    return stack_text(frame)


class Runner:
    """The runner of handlers on this thread; it makes a loop for the first coroutine function."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self.task: asyncio.Task[None] | None = None
        """The running task of the coroutine function."""

    def handled(self, invocation: Invocation, held: TaskLease) -> Outcome:
        """Run a handler in its own context: values set by a hook do not reach the next message.
        Never raises."""
        context = contextvars.copy_context()
        if not invocation.is_async:
            return context.run(handle, invocation, held)
        return context.run(self.awaited, invocation, held)

    def awaited(self, invocation: Invocation, held: TaskLease) -> Outcome:
        """Run a coroutine function on this thread's loop. Never raises."""
        found: list[Outcome] = []

        async def handled() -> None:
            self.task = asyncio.current_task()
            try:
                found.append(await ahandle(invocation, held))
            finally:
                self.task = None

        try:
            if self._runner is None:
                self._runner = asyncio.Runner()
            self._runner.run(handled(), context=contextvars.copy_context())
        except BaseException as error:
            # Not raised by the handler, but by something it left on the loop: a task that raised
            # SystemExit, a stop, a cancellation that came too late.
            early = bool(found)
            self.close()
            # A handler cancelled by that failed because of whatever ended the loop.
            if not early and not (found and found[0].how == "ack"):
                return judge(invocation.retry, held, error)
        return found[0]

    def enter(self, held: HeldScope) -> None:
        """Enter a scope on this thread's loop, which runs only while something is awaited there.
        Raises what that raises."""
        self._runner = asyncio.Runner()
        self._runner.run(self._entered(held))
        held.entered.result()

    def leave(self, held: HeldScope, seconds: float) -> None:
        """Leave the scope, within ``seconds``."""
        if self._runner is not None and not held.ended.is_set():
            with contextlib.suppress(TimeoutError):
                self._runner.run(self._left(held, seconds))

    async def _entered(self, held: HeldScope) -> None:
        self._held = asyncio.create_task(held.hold())
        await held.begun.wait()

    async def _left(self, held: HeldScope, seconds: float) -> None:
        held.leave()
        await asyncio.wait_for(self._held, seconds)

    def close(self) -> None:
        """Close the loop, if there is one; the next coroutine function gets another. Tasks that
        still run on it are cancelled, and have ended when this returns."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        # Repeated while one of them ends the loop again; asyncio's runner would give up then.
        for _ in range(MOST_ENDS):
            with contextlib.suppress(BaseException):
                _cancel_all(runner.get_loop())
                break
        with contextlib.suppress(BaseException):
            runner.close()


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))


MOST_ENDS = 100
COMPUTED = 8
"""Handlers in a row that let no other thread run, after which one thread takes all messages."""
BETWEEN_TRIES = 32
"""Handlers of that thread until it tries again whether they let another run."""
COUNTS_WAITS = hasattr(resource, "RUSAGE_THREAD")
"""The system counts them for each thread."""
