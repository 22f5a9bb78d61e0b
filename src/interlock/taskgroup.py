"""``KeyedTaskGroup``: an ``asyncio.TaskGroup`` whose tasks carry keys."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import types
from collections.abc import Coroutine, Generator, Iterable
from typing import Any, TypeVar

from interlock import _core
from interlock.errors import LeaseLost, ShutDown, WouldDeadlock
from interlock.message import AsyncLease, Keys, _current
from interlock.queue import KeyedQueue
from interlock.retry import Retry
from interlock.runtime.concurrency import Limits, Names

__all__ = ["KeyedTaskGroup"]

T = TypeVar("T")

_Turn = asyncio.Future[AsyncLease[Any]]


class KeyedTaskGroup(asyncio.TaskGroup):
    """An ``asyncio.TaskGroup`` that starts a coroutine when its turn has come.

    As in asyncio, the first task that fails cancels all others of the group, including those that
    wait for their turn. Coroutines that share a key run in the order of ``create_task`` and never
    at the same time; everything else runs concurrently.

    Args:
        max_tasks: maximum concurrent coroutines. Default: no maximum.
        limits: concurrency limits and rates: how many tasks of a name, or of each name with a
            prefix (``tenant:*``), may run at once, or start in a time (``Rate``). Default: none.
            ``queue.configure`` changes them.

    A task that awaits another one that waits for it (behind its key, directly or by way of others,
    for a slot of a limit, or for its place among ``max_tasks``) gets ``WouldDeadlock`` from its
    ``await``. That is detected where it awaits the task itself or a ``gather``, not in
    ``asyncio.wait``, nor on an event.

    ``queue`` is the underlying queue, for ``explain``, ``stats``, ``pause`` and an operator's other
    calls. ``revoke`` frees the keys of a task, which keeps running.
    """

    def __init__(self, *, max_tasks: int | None = None, limits: Limits | None = None) -> None:
        if max_tasks is not None:
            if not isinstance(max_tasks, int) or isinstance(max_tasks, bool):
                given = type(max_tasks).__name__
                raise TypeError(f"KeyedTaskGroup(): max_tasks is {given}; allowed: int")
            if max_tasks < 1:
                raise ValueError(
                    f"KeyedTaskGroup(): max_tasks is {max_tasks}; allowed: 1 or more, or None"
                )
        super().__init__()
        self._max_tasks = max_tasks
        self._running = 0
        self._waiting = 0
        # A revoked task has had its turn: its message is redelivered immediately, to be settled.
        self.queue: KeyedQueue[_Turn] = _Turns(retry=Retry(attempts=None, first=0), limits=limits)
        self.queue._keep_no_dead_letters()
        self._looks: _Looks | None = None
        self._ids: dict[asyncio.Future[Any], int] = {}
        self._awaited: dict[int, list[asyncio.Future[Any]]] = {}

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        keys: Keys = (),
        shared: Keys = (),
        limit: Names | None = None,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        """Return a task that runs ``coro`` when no earlier task conflicts, within the limits.

        Args:
            keys, shared: keys it holds alone, and those it shares with others.
            limit: names of concurrency limits, each of which must have room for it to start.
            name, context: as in ``asyncio``. In a context that several tasks share,
                ``current_lease()`` is that of the one that started last.
            options: further arguments of ``asyncio.TaskGroup.create_task`` (``eager_start``, from
                3.14).

        Raises:
            TypeError, ValueError: a key or a limit name has a wrong type, or is empty or too long.
            RuntimeError: the group is not entered, or is shutting down.
        """
        if not asyncio.iscoroutine(coro):
            raise TypeError(f"create_task(): coro is {type(coro).__name__}; allowed: a coroutine")
        try:
            turn: _Turn = asyncio.get_running_loop().create_future()
            if self._looks is None:
                self._looks = _Looks(self)
            self._looks.stop()
            id = self.queue.put(turn, keys=keys, shared=shared, limit=limit)
        except BaseException as error:
            coro.close()
            if isinstance(error, ShutDown):
                raise RuntimeError(
                    f"{self!r} takes no more tasks: its queue is shut down"
                ) from None
            raise
        self._waiting += 1
        # Before the task is made: if its turn is now, it need not wait.
        self._start()
        runner = self._run(coro, turn, id)
        _name_after(runner, coro)
        try:
            task = super().create_task(runner, name=name, context=context, **options)
        except BaseException:
            runner.close()
            self._gone(coro, turn, id)
            raise
        self._ids[task] = id
        # A task cancelled before its first step never runs a line of ``_run``.
        task.add_done_callback(lambda task: self._gone(coro, turn, id, task))
        return task

    async def _run(self, coro: Coroutine[Any, Any, T], turn: _Turn, id: int) -> T:
        token = _current.set(await turn)
        try:
            return await self._drive(coro, id)
        finally:
            # A task whose loop was closed is ended by the collector, in a foreign context.
            with contextlib.suppress(ValueError):
                _current.reset(token)

    @types.coroutine
    def _drive(self, coro: Coroutine[Any, Any, T], id: int) -> Generator[Any, Any, T]:
        # As ``await coro``, but everything it waits for passes through here.
        step: Any = coro.send
        value: Any = None
        while True:
            try:
                awaited = step(value)
            except StopIteration as stop:
                result: T = stop.value
                return result
            finally:
                value = None
            tasks = self._unfinished(awaited) if awaited is not None else None
            if tasks:
                error = self._deadlock(id, tasks)
                if error is not None:
                    # Cancelled: nothing waits for it now.
                    awaited._asyncio_future_blocking = False
                    step, value = coro.throw, error
                    continue
                self._awaited[id] = tasks
            try:
                value = yield awaited
                step = coro.send
            except GeneratorExit:
                # As ``await`` does: a coroutine that the collector has closed already is not an
                # error.
                coro.close()
                raise
            except BaseException as error:
                step, value = coro.throw, error
            finally:
                if tasks:
                    del self._awaited[id]

    def _unfinished(self, awaited: Any) -> list[asyncio.Future[Any]]:
        """Return the tasks of this group that a caller waits for when it awaits this."""
        if awaited in self._ids:
            return [awaited]
        gathered: Iterable[asyncio.Future[Any]] = getattr(awaited, "_children", ())
        return [task for task in gathered if task in self._ids and not task.done()]

    def _deadlock(self, mine: int, tasks: list[asyncio.Future[Any]]) -> WouldDeadlock | None:
        queue = self.queue
        open: list[tuple[int, tuple[str, ...]]] = [(self._ids[task], ()) for task in tasks]
        seen: set[int] = set()
        others = [id for id, of in self._awaited.items() if not all(task.done() for task in of)]
        while open:
            id, before = open.pop()
            chain = queue._waits_for(id, [mine])
            if chain is not None:
                # For a task that awaits itself, asyncio raises the error.
                chain = (*before, *chain)
                if chain == (str(mine),):
                    continue
                return _would_deadlock("the task's own", chain)
            for other in others:
                chain = None if other in seen else queue._waits_for(id, [other])
                if chain is not None:
                    seen.add(other)
                    ids = self._awaited_by(other)
                    open += [(next, (*before, *chain)) for next in ids]
        if self._max_tasks is not None and len(others) + 1 >= self._max_tasks:
            return WouldDeadlock(
                f"await: all {self._max_tasks} tasks that may run at once wait for others of the "
                f"group, this one for message {self._ids[tasks[0]]}: it would never end. Await it "
                f"outside, or raise max_tasks"
            )
        chain = self._stuck(mine, [self._ids[task] for task in tasks], others)
        return None if chain is None else _would_deadlock("tasks that all wait likewise", chain)

    def _stuck(self, mine: int, ids: list[int], others: list[int]) -> tuple[str, ...] | None:
        """Return the chain by which a task waits for tasks that never end, because each waits for
        another of them or for this one: they have all slots of a limit."""
        stuck = [mine, *others]
        while (chain := self._waits_for(ids, stuck)) not in (None, (str(mine),)):
            left = [one for one in stuck if self._waits(one, mine, ids, stuck)]
            if len(left) == len(stuck):
                return chain
            stuck = left
        return None

    def _waits(self, one: int, mine: int, ids: list[int], stuck: list[int]) -> bool:
        return self._waits_for(ids if one == mine else self._awaited_by(one), stuck) is not None

    def _waits_for(self, ids: list[int], stuck: list[int]) -> tuple[str, ...] | None:
        chains = (self.queue._waits_for(id, stuck) for id in ids)
        return next((chain for chain in chains if chain is not None), None)

    def _awaited_by(self, id: int) -> list[int]:
        return [self._ids[task] for task in self._awaited[id] if not task.done()]

    def _gone(
        self,
        coro: Coroutine[Any, Any, Any],
        turn: _Turn,
        id: int,
        task: asyncio.Task[Any] | None = None,
    ) -> None:
        coro.close()
        looks = self._looks
        assert looks is not None
        looks.stop()
        if task is not None:
            del self._ids[task]
            if not self._ids:
                looks.end()
        if turn.done() and not turn.cancelled():
            self._running -= 1
            try:
                # Done when it returns; there is nothing to await.
                _ = turn.result().ack()
            except LeaseLost:
                # Revoked: it may have been redelivered.
                self.queue.cancel(id)
        else:
            self._waiting -= 1
            turn.cancel()
            self.queue.cancel(id)
        self._start()

    def _start(self) -> None:
        """Start the tasks whose turn has come."""
        looks = self._looks
        assert looks is not None
        while self._waiting and (self._max_tasks is None or self._running < self._max_tasks):
            lease = looks.look()
            if lease is None:
                return
            turn = lease.payload
            if turn.done():
                # It has had its turn, or was cancelled and its end has not been processed yet.
                _ = lease.ack()
                continue
            self._waiting -= 1
            self._running += 1
            turn.set_result(lease)


def _would_deadlock(whom: str, chain: tuple[str, ...]) -> WouldDeadlock:
    return WouldDeadlock(
        f"await: this task waits for message {chain[0]}, which waits for {whom} "
        f"({' behind '.join(chain)}): it would never end. Await it outside, or create it without "
        f"the shared key or limit"
    )


class _Turns(KeyedQueue[_Turn]):
    """A group's queue."""

    _public_name = "KeyedTaskGroup"


