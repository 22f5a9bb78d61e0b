"""A function that can be sent: ``Task``, and ``AsyncTask`` for coroutine functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    overload,
)

from interlock.app import envelope
from interlock.app.job import Job
from interlock.app.keyspec import KeySet, KeySpec, Rule, rule
from interlock.app.middleware import Sending
from interlock.app.parameters import Parameters
from interlock.app.run import Run, check_signature
from interlock.client.wire.records import Names, NewKeys
from interlock.retry import Retry, Seconds, seconds, whole
from interlock.runtime.concurrency import Behind, checked_behind, checked_run, run_text

if TYPE_CHECKING:
    from interlock.app.app import App

__all__ = ["AsyncTask", "Task", "TaskDecorator"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Declared:
    """The arguments that ``@app.task`` was given, checked."""

    name: str
    queue: str
    retry: Retry | None
    """Retry policy; None: the app's, or else the queue's."""
    timeout: float | None
    result_ttl: float
    quiet: bool = False
    priority: int = 0
    barrier: bool = False
    expires: float | None = None
    """Seconds after the send from which on no handler begins; None: never."""
    transaction: Any = None
    """The outbox in whose transactions the function runs; None: it takes no transaction."""
    debounce: float | None = None
    """Seconds after the last send of its coalescing name until a call takes its place."""
    longest: float | None = None
    """Seconds after the first send, beyond which ``debounce`` delays no call."""
    run: int | None = None
    """Number of calls that the function is given as a list; None: it is given one call."""


@dataclass(slots=True)
class Ready:
    """A checked and encoded call: its arguments can no longer cause an error."""

    payload: bytes
    sending: Sending
    options: dict[str, Any]


class _Sendable(Generic[P, R]):
    """The common part of both kinds of task."""

    def __init__(
        self,
        app: App,
        function: Callable[..., Any],
        declared: Declared,
        keys: Any,
        shared: Any,
        limit: Any = (),
        group: Any = (),
        behind: Behind | None = None,
        coalesce: Any = (),
    ) -> None:
        self.function = function
        """The function itself."""
        self.declared = declared
        self.signature = _signature(function, declared)
        self.parameters = Parameters(declared.name, self.signature)
        """Checks a call that was sent."""
        self._keys: Rule = rule("keys", keys, self.signature, function)
        self._shared: Rule = rule("shared", shared, self.signature, function)
        self._limit: Rule | None = (
            rule("limit", limit, self.signature, function) if limit != () else None
        )
        self._group: Rule | None = (
            rule("group", group, self.signature, function) if group != () else None
        )
        self._coalesce: Rule | None = (
            rule("coalesce", coalesce, self.signature, function) if coalesce != () else None
        )
        self._behind = behind
        parameters = self.signature.parameters
        kinds = {each.kind for each in parameters.values()}
        # The binding of a call with exactly these positional arguments, computed in advance.
        self._placed = tuple(parameters) if kinds <= _PLACED else None
        # The defaults of a function whose arguments may all be given either way.
        self._defaults: dict[str, Any] | None = None
        if kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}:
            self._defaults = {
                name: each.default
                for name, each in parameters.items()
                if each.default is not inspect.Parameter.empty
            }
        self._app = app
        self._options: dict[str, Any] = {}
        self._timeout: float | None = None
        self._expires = declared.expires
        functools.update_wrapper(self, function)  # type: ignore[arg-type]

    @property
    def name(self) -> str:
        """The task's name on the wire."""
        return self.declared.name

    @functools.cached_property
    def types(self) -> envelope.Types:
        """The types that arguments and result are decoded to. Resolved on first use: an annotation
        may name a class that is defined later in the module."""
        return envelope.Types(self.function, self.signature)

    def send(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Put a call into the task's queue.

        When this returns, it is stored as durably as the engine's settings provide.

        Raises:
            TypeError: the function does not take these arguments, or a key is of a wrong type.
            ValueError: a key is empty, or beyond what the engine takes.
            PayloadError: an argument cannot be encoded; it names the argument.
            Full: the queue had no room within the app's ``send_timeout``, or the engine is at its
                memory limit.
            ShutDown: the queue is sealed: it takes no puts until somebody reopens it.
            EngineUnavailable: the engine could not be reached in that time, or refuses the app's
                user; or no engine is named, and no worker runs in this process.
            InterlockError: the engine refuses the call for another reason, which it names.
        """
        ready = self._ready(args, kwargs)
        try:
            queue = self._app._queue_to_send(self.declared.queue)
            put = queue._sent(ready.payload, self._app.send_timeout, **ready.options)
        except BaseException as error:
            self._app._hooks.after("on_send_error", ready.sending, error)
            raise
        job = self._sent(ready, put)
        if self._app._tested_by is not None:
            self._app._tested_by._after_send()
        return job

    async def asend(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Do what ``send`` does, awaited."""
        ready = self._ready(args, kwargs)
        try:
            queue = self._app._queue_to_send(self.declared.queue).aio
            put = await queue._sent(ready.payload, self._app.send_timeout, **ready.options)
        except BaseException as error:
            self._app._hooks.after("on_send_error", ready.sending, error)
            raise
        job = self._sent(ready, put)
        if self._app._tested_by is not None:
            await self._app._tested_by._aafter_send()
        return job

    def options(
        self,
        *,
        delay: Seconds | None = None,
        priority: int | None = None,
        dedup: str | None = None,
        timeout: Seconds | None = None,
        quiet: bool | None = None,
        expires: Seconds | None = None,
        behind: Behind | None = None,
    ) -> Self:
        """Return the same task with options for the messages sent through it.

        Args:
            delay: seconds until the message takes its place.
            expires: seconds after the send, more than ``delay``; see ``App.task``.
            priority: -100 to 100; never changes the order on a key.
            dedup: a name; while a message of this name is unsettled or was settled within the
                queue's window, nothing is sent, and the job's ``known`` is true.
            timeout: seconds for the handler, instead of the task's own.
            quiet: leave it out of the debug log, or not, whatever the task says.
            behind: what happens to it behind a failure; see ``App.task``.
        """
        # copy.copy uses __reduce__ and would return this task itself.
        same = type(self).__new__(type(self))
        same.__dict__.update(self.__dict__)
        same._options = dict(self._options)
        given: dict[str, Any] = {"priority": priority, "dedup": dedup, "quiet": quiet}
        if delay is not None:
            given["delay"] = seconds(delay, "options(): delay")
        same._options.update({name: value for name, value in given.items() if value is not None})
        if behind is not None:
            same._behind = checked_behind(behind, "options()")
        if timeout is not None:
            same._timeout = seconds(timeout, "options(): timeout")
        if expires is not None:
            same._expires = _lifetime(expires, "options(): expires")
        delayed = same._options.get("delay", 0.0)
        if same._expires is not None and same._expires <= delayed:
            raise ValueError(
                f"options(): expires is {same._expires:.3g} s, and delay {delayed:.3g}; allowed: "
                "an expiry longer than the delay, or no handler would ever start"
            )
        return same

    def job(self, id: int) -> Job[R]:
        """Return the job of a call that was sent before, by its message's id.

        The engine is not asked: ``Job.state`` says whether the message exists.

        Raises:
            TypeError: the id is not an int.
        """
        return self._job(whole(id, "job(): id"), False)

    def keys_of(self, *args: P.args, **kwargs: P.kwargs) -> KeySet:
        """Return the keys under which this call would be handled."""
        return self._key_set(self._bound(args, kwargs))

    def __get__(self, instance: object, owner: object) -> Self:
        # A task may be a class attribute; it is not a method and takes no self.
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} on queue {self.declared.queue!r}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        # By its name in its module, as functions are pickled.
        return str(self.__qualname__)

    __qualname__: str  # update_wrapper sets it

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self.declared.run is None:
            return self.function(*args, **kwargs)
        return self.function(Run(self._bound(args, kwargs).arguments.values()))

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
        placed = self._placed
        if placed is not None and len(args) <= len(placed):
            # Signature.bind is much slower, and refuses what does not fit.
            given = dict(zip(placed, args, strict=False))
            if not kwargs and len(given) == len(placed):
                return inspect.BoundArguments(self.signature, given)
            if self._defaults is not None and given.keys().isdisjoint(kwargs):
                found = self._defaults | given | kwargs
                if found.keys() == self.signature.parameters.keys():
                    ordered = {name: found[name] for name in placed}
                    return inspect.BoundArguments(self.signature, ordered)
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            takes = ", ".join(self.signature.parameters)
            raise TypeError(f"{self.name}({takes}): {error}") from None
        bound.apply_defaults()
        return bound

    def _key_set(self, bound: inspect.BoundArguments) -> KeySet:
        keys, shared, _ = self._named(bound)
        return KeySet(keys, shared)

    def _named(
        self, bound: inspect.BoundArguments
    ) -> tuple[frozenset[bytes], frozenset[bytes], bytes | None]:
        """Return the keys, the shared keys, and the coalescing name, which is among the keys."""
        names = self._coalesce(bound) if self._coalesce is not None else ()
        if self._coalesce is not None and len(names) != 1:
            raise ValueError(f"task {self.name!r}: coalesce gives {len(names)} names; allowed: one")
        keys = frozenset((*self._keys(bound), *names))
        shared = self._shared(bound)
        return keys, frozenset(shared) - keys if shared else _NO_KEYS, names[0] if names else None

    def _checked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise the error that a send of this call would raise for its arguments."""
        bound = self._bound(args, kwargs)
        self._named(bound)
        self._limit_names(bound)
        self._group_of(bound)
        envelope.write(self.name, self.signature, args, kwargs, None, {})

    def _handled_as(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NewKeys:
        """Return the keys and the names under which this call would be handled."""
        bound = self._bound(args, kwargs)
        keys, shared, _ = self._named(bound)
        most = self.declared.run
        run = None if most is None else run_text(most, self.name, "send()")
        names = Names(tuple(self._limit_names(bound)), self._group_of(bound), run)
        return NewKeys(tuple(sorted(keys)), tuple(sorted(shared)), names)

    def _group_of(self, bound: inspect.BoundArguments) -> str | None:
        if self._group is None:
            return None
        groups = self._group(bound)
        if len(groups) != 1:
            raise ValueError(f"task {self.name!r}: group gives {len(groups)} names; allowed: one")
        return self._texts(groups, "group")[0]

    def _ready(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ready:
        bound = self._bound(args, kwargs)
        keys, shared, coalesce = self._named(bound)
        sending = Sending(
            self.name,
            self.declared.queue,
            args,
            kwargs,
            keys,
            shared,
            engine=self._app._named() or "",
        )
        try:
            self._app._hooks.before("before_send", sending)
            payload = envelope.write(
                self.name, self.signature, args, kwargs, self._timeout, sending.headers,
                self._expires,
            )  # fmt: skip
        except BaseException as error:
            self._app._hooks.after("on_send_error", sending, error)
            raise
        declared = self.declared
        options = {
            "quiet": declared.quiet,
            "priority": declared.priority,
            "barrier": declared.barrier,
            **self._options,
            "keys": sorted(keys),
            "shared": sorted(shared),
            "retry": declared.retry or self._app._sent_retry,
            "result_ttl": declared.result_ttl,
        }
        if self._limit is not None:
            options["limit"] = self._limit_names(bound)
        if self._group is not None:
            options["group"] = self._group_of(bound)
        if coalesce is not None:
            options["coalesce"] = coalesce
            if declared.debounce is not None:
                options |= {"debounce": declared.debounce, "longest": declared.longest}
        if self._behind is not None:
            options["behind"] = self._behind
        if declared.run is not None:
            options |= {"run": declared.run, "label": self.name}
        return Ready(payload, sending, options)

    def _limit_names(self, bound: inspect.BoundArguments) -> list[str]:
        return [] if self._limit is None else self._texts(self._limit(bound), "limit")

    def _texts(self, names: Iterable[bytes], option: str) -> list[str]:
        try:
            return [name.decode() for name in names]
        except UnicodeDecodeError as error:
            raise ValueError(
                f"task {self.name!r}: {option} is {error.object!r}; allowed: what is UTF-8"
            ) from None

    def _sent(self, ready: Ready, put: Any) -> Job[R]:
        job = self._job(put.id, put.known, put.replaced)
        self._app._hooks.after("after_send", ready.sending, job)
        return job

    def _job(self, id: int, known: bool, replaced: bool = False) -> Job[R]:
        declared = self.declared
        kept = declared.result_ttl > 0
        return Job(self._app, declared.queue, self.name, self.types, id, known, kept, replaced)


class Task(_Sendable[P, R]):
    """A function that can be sent. Called, it is the function."""

    is_async = False

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, here and now; one that takes runs, with a list of this one."""
        found: R = self._called(args, kwargs)
        return found


