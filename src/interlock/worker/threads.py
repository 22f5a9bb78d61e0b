"""Pools of threads. Coroutine functions run there too, on a loop that each thread keeps."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import threading
from collections.abc import Callable, Sequence

from interlock.aio import stack_of
from interlock.frames import frame_of, stack_text
from interlock.worker.handle import Outcome, ahandle, handle, judge
from interlock.worker.running import Done, Running, finish
from interlock.worker.work import Invocation, TaskLease

__all__ = ["SinglePool", "ThreadPool"]


class ThreadPool:
    """Handlers on so many threads, which are daemons."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._most = max(size, 1)
        self._lock = threading.Lock()
        self._bell = threading.Condition(self._lock)
        self._waiting: collections.deque[Running] = collections.deque()
        self._idle = 0
        """The number of threads that sleep."""
        self._waking = False
        """One was woken and has not come yet."""
        self._busy = 0
        """The number of handlers that run, on these threads and on others that help."""
        self._lent = False
        """Handlers are quick: who leases runs them, and nobody is woken for that."""
        self._runners = threading.local()
        self._runners_of: dict[int, Runners] = {}
        """By the number of the thread, to see where a coroutine function stands."""
        self._closed = False
        self._threads: list[threading.Thread] = []
        self.emptied: Callable[[], None] = lambda: None
        self.moved: Callable[[int], None] = lambda count: None
        self.broke: Callable[[BaseException], None] = lambda error: None

    @property
    def places(self) -> int:
        """See ``Pool``."""
        return self._most

    @property
    def is_up(self) -> bool:
        """See ``Pool``."""
        return True

    @property
    def is_empty(self) -> bool:
        """See ``Pool``."""
        return not self._waiting

    def start(self, done: Done) -> None:
        """See ``Pool``."""
        self._done = done
        self._threads = [
            threading.Thread(target=self._run, name=f"interlock-handler-{n}", daemon=True)
            for n in range(self._size)
        ]
        for thread in self._threads:
            thread.start()

    def offer(self, batch: Sequence[Running]) -> None:
        """See ``Pool``."""
        with self._lock:
            self._waiting.extend(batch)
            self._wake()

    def withdraw(self, running: Running) -> bool:
        """See ``Pool``."""
        with self._lock:
            try:
                self._waiting.remove(running)
            except ValueError:
                return False
            return True

    def stack(self, running: Running) -> str:
        """See ``Pool``."""
        frame = frame_of(running.at) if isinstance(running.at, int) else None
        if frame is None:
            return "(it has ended)\n"
        runners = self._runners_of.get(running.at) if running.invocation.is_async else None
        if runners is not None and (task := runners.task) is not None:
            # While it awaits, the thread stands in its loop.
            return stack_of(task)
        return stack_text(frame)

    def stop(self, running: Running) -> None:
        """A thread cannot be ended: it keeps its place until the handler returns."""

    def tell_lost(self, running: Running) -> None:
        """See ``Pool``: the handler's lease knows by itself."""

    def close(self) -> None:
        """See ``Pool``."""
        with self._lock:
            self._closed = True
            self._bell.notify_all()

    def lend(self, lent: bool) -> None:
        """From now on who leases runs the handlers, in ``work``, as long as they are quick."""
        with self._lock:
            self._lent = lent
            self._wake()

    def work(self) -> None:
        """See ``Pool``: nothing, unless it is lent; else the threads are there for that."""
        while self._lent and (running := self._next_here()) is not None:
            self._ended(running, self._runners_here().handled(running))
            if running.feeder.taker != running.at:
                break
        if self._waiting:
            with self._lock:
                # Lent no more, or relieved: one of the pool may have found no room beside this.
                self._wake()

    def leave(self) -> None:
        """See ``Pool``: the loop that the thread has kept is closed."""
        found: Runners | None = getattr(self._runners, "own", None)
        if found is not None:
            found.close()

    def _next_here(self) -> Running | None:
        with self._lock:
            if not self._waiting or self._busy >= self._most:
                return None
            running = self._waiting.popleft()
            self._busy += 1
            running.begin(threading.get_ident())
            return running

    def _runners_here(self) -> Runners:
        """Of a thread that is not the pool's."""
        found: Runners | None = getattr(self._runners, "own", None)
        if found is None:
            found = self._runners.own = Runners()
            self._runners_of[threading.get_ident()] = found
        return found

    def _ended(self, running: Running, outcome: Outcome) -> None:
        # Before it is settled, for then its place counts as free.
        with self._lock:
            self._busy -= 1
        finish(self._done, running, outcome)

    def _run(self) -> None:
        with contextlib.closing(Runners()) as runners:
            self._runners_of[threading.get_ident()] = runners
            while (running := self._next()) is not None:
                if not self._waiting:
                    self.emptied()
                self._ended(running, runners.handled(running))
                if not self._waiting:
                    # Again: the last one may have begun on another thread just before.
                    self.emptied()
                # No name holds the last message while the next is awaited.
                del running

    def _next(self) -> Running | None:
        with self._lock:
            while not self._waiting or self._busy >= self._most:
                if self._closed:
                    return None
                self._idle += 1
                self._bell.wait()
                self._idle -= 1
                self._waking = False
            running = self._waiting.popleft()
            self._busy += 1
            running.begin(threading.get_ident())
            if self._waiting:
                self._wake()
            return running

    def _wake(self) -> None:
        # One at a time, and each that comes and finds more wakes the next: handlers that take no
        # time are then run by one thread, without a switch between threads for each message.
        # Whoever does not sleep looks for itself before it does.
        if self._idle and self._waiting and not self._waking and not self._lent:
            self._waking = True
            self._bell.notify()


class SinglePool(ThreadPool):
    """One place, and no thread: whoever leases a message handles it.

    While it does there is no place to lease for, so nothing is kept waiting by that; and between
    the lease and the handler there is no switch from one thread to another.
    """

    def __init__(self) -> None:
        super().__init__(0)

    @property
    def is_empty(self) -> bool:
        """See ``Pool``: nobody but who leases begins what waits, and is to be rung for that."""
        return True

    def work(self) -> None:
        """See ``Pool``."""
        while (running := self._next_here()) is not None:
            if not self._lent:
                with running.feeder.away():
                    outcome = self._runners_here().handled(running)
                self._ended(running, outcome)
                continue
            self._ended(running, self._runners_here().handled(running))
            if running.feeder.taker != running.at:
                # Relieved: another thread leases now, and begins what waits.
                return


class Runners:
    """The runner of handlers on this thread; a loop is made for the first coroutine function."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self.task: asyncio.Task[None] | None = None
        """The task of the coroutine function that runs."""

    def handled(self, running: Running) -> Outcome:
        """In a context of its own: what a hook sets is not for the next message. Never raises."""
        invocation, held = running.invocation, running.held
        context = contextvars.copy_context()
        if not invocation.is_async:
            return context.run(handle, invocation, held)
        return context.run(self.awaited, invocation, held)

    def awaited(self, invocation: Invocation, held: TaskLease) -> Outcome:
        """Runs a coroutine function on this thread's loop. Never raises."""
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
            self._runner.run(handled())
        except BaseException as error:
            # Not what the handler raised, but what it left on the loop: a task that raised
            # SystemExit, a stop, a cancellation that came too late.
            early = bool(found)
            self.close()
            # One that was cancelled by that has failed for what ended the loop.
            if not early and not (found and found[0].how == "ack"):
                return judge(invocation.retry, held, error)
        return found[0]

    def close(self) -> None:
        """Closes the loop, if there is one; the next coroutine function has another. What still
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
