"""``App``: tasks that are declared in one place, sent from anywhere, and handled by workers."""

from __future__ import annotations

import datetime as dt
import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Self, TypeVar, overload

from interlock.app import reach
from interlock.app.invocation import AppTasks
from interlock.app.keyspec import KeySpec
from interlock.app.late import Pools
from interlock.app.lifespan import Lifespan
from interlock.app.middleware import AROUND_SENDS, Hooks
from interlock.app.options import checked
from interlock.app.place import NoPlace, place_for_pool
from interlock.app.reach import Reach, check_engine
from interlock.app.row import AnyOutbox
from interlock.app.task import (
    AsyncTask,
    RunDecorator,
    Task,
    TaskDecorator,
    TransactionDecorator,
    decorator,
)
from interlock.app.timetable import Args, Cron, Every, Kwargs, Missed, Schedule, Timetable
from interlock.app.timetable.declaration import decorator as timetable_decorator
from interlock.errors import EngineUnavailable
from interlock.retry import Retry, Seconds, seconds
from interlock.runtime.concurrency import Behind

if TYPE_CHECKING:
    from interlock.client.wire.functions import DeclaredOptions
    from interlock.worker.harness.worker import TestWorker
    from interlock.worker.worker import Worker

__all__ = ["App"]

P = ParamSpec("P")
R = TypeVar("R")
H = TypeVar("H", bound=Callable[..., object])
T = TypeVar("T", bound=Task[..., Any] | AsyncTask[..., Any])

_DEFAULT_RETRY = Retry()