class AsyncTask(_Sendable[P, R]):
    """A coroutine function that can be sent. Called, it is the function."""

    is_async = True

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function, here and now; one that takes runs, with a list of this one."""
        found: Coroutine[Any, Any, R] = self._called(args, kwargs)
        return found


class TaskDecorator(Protocol):
    """The decorator that ``app.task()`` gives: it makes a task of a function."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...


class TransactionDecorator(Protocol):
    """The decorator that ``app.task(transaction=...)`` gives: a call has no connection among its
    arguments."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
        self, fn: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Any, P], R], /) -> Task[P, R]: ...


class RunDecorator(Protocol):
    """The decorator that ``app.task(run=...)`` gives: a call has one argument, and the function is
    given a list of them."""

    @overload
    def __call__(  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
        self, fn: Callable[[Run[T]], Coroutine[Any, Any, object]], /
    ) -> AsyncTask[[T], None]: ...
    @overload
    def __call__(self, fn: Callable[[Run[T]], object], /) -> Task[[T], None]: ...


def decorator(
    app: App,
    *,
    name: str | None,
    keys: KeySpec,
    shared: KeySpec,
    limit: KeySpec,
    group: KeySpec,
    behind: Behind | None,
    queue: str,
    retry: Retry | None,
    timeout: Seconds | None,
    result_ttl: Seconds,
    quiet: bool,
    priority: int,
    barrier: bool,
    expires: Seconds | None,
    transaction: Any = None,
    coalesce: KeySpec = (),
    debounce: Seconds | None = None,
    longest: Seconds | None = None,
    run: int | None = None,
) -> TaskDecorator:
    """See ``App.task``."""
    for argument, value in (("name", name), ("queue", queue)):
        if not (isinstance(value, str) and value) and not (argument == "name" and value is None):
            raise TypeError(f"task(): {argument} is {value!r}; allowed: a str that is not empty")
    if retry is not None and not isinstance(retry, Retry):
        raise TypeError(f"task(): retry is {type(retry).__name__}; allowed: Retry")
    revoked = None if timeout is None else seconds(timeout, "task(): timeout")
    kept = seconds(result_ttl, "task(): result_ttl")
    urgent = whole(priority, "task(): priority")
    if not -MAX_PRIORITY <= urgent <= MAX_PRIORITY:
        raise ValueError(
            f"task(): priority is {urgent}; allowed: -{MAX_PRIORITY} to {MAX_PRIORITY}"
        )
    if barrier and (keys or shared):
        raise ValueError(
            "task(): barrier is given with keys; allowed: no keys, because a barrier holds them all"
        )
    lifetime = None if expires is None else _lifetime(expires, "task(): expires")
    if behind is not None:
        checked_behind(behind, "task()")
    times = _debounced(coalesce, debounce, longest)
    if coalesce != () and (barrier or transaction is not None):
        other = "barrier" if barrier else "transaction"
        raise ValueError(f"task(): coalesce with {other}; allowed: one of them")

    others = {"barrier": barrier, "coalesce": coalesce != (), "transaction": transaction,
              "result_ttl": kept}  # fmt: skip
    most = None if run is None else _run(run, bool(keys or shared), others)

    def make(fn: Any) -> Any:
        if isinstance(fn, _Sendable):
            raise TypeError(f"task(): {fn!r} is already a task; decorate the function once")
        if not callable(fn) or isinstance(fn, type | staticmethod | classmethod):
            raise TypeError(f"task(): {type(fn).__name__} is given; allowed: a function")
        called = name or getattr(fn, "__name__", "")
        if not called or called == "<lambda>":
            raise ValueError(f"task(): {fn!r} has no name; give name=")
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise TypeError(f"task(): {called}() is a generator; allowed: a function that returns")
        kind: type[Any] = AsyncTask if inspect.iscoroutinefunction(fn) else Task
        declared = Declared(
            called, queue, retry, revoked, kept, bool(quiet), urgent, bool(barrier), lifetime,
            transaction, *times, most,
        )  # fmt: skip
        made = kind(app, fn, declared, keys, shared, limit, group, behind, coalesce)
        app._add(made)
        return made

    found: TaskDecorator = make
    return found


def _signature(function: Callable[..., Any], declared: Declared) -> inspect.Signature:
    """Return the signature of a call, which has no connection. Raises TypeError."""
    found = inspect.signature(function)
    if declared.run is not None:
        check_signature(declared.name, found)
    if declared.transaction is None:
        return found
    parameters = list(found.parameters.values())
    if not parameters or parameters[0].kind not in _PLACED:
        raise TypeError(
            f"task(): {declared.name}() takes no connection; allowed with transaction=: a function "
            "whose first parameter is the connection, such as def transfer(db, source, target)"
        )
    return found.replace(parameters=parameters[1:])


def _debounced(
    coalesce: KeySpec, debounce: Seconds | None, longest: Seconds | None
) -> tuple[float | None, float | None]:
    """Check the times of a coalescing task. Raises TypeError and ValueError."""
    if debounce is None:
        if longest is not None:
            raise ValueError("task(): longest without debounce")
        return None, None
    if coalesce == ():
        raise ValueError("task(): debounce without coalesce")
    if longest is None:
        raise ValueError("task(): debounce without longest")
    delay = _lifetime(debounce, "task(): debounce")
    most = seconds(longest, "task(): longest")
    if most < delay:
        raise ValueError(f"task(): longest is {most}; allowed: debounce ({delay}) or more")
    return delay, most


def _run(run: object, keyed: bool, others: dict[str, object]) -> int:
    """Check the number of a task that takes runs. Raises TypeError and ValueError."""
    most = checked_run(run, "task()")
    if not keyed:
        raise ValueError("task(): run without keys; the messages of a run have the same keys")
    for name, value in others.items():
        if value:
            raise ValueError(f"task(): run with {name}; allowed: one of them")
    return most


def _lifetime(value: Seconds, name: str) -> float:
    found = seconds(value, name)
    if not 0 < found < float("inf"):
        raise ValueError(f"{name} is {found}; allowed: seconds above 0")
    return found


MAX_PRIORITY = 100
_NO_KEYS: frozenset[bytes] = frozenset()
_PLACED = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
