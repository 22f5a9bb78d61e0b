"""A pool of threads. Coroutine functions run there too, on a loop that each thread keeps."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Sequence

from interlock.aio import stack_of
from interlock.frames import frame_of, stack_text
from interlock.worker.execution import (
    Execution,
    Invocation,
    Outcome,
    TaskLease,
    ahandle,
    handle,
    judge,
)
from interlock.worker.pool import PoolEvents
from interlock.worker.scope import LONGEST_LEAVE, HeldScope, Scope, ScopeThread

__all__ = ["Runner", "ThreadPool", "stack_at"]


class ThreadPool:
    """Handlers on so many threads, which are daemons."""

    queues = False
    """See ``Pool``."""

    def __init__(self, size: int, events: PoolEvents) -> None:
        self._size = size
        self._events = events
        self._waiting: queue.SimpleQueue[Execution | None] = queue.SimpleQueue()
        self._scope: ScopeThread | None = None
        self._runners: dict[int, Runner] = {}
        """By the number of the thread, to see where a coroutine function stands."""

    @property
    def places(self) -> int:
        """See ``Pool``."""
        return self._size

    @property
    def is_up(self) -> bool:
        """See ``Pool``."""
        return True

    def start(self, scope: Scope | None = None) -> None:
        """See ``Pool``. The scope has a loop of its own, beside those of the threads."""
        if scope is not None:
            self._scope = ScopeThread(scope)
        for n in range(self._size):
            threading.Thread(target=self._run, name=f"interlock-handler-{n}", daemon=True).start()

    def offer(self, batch: Sequence[Execution]) -> None:
        """See ``Pool``."""
        for execution in batch:
            self._waiting.put(execution)

    def withdraw(self, execution: Execution) -> bool:
        """See ``Pool``: whoever takes it from the queue finds it claimed."""
        return execution.claim()

    def stack(self, execution: Execution) -> str:
        """See ``Pool``."""
        return stack_at(execution, self._runners)

    def adopt(self, thread: int, runner: Runner) -> None:
        """Know a thread that is not the pool's own, for as long as it handles a message."""
        self._runners[thread] = runner

    def forget(self, thread: int) -> None:
        """End it."""
        self._runners.pop(thread, None)

    def stop(self, execution: Execution) -> None:
        """Do nothing: a thread cannot be ended, and keeps its place until the handler returns."""

    def tell_lost(self, execution: Execution) -> None:
        """See ``Pool``: the handler's lease knows by itself."""

    def close(self) -> None:
        """See ``Pool``."""
        if self._scope is not None:
            self._scope.close(LONGEST_LEAVE)
        for _ in range(self._size):
            self._waiting.put(None)

    def _run(self) -> None:
        with contextlib.closing(Runner()) as runner:
            me = threading.get_ident()
            self._runners[me] = runner
            while self._next(runner, me):
                pass

    def _next(self, runner: Runner, me: int) -> bool:
        # A function of its own, so that no name holds the last message while the next is awaited.
        execution = self._waiting.get()
        if execution is None:
            return False
        if execution.claim():
            execution.begin(me)
            outcome = runner.handled(execution.invocation, execution.held)
            execution.end()
            self._events.handler_ended(execution, outcome)
        return True


def stack_at(execution: Execution, runners: dict[int, Runner]) -> str:
    """Return the stack of a handler that runs on one of these threads, as text."""
    frame = frame_of(execution.at) if isinstance(execution.at, int) else None
    if frame is None:
        return "(it has ended)\n"
    runner = runners.get(execution.at) if execution.invocation.is_async else None
    if runner is not None and (task := runner.task) is not None:
        # While it awaits, the thread stands in its loop.
        return stack_of(task)
    return stack_text(frame)


class Runner:
    """The runner of handlers on this thread; a loop is made for the first coroutine function."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self.task: asyncio.Task[None] | None = None
        """The task of the coroutine function that runs."""

    def handled(self, invocation: Invocation, held: TaskLease) -> Outcome:
        """Run a handler in a context of its own: what a hook sets is not for the next message.
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
            # Not what the handler raised, but what it left on the loop: a task that raised
            # SystemExit, a stop, a cancellation that came too late.
            early = bool(found)
            self.close()
            # One that was cancelled by that has failed for what ended the loop.
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
        """Leave it, within so many seconds."""
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
        """Close the loop, if there is one; the next coroutine function has another. What still
        runs on it is cancelled, and has ended when this returns."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        # As often as one of them ends the loop again; a runner itself leaves them be then.
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