class _Looks:
    """Finds the tasks whose turn has come, and looks again when the queue calls.

    The queue calls when a message becomes ready other than by the end of a task: a key was resumed,
    a message revoked. (It holds the group only while some of its tasks wait.)
    """

    __slots__ = ("_alarm", "_group", "_loop", "_wait")

    def __init__(self, group: KeyedTaskGroup) -> None:
        self._group = group
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._wait = _core.Waiter(group.queue, self._called)

    def look(self) -> AsyncLease[_Turn] | None:
        lease = self._wait.get_async("any", to_the_end=True)
        if lease is None:
            left = self._wait.left
            if left is not None:
                self._wake_in(left)
        return lease

    def stop(self) -> None:
        """Ask not to be called for the group's own next actions."""
        self._wait.give_up()

    def end(self) -> None:
        """Cancel the alarm: no task is left."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _wake_in(self, seconds: float) -> None:
        # An early call finds nothing, which costs less than setting an alarm for each look.
        if self._alarm is not None:
            if self._alarm.when() <= self._loop.time() + seconds:
                return
            self._alarm.cancel()
        self._alarm = self._loop.call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._again()

    def _called(self) -> None:
        # From any thread, and from within any call into the queue.
        self._loop.call_soon_threadsafe(self._again)

    def _again(self) -> None:
        self.stop()
        self._group._start()


def _name_after(runner: Coroutine[Any, Any, Any], coro: Coroutine[Any, Any, Any]) -> None:
    # Debuggers show a task's coroutine by these names.
    for name in ("__name__", "__qualname__"):
        if hasattr(coro, name):
            setattr(runner, name, getattr(coro, name))
