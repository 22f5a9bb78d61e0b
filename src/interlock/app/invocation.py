"""From a message to the call of a function: what a worker asks of an app."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from interlock.app import envelope
from interlock.app.late import Pools
from interlock.app.lifespan import Lifespan
from interlock.app.middleware import Handling, Hooks
from interlock.app.row import ROW, AnyOutbox
from interlock.app.run import Run
from interlock.client.wire.records import NewKeys
from interlock.errors import PayloadError
from interlock.failure import Expired
from interlock.retry import Retry
from interlock.worker.message.execution import Invocation, RunProgress, TaskLease
from interlock.worker.message.scope import Scope
from interlock.worker.message.tasks import NotHere, PlainCall, UnknownTask, head

if TYPE_CHECKING:
    from interlock.app.task import AsyncTask, Task

__all__ = ["AppTasks"]


class AppTasks:
    """The tasks of an app, as a worker sees them."""

    def __init__(
        self,
        tasks: dict[str, Any],
        hooks: Hooks,
        retry: Retry,
        lifespan: Lifespan,
        setup: Callable[[str], object],
        pools: Pools,
        outbox: AnyOutbox | None = None,
    ) -> None:
        self._setup, self._pools, self._outbox = setup, pools, outbox
        self._pool: int | None = None
        """The number of the process pool, while it runs."""
        self._lifespan = lifespan
        self._tasks = tasks
        self._hooks = hooks
        self._retry = retry
        self._plain: dict[bytes, PlainCall] = {}

    def prepare(self, lease: TaskLease) -> Invocation:
        """See ``interlock.worker.message.tasks.Tasks``."""
        read = envelope.read(lease.payload)
        lease.task = read.task
        task = self._tasks.get(read.task)
        if task is None:
            raise UnknownTask(read.task)
        parameters = task.parameters
        # The common case, inlined.
        if read.kwargs or not parameters.fewest <= len(read.args) <= parameters.most:
            parameters.check(read.args, read.kwargs)
        if (read.headers and ROW in read.headers) or task.declared.transaction is not None:
            outbox = task.declared.transaction or self._outbox
            if outbox is None:
                raise NoOutbox
            found: Invocation = outbox.invocation(task, self._hooks, self._retry, lease, read)
            return found
        if task.declared.run is not None:
            return RunInvoked(task, self._hooks, self._retry, lease, read)
        return Invoked(task, self._hooks, self._retry, lease, read)

    def takes_runs(self, queue: str) -> bool:
        """See ``interlock.worker.message.tasks.Tasks``."""
        declared = [task.declared for task in self._tasks.values()]
        return any(one.run is not None and one.queue == queue for one in declared)

    def keys_of(self, payload: bytes) -> NewKeys:
        """See ``interlock.worker.message.tasks.Tasks``."""
        read = envelope.read(payload)
        task = self._tasks.get(read.task)
        if task is None:
            raise UnknownTask(read.task)
        call = task.types.decode(read)
        found: NewKeys = task._handled_as(call.args, call.kwargs)
        return found

    @property
    def plain(self) -> dict[bytes, PlainCall]:
        """See ``interlock.worker.message.tasks.Tasks``."""
        return _NONE if self._hooks.handling else self._plain

    def scope(self, worker: bool, process: bool) -> Scope | None:
        """See ``interlock.worker.message.tasks.Tasks``."""
        return self._lifespan.scope(worker, process)

    def process_setup(self, reference: str) -> bytes:
        """See ``interlock.worker.message.tasks.Tasks``."""
        # First, so that additions of other threads are either included or refused.
        self._pool = self._pools.begin()
        try:
            return pickle.dumps(self._setup(reference))
        except BaseException:
            self.processes_end()
            raise

    def processes_end(self) -> None:
        """See ``interlock.worker.message.tasks.Tasks``."""
        if self._pool is not None:
            self._pools.end(self._pool)

    def learn(self, invocation: Invoked, payload: bytes) -> None:
        """See ``interlock.worker.message.tasks.Tasks``."""
        task, sent = invocation._task, invocation._read
        declared, count = task.declared, len(sent.args)
        if declared.transaction is not None or declared.run is not None:
            return
        if declared.timeout is not None or declared.result_ttl > 0 or sent.kwargs:
            return
        begins = head(payload)
        if not begins or begins != envelope.plain_head(task.name, count):
            return
        decode = task.types.placed(count)
        if decode is not None and task.parameters.fewest <= count <= task.parameters.most:
            self._plain[begins] = PlainCall(
                task.function, decode, len(begins) - 1, invocation.retry, task.name, task.is_async
            )


_NONE: dict[bytes, PlainCall] = {}


class NoOutbox(NotHere):
    """The message has a row in an outbox, and the app here has no outbox."""

    def __init__(self) -> None:
        super().__init__("was sent through an outbox, which the app of this worker does not have")


class Invoked:
    """One call of a task."""

    __slots__ = (
        "_function", "_hooks", "_lease", "_read", "_task", "is_async", "retry", "task", "timeout",
    )  # fmt: skip

    _before_put = 0.0
    """Seconds between the send and the put."""

    def __init__(
        self,
        task: Task[Any, Any] | AsyncTask[Any, Any],
        hooks: Hooks,
        retry: Retry,
        lease: TaskLease,
        read: envelope.Envelope,
    ) -> None:
        self._task, self._hooks, self._lease, self._read = task, hooks, lease, read
        self._function: Callable[..., Any] = task.function
        self.task = task.name
        self.timeout = task.declared.timeout if read.timeout is None else read.timeout
        self.retry = task.declared.retry or retry
        self.is_async = task.is_async

    def run(self) -> bytes | None:
        """Call the function between the hooks."""
        self._check_expiry()
        if not self._hooks.around(self._read.headers):
            call = self.call
            return self._kept(self._function(*call.args, **call.kwargs))
        handling = self._handling()
        try:
            self._hooks.before("before_handle", handling)
            result = self._function(*handling.args, **handling.kwargs)
            kept = self._kept(result)
        except BaseException as error:
            self._hooks.after_handling("on_error", handling, error)
            raise
        self._hooks.after_handling("after_handle", handling, result)
        return kept

    async def arun(self) -> bytes | None:
        """Call and await it between the hooks."""
        self._check_expiry()
        if not self._hooks.around(self._read.headers):
            call = self.call
            return self._kept(await self._function(*call.args, **call.kwargs))
        handling = self._handling()
        try:
            self._hooks.before("before_handle", handling)
            result = await self._function(*handling.args, **handling.kwargs)
            kept = self._kept(result)
        except BaseException as error:
            self._hooks.after_handling("on_error", handling, error)
            raise
        self._hooks.after_handling("after_handle", handling, result)
        return kept

    @property
    def call(self) -> envelope.Call:
        """The arguments, decoded. Raises PayloadError."""
        return self.sent

    @property
    def sent(self) -> envelope.Call:
        """The arguments as they were sent. Raises PayloadError."""
        return self._task.types.decode(self._read)

    def handled(self, ended: bool) -> list[tuple[TaskLease, envelope.Call]]:
        """Return the messages that are done, and their arguments; ``ended``: it has returned."""
        return [(self._lease, self.call)] if ended else []

    def _check_expiry(self) -> None:
        """Raise Expired if the message's time is over; see ``_check_age``."""
        self._check_age(self._lease, self._read)

    def _check_age(self, lease: TaskLease, read: envelope.Envelope) -> None:
        """Raise Expired if a message's time is over by the engine's clock: an id is the time of
        the put, in µs. The time that it waited here, leased ahead, is added."""
        limit = read.expires
        if limit is None:
            return
        age = self._before_put + (lease._leased_at - lease.id) / 1e6
        if lease._received is not None:
            age += time.monotonic() - lease._received
        if age > limit:
            raise Expired(f"sent {age:.3g} s ago, and had to start within {limit:.3g} s")

    def _handling(self) -> Handling:
        call = self.call
        engine = self._task._app._named() or ""
        return Handling(
            self.task, self._lease, call.args, call.kwargs, self._read.headers, engine=engine
        )

    def _kept(self, result: Any) -> bytes | None:
        if self._task.declared.result_ttl > 0:
            return envelope.encode_result(self.task, result)
        return None


