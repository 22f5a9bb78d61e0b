"""A pool of tasks on one event loop. Plain functions run there too, on additional threads."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import logging
import queue
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context
from typing import Any

from interlock.aio import stack_of
from interlock.runtime.frames import frame_of, stack_text
from interlock.worker.message.execution import RELEASED, Execution, Outcome, ahandle, handle, judge
from interlock.worker.message.scope import LONGEST_LEAVE, HeldScope, Scope
from interlock.worker.pools.pool import PoolEvents
from interlock.worker.pools.thread_pool import COMPUTED, stack_at

__all__ = ["LoopPool"]

_log = logging.getLogger("interlock.worker")


class LoopPool:
    """Handlers as tasks of an event loop, which runs on a thread of its own."""

    def __init__(self, size: int, events: PoolEvents) -> None:
        self._size = size
        self._events = events
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._scope: HeldScope | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: collections.deque[Execution] = collections.deque()
        """While handlers are quick, it is given more messages than may run at once."""
        self._ended: list[tuple[Execution, Outcome]] = []
        """Ended handlers since the loop last reported some."""
        self._closed = False
        self._context = contextvars.copy_context()
        """The context in which each handler begins."""
        self.computed = 0
        """Handlers in a row that never waited."""
        self._turn = 0
        """Number of the loop's turns in which a handler began or continued."""
        self._counts_turn = False
        """The end of this turn will be counted."""

    @property
    def places(self) -> int:
        """See ``Pool``."""
        return self._size

    def start(self, scope: Scope | None = None) -> None:
        """See ``Pool``. The scope is entered on the loop of the handlers."""
        up: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(up,), name="interlock-handlers", daemon=True
        )
        self._thread.start()
        up.result()
        if scope is not None:
            assert self._loop is not None
            self._scope = HeldScope(scope)
            self._holds = asyncio.run_coroutine_threadsafe(self._scope.hold(), self._loop)
            self._scope.entered.result()

    def offer(self, batch: Sequence[Execution]) -> None:
        """See ``Pool``."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._begin, tuple(batch))

    @property
    def is_up(self) -> bool:
        """See ``Pool``."""
        return True

    def withdraw(self, execution: Execution) -> bool:
        """See ``Pool``. A handler begins at the loop's next turn; a handler that blocks the loop
        delays it."""
        return execution.claim()

    @property
    def only_compute(self) -> bool:
        """See ``Pool``: no handler waits, so a task for each gains nothing."""
        return self.computed >= COMPUTED

    def look(self) -> None:
        """See ``Pool``: no place is free while a message waits."""

    def stack(self, execution: Execution) -> str:
        """See ``Pool``."""
        if isinstance(execution.at, asyncio.Task):
            assert self._loop is not None
            frame = frame_of(self._thread.ident)
            if frame is not None and asyncio.current_task(self._loop) is execution.at:
                # It holds up the loop. A coroutine of a batch that has not waited yet is not among
                # those of its task.
                return stack_text(frame)
            return stack_of(execution.at)
        return stack_at(execution, {})

    def stop(self, execution: Execution) -> None:
        """Cancel the handler's task; a plain function on a thread runs to its end."""
        if isinstance(execution.at, asyncio.Task) and self._loop is not None:
            self._loop.call_soon_threadsafe(execution.at.cancel)

    def tell_lost(self, execution: Execution) -> None:
        """See ``Pool``: the handler's lease knows by itself."""

    def run_slices(self, begin: Callable[[], Coroutine[Any, Any, bool | None]]) -> bool:
        """Run coroutines on the loop, each as a task, until one returns other than None; return
        that. Called by the thread of batches.

        The loop takes a turn between two of them. A cancellation that a handler leaves behind ends
        with its task.
        """
        assert self._loop is not None
        loop = self._loop
        ended: queue.SimpleQueue[bool | BaseException] = queue.SimpleQueue()
        found: list[bool | None] = []

        async def run() -> None:
            found.append(await begin())

        def start() -> None:
            # As in the pool: handlers begin with the variables of the program that made it.
            task = new_task(loop, run(), self._context.copy())
            task.add_done_callback(go_on)

        def go_on(task: asyncio.Task[None]) -> None:
            last = found.pop() if found else None
            if last is not None:
                ended.put(last)
            elif not task.cancelled() and (error := task.exception()) is not None:
                ended.put(error)
            else:
                start()

        loop.call_soon_threadsafe(start)
        result = ended.get()
        if isinstance(result, BaseException):
            raise result
        return result

    def close(self) -> None:
        """See ``Pool``."""
        if self._scope is not None:
            self._scope.left(LONGEST_LEAVE)
        self._closed = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    def _run(self, up: Future[None]) -> None:
        with contextlib.ExitStack() as stack:
            try:
                runner = stack.enter_context(asyncio.Runner())
                self._loop = runner.get_loop()
            except BaseException as error:
                # Out of descriptors, for instance.
                up.set_exception(error)
                return
            asyncio.set_event_loop(self._loop)
            self._loop.call_soon(up.set_result, None)
            while not self._closed:
                try:
                    self._loop.run_forever()
                except BaseException:
                    # A task that a handler left on the loop raised SystemExit or similar; the other
                    # handlers continue.
                    _log.exception("a task on the loop of the handlers ended it; continuing")

    def _begin(self, batch: Sequence[Execution]) -> None:
        self._waiting.extend(batch)
        self._begin_next()

    def _begin_next(self) -> None:
        assert self._loop is not None
        tasks, waiting = self._tasks, self._waiting
        while waiting and len(tasks) < self._size:
            execution = waiting.popleft()
            if execution.claim():
                # Not the present context, which may be that of the handler that has just ended.
                context = self._context.copy()
                execution.at = task = new_task(self._loop, self._handle(execution), context)
                tasks.add(task)

    async def _handle(self, execution: Execution) -> None:
        task = execution.at
        try:
            if execution.expired:
                outcome = RELEASED
            else:
                execution.begin(task)
                if execution.invocation.is_async:
                    turn = self._this_turn()
                    outcome = await ahandle(execution.invocation, execution.held)
                    self.computed = self.computed + 1 if turn == self._turn else 0
                else:
                    self.computed = 0
                    outcome = await self._on_thread(execution)
        except BaseException as error:
            # No thread could be started, for instance.
            outcome = judge(execution.invocation.retry, execution.held, error)
        execution.end()
        if not self._ended:
            # Once for all handlers that end in this turn of the loop.
            asyncio.get_running_loop().call_soon(self._tell)
        self._ended.append((execution, outcome))
        self._tasks.discard(task)
        if self._waiting:
            self._begin_next()

    def _this_turn(self) -> int:
        """Return the number of the loop's present turn: a handler that ends in another has
        waited."""
        if not self._counts_turn:
            self._counts_turn = True
            asyncio.get_running_loop().call_soon(self._end_turn)
        return self._turn

    def _end_turn(self) -> None:
        self._turn += 1
        self._counts_turn = False

    def _tell(self) -> None:
        ended, self._ended = self._ended, []
        self._events.handlers_ended(ended)

    async def _on_thread(self, execution: Execution) -> Outcome:
        assert self._loop is not None
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._size, "interlock-handler")

        def work() -> Outcome:
            # A function of a cancelled task may have kept the thread.
            if execution.expired:
                return RELEASED
            execution.begin(threading.get_ident())
            return handle(execution.invocation, execution.held)

        context = contextvars.copy_context()
        return await self._loop.run_in_executor(self._threads, context.run, work)


def new_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, None], context: Context
) -> asyncio.Task[None]:
    """Return a task that begins with the loop's next turn.

    The program's task factory is not used: that of eager tasks would begin it here, inside the
    handler that has just ended.
    """
    return asyncio.Task(coroutine, loop=loop, context=context)