class App:
    """Tasks, and the engine through whose queues they are sent.

    Args:
        url: the engine, as ``interlock.connect`` takes it. Default: INTERLOCK_URL, else
            ``memory://`` for a worker of this app in the same process; without one a send is
            refused then.
        retry: the retry policy of tasks without one of their own. Default: what the queue was
            declared with, ``Retry()`` unless another policy was declared.
        send_timeout: seconds for which a send waits, for room and for the engine together.
            Default 5.
        linger: seconds that a send waits for others; see ``Client.queue``. Default 0.
        queues: options of queues by their names, as ``Client.queue`` takes them: those of
            ``DeclaredOptions``, such as ``maxsize`` and ``retry``. They are declared with the first
            send or by the first worker; OptionsMismatch is raised then if the queue has others.
            Default: none.
        audit: check order, overlap and attempts, as ``interlock worker --audit``. Default False.
        lifespan: resources made before the first handler of a process and released after its last;
            see ``App.lifespan``. Default: nothing.

    Nothing is connected before the first send. An app may be used from any thread, and on any
    event loop. As a context manager it closes its connections at the end.
    """

    _made: ClassVar[weakref.WeakSet[App]] = weakref.WeakSet()
    """The apps of this process."""

    def __init__(
        self,
        url: str | None = None,
        *,
        retry: Retry = _DEFAULT_RETRY,
        send_timeout: Seconds = 5,
        linger: Seconds = 0,
        queues: Mapping[str, DeclaredOptions] | None = None,
        audit: bool = False,
        lifespan: Callable[[Any], object] | None = None,
    ) -> None:
        if url is not None and not isinstance(url, str):
            raise TypeError(f"App(): url is {type(url).__name__}; allowed: str")
        if not isinstance(retry, Retry):
            raise TypeError(f"App(): retry is {type(retry).__name__}; allowed: Retry")
        self.url = url
        """The engine; may be set until the first send."""
        self.retry = retry
        self.send_timeout = seconds(send_timeout, "App(): send_timeout")
        self._linger = seconds(linger, "App(): linger")
        self._made_with = (self.url, self.retry, self.send_timeout)
        self._was_set_up = False
        """True in a process of a pool, once it has the settings of the worker's program."""
        self.queues = MappingProxyType(checked(queues or {}))
        """The declared options of queues by the queues' names."""
        self.audit = bool(audit)
        self._tasks: dict[str, Any] = {}
        self.timetable = Timetable(self)
        """The entries of ``cron`` and ``every`` by their names; stores others at run time."""
        self._hooks = Hooks()
        self._lifespan = Lifespan(self)
        if lifespan is not None:
            self._lifespan.set(lifespan)
        self._lock = threading.RLock()
        self._client: Any = None
        self._queues: dict[str, Any] = {}
        self._sent_to: dict[str, Any] = {}
        self._reach: Reach | None = None
        self._has_worker = False
        self._pools = Pools()
        self._outbox: AnyOutbox | None = None
        self._tested_by: TestWorker | None = None
        """Handles messages immediately when they are sent."""
        self._made_in = str(sys._getframe(1).f_globals.get("__name__", ""))
        """The module that made the app, where other processes look for it first."""
        self._made.add(self)

    @property
    def tasks(self) -> Mapping[str, Task[..., Any] | AsyncTask[..., Any]]:
        """The tasks by their names."""
        return MappingProxyType(self._tasks)

    @overload
    def task(  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self, fn: None = None, /, *, transaction: AnyOutbox, name: str | None = None,
        keys: KeySpec = (), shared: KeySpec = (), limit: KeySpec = (), group: KeySpec = (),
        behind: Behind | None = None,
        queue: str = "default", retry: Retry | None = None, timeout: Seconds | None = None,
        result_ttl: Seconds = 0, quiet: bool = False, priority: int = 0, barrier: bool = False,
        expires: Seconds | None = None,
    ) -> TransactionDecorator: ...  # fmt: skip
    @overload
    def task(
        self, fn: None = None, /, *, run: int, keys: KeySpec = (), shared: KeySpec = (),
        name: str | None = None, limit: KeySpec = (), group: KeySpec = (),
        behind: Behind | None = None, queue: str = "default", retry: Retry | None = None,
        timeout: Seconds | None = None, quiet: bool = False, priority: int = 0,
        expires: Seconds | None = None,
    ) -> RunDecorator: ...  # fmt: skip
    @overload
    def task(
        self, fn: None = None, /, *, name: str | None = None,
        keys: KeySpec = (), shared: KeySpec = (), limit: KeySpec = (), group: KeySpec = (),
        behind: Behind | None = None, queue: str = "default", retry: Retry | None = None,
        timeout: Seconds | None = None, result_ttl: Seconds = 0, quiet: bool = False,
        priority: int = 0, barrier: bool = False, expires: Seconds | None = None,
        coalesce: KeySpec = (), debounce: Seconds | None = None, longest: Seconds | None = None,
    ) -> TaskDecorator: ...  # fmt: skip
    def task(
        self,
        fn: Any = None,
        /,
        *,
        name: str | None = None,
        keys: KeySpec = (),
        shared: KeySpec = (),
        limit: KeySpec = (),
        group: KeySpec = (),
        behind: Behind | None = None,
        queue: str = "default",
        retry: Retry | None = None,
        timeout: Seconds | None = None,
        result_ttl: Seconds = 0,
        quiet: bool = False,
        priority: int = 0,
        barrier: bool = False,
        expires: Seconds | None = None,
        transaction: AnyOutbox | None = None,
        coalesce: KeySpec = (),
        debounce: Seconds | None = None,
        longest: Seconds | None = None,
        run: int | None = None,
    ) -> Any:
        """Make a task of a function, or of a coroutine function.

        Write ``@app.task(keys=...)``, or ``@app.task`` for one with all defaults.

        Args:
            name: the task's name on the wire, unique. Default: the function's name.
            keys: keys that a call holds alone: a template such as ``"account:{src}"``, several of
                them, or a callable of the task's arguments. Templates are checked against the
                function here.
            shared: keys that it holds together with other readers, given in the same way.
            limit: names of limits or rates, given in the same way: ``"tenant:{tenant}"``.
            group: its group, given in the same way: messages of different groups take turns.
            behind: what happens to a call while it waits on a key behind one that is held:
                ``"wait"``, ``"bury"``, ``"cancel"`` or ``"park"``. Default: what the queue says.
            queue: the queue's name. Tasks that depend on each other's order share one.
            retry: its own retry policy. Default: the app's.
            timeout: seconds after which a handler's lease is revoked and its stack logged. Default:
                none; the lease is extended for as long as the handler runs.
            result_ttl: seconds for which ``Job.result`` finds its return value. Default 0: not.
            quiet: leave its messages out of the debug log of handled messages. Default False.
            priority: -100 to 100, for calls without one of their own; see ``put``. Default 0.
            barrier: each call runs alone in its queue, and has no keys. Default False.
            expires: seconds after the send after which the message is dropped. Default: never.
            transaction: an ``interlock.outbox.Outbox``: the function takes a connection first,
                with an open transaction in which the call's row was deleted. Default: none.
            coalesce: a name, given as a key and one of the keys: while the newest call with it is
                not handled, a send replaces its arguments. No barrier, dedup string or outbox.
            debounce, longest: seconds after the last send of a name until its call takes its place,
                and after the first send at most. Default: none.
            run: 2 to 1,024; the function takes a ``Run``: up to this many calls with the same keys
                that follow each other on all of them. No barrier, coalescing, result or outbox.

        Raises:
            TypeError, ValueError: an argument is of a wrong type or out of its range, a template
                names what the function does not take, or there is a task of this name.
        """
        made = decorator(
            self, name=name, keys=keys, shared=shared, limit=limit, group=group,
            behind=behind, queue=queue, retry=retry, timeout=timeout, result_ttl=result_ttl,
            quiet=quiet, priority=priority, barrier=barrier, expires=expires,
            transaction=transaction, coalesce=coalesce, debounce=debounce, longest=longest, run=run,
        )  # fmt: skip
        return made if fn is None else made(fn)

    def cron(
        self,
        expression: str,
        *,
        tz: str = "UTC",
        missed: Missed = "once",
        name: str | None = None,
        args: Args = (),
        kwargs: Kwargs = MappingProxyType({}),
        copies: int | None = None,
    ) -> Callable[[T], T]:
        """Call a task at times of the day: ``@app.cron("0 3 * * *")`` above ``@app.task``.

        Any worker that takes from the task's queue sends the call, once a tick. A task may have
        several entries.

        Args:
            expression: minute, hour, day of the month, month, day of the week; with an optional
                field for the second before them. Or a nickname: @hourly, @daily, @weekly, @monthly,
                @yearly.
            tz: the time zone of the expression, such as ``"Europe/Berlin"``. Default UTC. A time
                that daylight saving skips is moved to the end of the gap; a time that it repeats
                counts only the first time. With ``*`` or ``*/n`` as minute or hour, elapsed time
                counts.
            missed: policy for ticks at which no worker ran: ``"once"`` sends one call for all of
                them, for the last one, ``"all"`` one for each, the last 1,000 at most; ``"skip"``
                drops them if the last one is more than a minute old. Default ``"once"``.
            name: name of the entry, up to 200 bytes. Default: the task's name.
            args, kwargs: the arguments of the call; or functions that are called with the time of
                the tick, a ``datetime`` in ``tz``, and return them. Default: none.
            copies: maximum calls of the entry that may be unsettled at once, 1 to 100: a tick for
                which there is no room is left out. Default None: no maximum.

        Raises:
            TypeError, ValueError: an argument is of a wrong type or out of its range, the task does
                not take these arguments, or there is an entry of this name.
        """
        return self._at(Cron(expression, tz), "cron()", missed, name, args, kwargs, copies)

    def every(
        self,
        period: Seconds | str,
        *,
        missed: Missed = "once",
        name: str | None = None,
        args: Args = (),
        kwargs: Kwargs = MappingProxyType({}),
        copies: int | None = None,
    ) -> Callable[[T], T]:
        """Call a task at a fixed interval: ``@app.every("15m")`` above ``@app.task``.

        Ticks are counted from 1970, UTC, not from the worker's start: ``"15m"`` is every quarter of
        an hour, ``"1d"`` midnight UTC.

        Args:
            period: whole seconds, 1 or more; a number, a ``timedelta`` or a text with the units w,
                d, h, m and s, such as ``"1h30m"``.
            missed, name, args, kwargs, copies: as for ``cron``; the tick's time is in UTC.

        Raises:
            TypeError, ValueError: as ``cron``.
        """
        return self._at(Every(period), "every()", missed, name, args, kwargs, copies)

    def _at(self, schedule: Schedule, call: str, missed: Missed, name: str | None, args: Args,
            kwargs: Kwargs, copies: int | None) -> Callable[[T], T]:  # fmt: skip
        declared = self.timetable.declared
        return timetable_decorator(call, declared, schedule, missed, name, args, kwargs, copies)

    def use(self, middleware: object) -> None:
        """Add all hooks that an object has as methods; see ``Middleware``.

        Raises RuntimeError while a worker of this app runs with ``pool="process"``, as do the
        decorators of tasks, hooks and the lifespan: its processes would not receive them. Hooks of
        sends are also refused while such a worker of another app runs, because its handlers may
        send through this app.
        """
        self._pools.check("use()", sends=any(hasattr(middleware, name) for name in AROUND_SENDS))
        self._hooks.use(middleware)

    def before_send(self, hook: H) -> H:
        """Add a hook: ``hook(sending)``, before a call is sent."""
        return self._hook("before_send", hook)

    def after_send(self, hook: H) -> H:
        """Add a hook: ``hook(sending, job)``, after a call was sent."""
        return self._hook("after_send", hook)

    def on_send_error(self, hook: H) -> H:
        """Add a hook: ``hook(sending, error)``, after a call could not be sent."""
        return self._hook("on_send_error", hook)

    def before_handle(self, hook: H) -> H:
        """Add a hook: ``hook(handling)``, before a handler runs."""
        return self._hook("before_handle", hook)

    def after_handle(self, hook: H) -> H:
        """Add a hook: ``hook(handling, result)``, after a handler has returned."""
        return self._hook("after_handle", hook)

    def on_error(self, hook: H) -> H:
        """Add a hook: ``hook(handling, error)``, after a handler has raised."""
        return self._hook("on_error", hook)

    def lifespan(self, function: H) -> H:
        """Set the lifespan: resources made before the first handler of a process and released after
        its last.

        Above a generator function of the app, asynchronous or not: it makes the resources that
        handlers need, yields them, and releases them. The yielded value is available as ``state``
        meanwhile. It runs once in each process that has handlers, on the loop of ``pool="asyncio"``
        or of the process of ``pool="process"``, else on its own loop. An exception that it raises
        before it yields is raised by ``Worker.start``; `interlock worker` then ends with an error
        and never becomes ready.

        Raises:
            TypeError: it is not a function of one argument.
            ValueError: the app has one already.
        """
        self._pools.check("lifespan()")
        self._lifespan.set(function)
        return function

    @property
    def state(self) -> Any:
        """The value that the lifespan yielded in this process.

        Raises RuntimeError while no worker of this app runs here.
        """
        return self._lifespan.state

    def on_worker_start(self, hook: H) -> H:
        """Add a hook: ``hook()``, before a worker takes its first message.

        It may be a coroutine function, as the three below. An exception that it raises stops the
        worker.
        """
        self._lifespan.add("on_worker_start", hook)
        return hook

    def on_worker_stop(self, hook: H) -> H:
        """Add a hook: ``hook()``, when a worker has settled its last message."""
        self._lifespan.add("on_worker_stop", hook)
        return hook

    def on_process_start(self, hook: H) -> H:
        """Add a hook: ``hook()``, before the first handler of each process.

        That is the worker's own process, or with ``pool="process"`` each one of the pool.
        """
        self._pools.check("on_process_start()")
        self._lifespan.add("on_process_start", hook)
        return hook

    def on_process_stop(self, hook: H) -> H:
        """Add a hook: ``hook()``, after the last handler of each process that is not killed."""
        self._pools.check("on_process_stop()")
        self._lifespan.add("on_process_stop", hook)
        return hook

    def worker(
        self,
        *,
        threads: int | None = None,
        queues: Iterable[str] | None = None,
        pool: str = "thread",
        unkeyed: int = 0,
        audit: bool | None = None,
        timetable: bool = True,
    ) -> Worker:
        """Return a worker in this process, which runs from ``start`` or ``with`` until ``stop``.

        Args:
            threads: number of handlers that run at once. Default 16; with ``pool="process"`` the
                number of cores.
            queues: the queues that it leases from. Default: all queues of the app's tasks, as they
                are declared now.
            pool: where they run: ``"thread"``, ``"asyncio"`` (tasks of one event loop, on a thread
                of its own) or ``"process"`` (processes, one handler each; they import this app).
            unkeyed: number of handlers that take only messages without keys, so that such messages
                always find a free one. Default 0. Fewer than ``threads``.
            audit: see ``App``. Default: as the app says.
            timetable: send the calls of ``cron`` and ``every`` of tasks on these queues. Default
                True.
        """
        if queues is None:
            queues = sorted({task.declared.queue for task in self._tasks.values()}) or ["default"]
        if not isinstance(queues, Iterable):
            raise TypeError(
                f"worker(): queues is {type(queues).__name__}; allowed: the names of queues"
            )
        return self._worker(
            queues=(queues,) if isinstance(queues, str) else tuple(queues),
            concurrency=threads,
            pool=pool,
            unkeyed=unkeyed,
            audit=self.audit if audit is None else audit,
            reference=self._reference() if pool == "process" else "",
            timetable=timetable,
        )

    def testing(self, *, start: dt.datetime | None = None, eager: bool = False) -> TestWorker:
        """Return a worker for tests; see ``TestWorker``.

        It runs on ``memory://``, with a clock that does not move.

        While it is used as a context manager, this app's sends go there.

        Args:
            start: initial time of its clock, for timetables. Default: 1970.
            eager: a send handles the ready messages immediately, for code that awaits the results
                of its sends. Exceptions of handlers are not raised by the send: they are in
                ``errors``, and are raised as JobFailed where the result is awaited. Default False.
        """
        from interlock.app.timetable.testing import TestedTimetable
        from interlock.worker.harness.worker import TestWorker

        at = 0.0 if start is None else start.timestamp()
        return TestWorker(self, at, TestedTimetable(self), eager)

    def close(self) -> None:
        """Close the connections; the next send makes new ones."""
        with self._lock:
            client, self._client = self._client, None
            reach, self._reach = self._reach, None
            self._queues.clear()
            self._sent_to.clear()
        if reach is not None:
            reach.close()
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Close as ``close`` does, and also what ``asend`` and ``aresult`` hold on the running
        loop."""
        client = self._client
        if client is not None:
            await client.aio.close()
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        where = f" on {self.url}" if self.url else ""
        return f"<{type(self).__name__} of {len(self._tasks)} tasks{where}>"

    def _worker(self, **settings: Any) -> Worker:
        from interlock.app.workers import make

        return make(self, **settings)

    def _reference(self) -> str:
        """Return the name by which processes of a pool find this app."""
        try:
            return place_for_pool(self)
        except NoPlace as error:
            raise ValueError(f"worker(): pool is 'process', but {error}") from None

    def _hook(self, name: str, hook: H) -> H:
        self._pools.check(f"{name}()", sends=name in AROUND_SENDS)
        self._hooks.add(name, hook)
        return hook

    def _add(self, task: Any) -> None:
        known = self._tasks.get(task.name)
        if known is not None:
            raise ValueError(
                f"task(): {task.name!r} is already the name of "
                f"{known.function.__module__}.{known.function.__qualname__}(); give one of them "
                "name="
            )
        self._pools.check(f"task(): {task.name!r}")
        self._tasks[task.name] = task

    def _as_tasks(self) -> AppTasks:
        from interlock.app.process_setup import setup_of

        setup = functools.partial(setup_of, self)
        return AppTasks(self._tasks, self._hooks, self.retry, self._lifespan, setup, self._pools,
                        self._outbox)  # fmt: skip

    @property
    def _sent_retry(self) -> Retry | None:
        """Return the policy that a put carries: None if the queue's own applies."""
        return None if self.retry is _DEFAULT_RETRY else self.retry

    @property
    def _was_changed(self) -> bool:
        return (self.url, self.retry, self.send_timeout) != self._made_with

    def _named(self) -> str | None:
        """Return the engine's URL as it was given; None if none was given."""
        if reach.others and not self._was_set_up:
            from interlock.app.process_setup import set_up

            set_up(self)
        return self.url or os.environ.get("INTERLOCK_URL") or None

    def _queue_to_send(self, name: str) -> Any:
        """Return the queue of a task that is being sent.

        Raises EngineUnavailable if no worker could ever handle it.
        """
        found = self._sent_to.get(name)
        if found is not None:
            return found
        queue = self._queue(name)
        with self._lock:
            if self._reach is None:
                try:
                    self._reach = Reach(self, self._client, self._named(), self._has_worker)
                except EngineUnavailable:
                    # `url` may be set before the next send.
                    self.close()
                    raise
            self._reach.sent(name)
            self._sent_to[name] = queue
        return queue

    def _queue(self, name: str) -> Any:
        found = self._queues.get(name)
        if found is not None:
            return found
        with self._lock:
            if name not in self._queues:
                self._queues[name] = self._open(name, linger=self._linger)
            return self._queues[name]

    def _open(self, name: str, **options: Any) -> Any:
        """Return a separate handle, which can be closed without the others."""
        with self._lock:
            if self._client is None:
                from interlock.client.faces.client import connect

                check_engine(self._named() or "memory://")
                # A named engine in memory reports unhandled messages itself.
                self._client = connect(self._named() or "memory://")
            return self._client.queue(name, bytes, **self.queues.get(name, {}), **options)

    def _url_in_use(self) -> str:
        """Return the URL that sends go to, without a password."""
        client = self._client
        return str(self.url or "memory://") if client is None else str(client.url)

    def _redirected(self, client: Any) -> Any:
        """Send through this client from now on; return the previous one. Neither is closed."""
        with self._lock:
            before, self._client = self._client, client
            self._queues.clear()
            self._sent_to.clear()
            self._reach = None
            return before