class RunInvoked(Invoked):
    """One call of a task that takes runs, for all messages of a run."""

    __slots__ = ("_progress", "_run")

    def __init__(
        self,
        task: Any,
        hooks: Hooks,
        retry: Retry,
        lease: TaskLease,
        read: envelope.Envelope,
    ) -> None:
        super().__init__(task, hooks, retry, lease, read)
        self._run: Run[Any] | None = None
        if lease.run is None:
            # A message without others.
            lease.run = RunProgress()
        # Its own: after a timeout the lease no longer has it.
        self._progress = lease.run

    def run(self) -> bytes | None:
        """See ``Invoked``."""
        if self._items:
            super().run()
        self._progress.finish()
        self._progress.end()
        return None

    async def arun(self) -> bytes | None:
        """See ``Invoked``."""
        if self._items:
            await super().arun()
        self._progress.finish()
        self._progress.end()
        return None

    @property
    def call(self) -> envelope.Call:
        """The list, as the only argument. Raises PayloadError."""
        return envelope.Call((self._items,))

    @property
    def _items(self) -> Run[Any]:
        if self._run is None:
            self._run = self._gathered()
        return self._run

    def _gathered(self) -> Run[Any]:
        """Decode the messages; the list ends before one that cannot be decoded, which is then
        leased by itself. Raises PayloadError for the first."""
        progress = self._progress
        items: list[Any] = []
        places: list[int] = []
        messages = [self._lease, *progress.riders]
        for at, lease in enumerate(messages):
            try:
                read = self._read if at == 0 else self._read_rider(lease)
                self._check_age(lease, read)
                call = self._task.types.decode(read)
                items.extend((*call.args, *call.kwargs.values()))
                places.append(at)
            except Expired as expired:
                progress.expired[at] = str(expired)
            except (NotHere, PayloadError):
                if at == 0:
                    raise
                progress.cut(at)
                break
        progress.gathered(places)
        return Run._of(items, [messages[at] for at in places], places, progress)

    def _read_rider(self, lease: TaskLease) -> envelope.Envelope:
        read = envelope.read(lease.payload)
        if read.task != self.task:
            raise NotHere(f"calls the task {read.task!r}")
        self._task.parameters.check(read.args, read.kwargs)
        lease.task = read.task
        return read

    def handled(self, ended: bool) -> list[tuple[TaskLease, envelope.Call]]:
        """See ``Invoked``; those that were reported as done, if the handler has raised."""
        if self._run is None:
            # Its first message cannot be decoded.
            return []
        count = len(self._run) if ended else self._progress.reported or 0
        each = list(zip(self._run.messages, self._run, strict=True))
        return [(lease, envelope.Call((item,))) for lease, item in each[:count]]

    def _check_expiry(self) -> None:
        """Each message was checked by itself."""
