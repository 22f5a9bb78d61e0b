"""A pool of tasks on one event loop. Plain functions run there too, on threads beside it."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from interlock.aio import stack_of
from interlock.worker import threads
from interlock.worker.handle import Outcome, ahandle, handle, judge
from interlock.worker.running import Done, Running, finish

__all__ = ["LoopPool"]

_log = logging.getLogger("interlock.worker")


class LoopPool:
    """Handlers as tasks of an event loop, which runs on a thread of its own."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._looks = threads.ThreadPool(0)
        self._closed = False
        self.emptied: Callable[[], None] = lambda: None
        self.moved: Callable[[int], None] = lambda count: None
        self.broke: Callable[[BaseException], None] = lambda error: None

    @property
    def places(self) -> int:
        """See ``Pool``."""
        return self._size

    def start(self, done: Done) -> None:
        """See ``Pool``."""
        self._done = done
        up = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(up,), name="interlock-handlers", daemon=True
        )
        self._thread.start()
        up.wait()

    def offer(self, batch: Sequence[Running]) -> None:
        """See ``Pool``."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._begin, tuple(batch))

    @property
    def is_up(self) -> bool:
        """See ``Pool``."""
        return True

    @property
    def is_empty(self) -> bool:
        """See ``Pool``: it keeps nothing waiting."""
        return True

    def work(self) -> None:
        """See ``Pool``: nothing, handlers run elsewhere."""

    def leave(self) -> None:
        """See ``Pool``."""

    def withdraw(self, running: Running) -> bool:
        """See ``Pool``. A handler begins at the loop's next turn; who blocks the loop delays it."""
        with self._lock:
            if running.started is not None:
                return False
            running.at = _WITHDRAWN
            return True

    def stack(self, running: Running) -> str:
        """See ``Pool``."""
        if isinstance(running.at, asyncio.Task):
            return stack_of(running.at)
        return self._looks.stack(running)

    def stop(self, running: Running) -> None:
        """Cancels the handler's task; a plain function on a thread goes on to its end."""
        if isinstance(running.at, asyncio.Task) and self._loop is not None:
            self._loop.call_soon_threadsafe(running.at.cancel)

    def tell_lost(self, running: Running) -> None:
        """See ``Pool``: the handler's lease knows by itself."""

    def close(self) -> None:
        """See ``Pool``."""
        self._closed = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
        if self._threads is not None:
            self._threads.shutdown(wait=False)

    def _run(self, up: threading.Event) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            asyncio.set_event_loop(self._loop)
            self._loop.call_soon(up.set)
            while not self._closed:
                try:
                    self._loop.run_forever()
                except BaseException:
                    # A task that a handler left on the loop raised SystemExit or its like: that
                    # is no end of the other handlers.
                    _log.exception("a task on the loop of the handlers ended it; it goes on")

    def _begin(self, batch: Sequence[Running]) -> None:
        assert self._loop is not None
        for running in batch:
            with self._lock:
                if running.at is _WITHDRAWN:
                    continue
                task = self._loop.create_task(self._handle(running))
                running.begin(task)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _handle(self, running: Running) -> None:
        try:
            if running.invocation.is_async:
                outcome = await ahandle(running.invocation, running.held)
            else:
                outcome = await self._on_thread(running)
        except BaseException as error:
            # No thread could be started, for instance.
            outcome = judge(running.invocation.retry, running.held, error)
        finish(self._done, running, outcome)

    async def _on_thread(self, running: Running) -> Outcome:
        assert self._loop is not None
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._size, "interlock-handler")

        def work() -> Outcome:
            running.begin(threading.get_ident())
            return handle(running.invocation, running.held)

        context = contextvars.copy_context()
        return await self._loop.run_in_executor(self._threads, context.run, work)


_WITHDRAWN = object()
