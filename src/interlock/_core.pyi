"""The native module: what the classes of the package are made of. Checked by stubtest.

What begins with ``_`` is between the core and the package, and may change with every version.
"""

import datetime as dt
from collections.abc import Callable, Coroutine, Iterable, Sequence
from types import GenericAlias, TracebackType
from typing import Any, Generic, Literal, NoReturn, Self, TypeVar, final

from typing_extensions import disjoint_base

_T = TypeVar("_T")
_R = TypeVar("_R")

_Key = str | int | bytes
_Keys = _Key | Iterable[_Key]
_Seconds = float | dt.timedelta
_Kind = Literal["any", "keyed", "unkeyed"]

__all__ = [
    "DEBUG_BUILD",
    "AsyncFace",
    "AsyncLease",
    "Batch",
    "Done",
    "Engine",
    "EngineError",
    "Future",
    "HubServer",
    "Lease",
    "ManualClock",
    "Queue",
    "Waiter",
    "__version__",
    "call_handler",
    "canonical",
    "current_grant",
    "end_call",
    "forked",
    "quicken",
    "replay",
    "run_worker",
]

__version__: str
DEBUG_BUILD: bool
"""It was built without optimisation."""

@final
class ManualClock:
    """Time for tests: it stands still until ``advance`` moves it."""

    def __new__(cls, start: _Seconds | None = None) -> Self: ...
    def now(self) -> float:
        """Seconds since the start of the count."""
    def advance(self, seconds: _Seconds) -> None:
        """Moves on, and wakes whatever waits on this clock and is due by then."""

@disjoint_base
class Queue(Generic[_T]):
    """What ``interlock.KeyedQueue`` is made of; see there."""

    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    def __new__(
        cls,
        maxsize: int,
        maxbytes: int,
        sizeof: Callable[[_T], int] | None,
        keys: Callable[[_T], _Keys] | None,
        shared: Callable[[_T], _Keys] | None,
        retry: tuple[int | None, int, float, int, bool, bool],
        lease: _Seconds | None,
        clock: ManualClock | None,
        maxdead: int,
        dedup_window: _Seconds,
        name: str,
        slow_wait: _Seconds,
        warn_depth: int,
        warn_lane_depth: int,
    ) -> Self: ...
    @property
    def name(self) -> str: ...
    @property
    def maxsize(self) -> int: ...
    @property
    def maxbytes(self) -> int: ...
    def put(
        self,
        payload: _T,
        block: bool = True,
        timeout: _Seconds | None = None,
        *,
        keys: _Keys | None = None,
        shared: _Keys | None = None,
        priority: int = 0,
        delay: _Seconds = 0,
        dedup: str | None = None,
        barrier: bool = False,
        quiet: bool = False,
    ) -> int:
        """Puts a message and returns its id.

        Args:
            payload: anything.
            block: wait for room. Default True.
            timeout: seconds to wait for room. Default: for ever.
            keys: one key (str, int, bytes) or an iterable of keys, held alone. Default: what the
                queue's own ``keys`` says of the payload, else none.
            shared: keys held together with other readers.
            priority: -100 to 100; higher ones are handed out first, but never out of a key's order.
            delay: seconds until the message takes its place.
            dedup: a name; while a message of this name is unsettled, or was settled within the
                queue's window, nothing is put and its id is returned.
            barrier: runs alone, after all before it and before all after it; names no keys.
            quiet: leave the message out of the debug log.

        Raises:
            Full: there was no room in time.
            ShutDown: the queue is shut down.
            WouldDeadlock: the caller is the only one that could make room.
            TypeError, ValueError: an argument is of a wrong type or out of its range; nothing was
                put.
        """
    def get(
        self, block: bool = True, timeout: _Seconds | None = None, *, kind: _Kind = "any"
    ) -> Lease[_T]:
        """Takes the next message: of those that nothing holds up, the one of highest priority, and
        of these the first in sequence.

        Args:
            block: wait for one. Default True.
            timeout: seconds to wait. Default: for ever.
            kind: ``"any"``, ``"keyed"`` (barriers too) or ``"unkeyed"``.

        Returns:
            a lease, to be settled with ``ack``, ``nack``, ``reject`` or ``release``, or as a
            context manager.

        Raises:
            Empty: no message was ready in time.
            ShutDown: the queue is shut down and nothing unsettled is left.
        """
    def get_many(
        self,
        limit: int,
        block: bool = True,
        timeout: _Seconds | None = None,
        *,
        kind: _Kind = "any",
    ) -> list[Lease[_T]]:
        """At least one message, at most ``limit``; otherwise as ``get``."""
    def ack_many(self, leases: Iterable[Lease[_T]]) -> None:
        """Settles all these leases; the first lost one is raised when the others are settled."""
    def qsize(self) -> int:
        """Messages that are not leased."""
    def empty(self) -> bool:
        """No message is queued that is not leased."""
    def full(self) -> bool:
        """A put would have to wait."""
    def cancel(self, id: int) -> bool:
        """Settles a message that is not leased. False: it is leased or settled."""
    def revoke(self, id: int, then: Literal["retry", "hold", "dead", "skip"] = "retry") -> bool:
        """Ends the lease of a message as if it had run out. False: it is not leased."""
    def retry(self, id: int) -> bool:
        """Makes a held message, or one that backs off, ready at once. False: it is neither."""
    def skip(self, id: int) -> bool:
        """Settles a held message, or one that backs off. False: it is neither."""
    def bury(self, id: int) -> bool:
        """Makes a held message, or one that backs off, a dead letter. False: it is neither."""
    def pause(self, key: _Key | None = None) -> bool:
        """Hands out nothing any more, or nothing that holds the key. False: it was paused."""
    def resume(self, key: _Key | None = None) -> bool:
        """Undoes a pause. False: there was none."""
    def _follow(self, clock: ManualClock) -> None: ...
    def _put(
        self,
        payload: _T,
        block: bool = True,
        timeout: _Seconds | None = None,
        *,
        keys: _Keys | None = None,
        shared: _Keys | None = None,
        priority: int | None = None,
        delay: _Seconds | None = None,
        dedup: str | None = None,
        barrier: bool = False,
        quiet: bool = False,
    ) -> int: ...
    def _get(
        self, block: bool = True, timeout: _Seconds | None = None, *, kind: _Kind | None = None
    ) -> Lease[_T]: ...
    def _put_many(
        self,
        payloads: Sequence[_T],
        named: dict[str, Any],
        block: bool,
        timeout: _Seconds | None,
    ) -> list[int]: ...
    def _batch(self, payloads: Sequence[_T], named: dict[str, Any]) -> Batch: ...
    def _try_put(
        self,
        payload: _T,
        keys: _Keys | None,
        shared: _Keys | None,
        priority: int | None,
        delay: _Seconds | None,
        dedup: str | None,
        barrier: bool,
        quiet: bool,
    ) -> int | Batch: ...
    def _try_get(self, kind: _Kind | None) -> Lease[_T] | None: ...
    def _try_get_async(
        self, kind: _Kind | None, me: int | None = None
    ) -> AsyncLease[_T] | None: ...
    def _check_room(self, call: str, me: int) -> None: ...
    def _check_join(self) -> None: ...
    def _several_getters(self) -> None: ...
    def _parked(self) -> int: ...
    def _look(self) -> float | None: ...
    def _revoke_token(self, token: int, id: int) -> bool: ...
    def _requeue(self, id: int) -> int | None: ...
    def _dead_letters(
        self, limit: int, key: _Key | None
    ) -> list[tuple[int, _T, frozenset[bytes], frozenset[bytes], int, str, int]]: ...
    def _explain(
        self, id: int | None, key: _Key | None, limit: int
    ) -> tuple[list[tuple[Any, ...]], bool] | None: ...
    def _hot_keys(self, n: int) -> list[tuple[bytes, int]]: ...
    def _stats(self) -> dict[str, int]: ...
    def _undrained(self, limit: int) -> tuple[list[int], list[bytes], list[int], list[int]]: ...
    def _join(self, timeout: _Seconds | None = None) -> bool: ...
    def _shutdown(
        self, immediate: bool
    ) -> list[tuple[int, _T, frozenset[bytes], frozenset[bytes], int, int]]: ...
    @property
    def _is_shut_down(self) -> bool: ...
    def _record(self) -> None: ...
    def _recording(self) -> str | None: ...
    def _submit(
        self,
        class_: type[Any],
        keys: _Keys | None,
        shared: _Keys | None,
        priority: int | None,
        quiet: bool,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        keywords: dict[str, Any] | None,
    ) -> Any: ...
    def _named(
        self, call: str, keys: _Keys, shared: _Keys, priority: int
    ) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]: ...
    def _unsettled(self) -> int: ...
    def _waits_for(self, id: int, target: int) -> tuple[int, ...] | None: ...
    def _thread_of(self, id: int) -> int | None: ...
    def _fail_all(self, exception: Callable[[], BaseException]) -> None: ...
    def _set_crew(self, all: int, any: int) -> None: ...
    def _keep_no_dead_letters(self) -> None: ...
    def _handling(self) -> list[int]: ...

@final
class Lease(Generic[_T]):
    """The right to handle one message, until it is settled.

    As a context manager it gives the payload, acknowledges on success, and on an exception puts the
    message back by the retry policy and lets the exception through; ``RetryAfter`` and ``Reject``
    steer. Dropped without a word it counts as a failed attempt, and warns.
    """

    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    @property
    def payload(self) -> _T: ...
    @property
    def queue(self) -> str:
        """The queue's name."""
    @property
    def keys(self) -> frozenset[bytes]: ...
    @property
    def shared(self) -> frozenset[bytes]: ...
    @property
    def id(self) -> int: ...
    @property
    def attempt(self) -> int:
        """1 for the first."""
    @property
    def token(self) -> int:
        """Rises with every lease of the queue: a fence for what the handler writes."""
    @property
    def lost(self) -> bool:
        """It ran out or was revoked, as far as the queue knows at this moment."""
    def ack(self) -> None:
        """The message was handled: its lanes move on.

        Raises:
            LeaseLost: the lease was settled, ran out or was revoked; nothing was changed.
        """
    def nack(self, delay: _Seconds | None = None, error: BaseException | str | None = None) -> None:
        """The message was not handled: it comes again, in its place, or is given up.

        Args:
            delay: seconds until then. Default: what the retry policy says.
            error: why, for the logs and the dead letter.

        Raises:
            LeaseLost: as for ``ack``.
        """
    def reject(self, reason: str) -> None:
        """The message cannot be handled: a dead letter at once. Raises LeaseLost as ``ack``."""
    def release(self) -> None:
        """Its handling never began: the same place and attempt. Raises LeaseLost as ``ack``."""
    def extend(self, seconds: _Seconds) -> None:
        """Sets the deadline to so many seconds from now. Raises LeaseLost as ``ack``."""
    def _give_up(self, error: BaseException | str) -> None: ...
    def __enter__(self) -> _T: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> Literal[False]: ...

@disjoint_base
class AsyncFace(Generic[_T]):
    """What ``interlock.aio.AsyncQueue`` is made of; see there."""

    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    def __new__(cls, queue: Queue[_T]) -> Self: ...
    @property
    def queue(self) -> Queue[_T]: ...

@final
class AsyncLease(Generic[_T]):
    """A lease whose settling is awaited, and that is entered with ``async with``; see ``Lease``.

    What a call does is done when it returns; it is awaited for the sake of engines where that takes
    time.
    """

    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    @property
    def payload(self) -> _T: ...
    @property
    def queue(self) -> str: ...
    @property
    def keys(self) -> frozenset[bytes]: ...
    @property
    def shared(self) -> frozenset[bytes]: ...
    @property
    def id(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def token(self) -> int: ...
    @property
    def lost(self) -> bool: ...
    def ack(self) -> Coroutine[Any, Any, None]: ...
    def nack(
        self, delay: _Seconds | None = None, error: BaseException | str | None = None
    ) -> Coroutine[Any, Any, None]: ...
    def reject(self, reason: str) -> Coroutine[Any, Any, None]: ...
    def release(self) -> Coroutine[Any, Any, None]: ...
    def extend(self, seconds: _Seconds) -> Coroutine[Any, Any, None]: ...
    def _give_up(self, error: BaseException | str) -> None: ...
    def __enter__(self) -> NoReturn: ...
    def __exit__(self, _kind: object, _error: object, _traceback: object) -> None: ...
    def __aenter__(self) -> Coroutine[Any, Any, _T]: ...
    def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Coroutine[Any, Any, None]: ...

@final
class Waiter:
    """One wait: looks, and in between ``call`` is called when it is worth to look again.

    ``on_loop``: the number of the event loop that has to run for the look; 0 for a thread.
    """

    def __new__(
        cls,
        queue: Queue[Any],
        call: Callable[[], object],
        timeout: _Seconds | None = None,
        on_loop: int = 0,
    ) -> Self: ...
    @property
    def left(self) -> float | None: ...
    def get(self, kind: _Kind) -> Lease[Any] | None: ...
    def get_async(self, kind: _Kind) -> AsyncLease[Any] | None: ...
    def get_many_async(self, limit: int, kind: _Kind) -> list[AsyncLease[Any]] | None: ...
    def put(self, batch: Batch) -> list[int] | None: ...
    def lacks_room(self) -> bool: ...
    def drained(self) -> bool: ...
    def give_up(self) -> None: ...

@final
class Batch:
    """Puts that wait for room, named once."""

    @property
    def call(self) -> str: ...

@final
class Done:
    """Something already done, to be awaited."""

    def __await__(self) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> NoReturn: ...
    def send(self, _value: object) -> NoReturn: ...
    def throw(self, error: Any, value: Any = None, _traceback: Any = None) -> NoReturn: ...
    def close(self) -> None: ...

@disjoint_base
class Future(Generic[_R]):
    """What ``interlock.Future`` is made of; see there."""

    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    def __new__(cls, *_arguments: object, **_keywords: object) -> Self: ...
    @property
    def id(self) -> int:
        """The id of its message: for ``explain``, ``revoke`` and the rest. 0 before it has one."""
    def cancel(self) -> bool: ...
    def cancelled(self) -> bool: ...
    def running(self) -> bool: ...
    def done(self) -> bool: ...
    def result(self, timeout: float | None = None) -> _R: ...
    def exception(self, timeout: float | None = None) -> BaseException | None: ...
    def add_done_callback(self, callback: Callable[[Self], object]) -> None: ...
    def set_running_or_notify_cancel(self) -> bool: ...
    def set_result(self, result: _R) -> None: ...
    def set_exception(self, exception: BaseException | None) -> None: ...
    def _cancelled(self) -> bool: ...
    def _begin(
        self, token: int
    ) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]] | None: ...

def run_worker(queue: Queue[Any], kind: _Kind, on: tuple[type[Exception], ...] | None) -> bool: ...
def call_handler(
    lease: Lease[Any],
    function: Callable[..., _R],
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
) -> _R: ...
def end_call(
    lease: Lease[Any],
    result: Any,
    error: BaseException | None,
    on: tuple[type[Exception], ...] | None,
) -> bool: ...
def current_grant() -> Lease[Any] | None: ...
def quicken(cls: type[AsyncFace[Any]]) -> None:
    """Has the usual forms of a class's ``put`` and ``get`` tried natively first."""

def forked() -> None: ...
def canonical(value: _Key) -> bytes: ...
def replay(schedule: str) -> list[str]:
    """What the scheduler answers to each call of a recorded schedule, a line each.

    Raises:
        ValueError: the text is not a schedule; it names the line and what is wrong.
    """

class EngineError(Exception):
    """A call to an engine was refused: the text is that of the wire, its code first."""

@final
class Engine:
    """The functions of the wire in this process: what ``memory://`` is. Any thread may call.

    A call is ``function`` (``"il1_put"``), the queue's ``key`` (``b"il:{orders}"``; None for
    ``il1_version`` and ``il1_queues``) and ``args``, the strings behind it: bytes, str (sent as
    UTF-8) or int (sent as decimal digits). The answer is the reply's strings. A refusal raises
    ``EngineError``; an argument of another type is a ``TypeError``.

    It has the feature ``parks``: a call with a WAIT is answered when there is something.
    """

    def __new__(cls, clock: ManualClock | None = None, memory: int = 0) -> Self:
        """``memory``: bytes that all queues may take before puts get ``OOM``; 0 is no bound."""

    def call(
        self, function: str, key: bytes | None, args: Sequence[bytes | str | int], /
    ) -> list[bytes]:
        """Make a call and wait for its answer, without the GIL, as long as its WAIT says.

        Threads that wait keep the time between them. A signal handler that raises ends the wait;
        the call is then forgotten, and may be sent again under the same number.
        """

    def start(
        self,
        function: str,
        key: bytes | None,
        args: Sequence[bytes | str | int],
        waker: Callable[[int], object],
        /,
    ) -> list[bytes] | int:
        """Make a call without waiting: its answer, or a ticket if it was parked.

        Once it is answered, ``waker(ticket)`` is called, once, on whatever thread made the call
        that answers it (never before ``start`` has returned), and ``take`` gives the answer. What
        the waker raises is reported and ignored.
        """

    def take(self, ticket: int, /) -> list[bytes]:
        """The answer of a parked call, once. ``LookupError`` before its waker was called."""

    def forget(self, ticket: int, /) -> None:
        """Nobody wants this answer: the call waits no more, and its waker is not called."""

    def keep_time(self) -> None:
        """Answer parked calls when their WAIT is over or something falls due, until ``close``.

        Run it on a daemon thread where calls are made by ``start``: it sleeps without the GIL, and
        costs nothing while nobody waits. A manual clock needs it not: ``advance`` does the same.
        """

    def close(self) -> None:
        """End ``keep_time``. Calls go on."""

@final
class HubServer:
    """What ``interlock.Hub`` runs: a server on threads of its own, none of which takes the GIL."""

    def __new__(cls, settings: dict[str, Any]) -> Self: ...
    def start(self) -> None:
        """Binds and starts the threads. OSError says which address could not be had, and why."""
    @property
    def addresses(self) -> list[str]: ...
    def stop(self, seconds: float = 0.0) -> int:
        """Accepts no more, drains for so long, closes; answers how many connections were cut."""
    @staticmethod
    def commands() -> list[tuple[str, list[str]]]:
        """Each command's name, as COMMAND INFO takes it, and its categories."""
    def apply(self, settings: dict[str, Any], keep_users: bool = False) -> None:
        """Limits, users and certificates that hold from now on; other keys are passed over.
        ``keep_users``: users stay as they are, and so do the passwords that were found right."""
    def fileno(self) -> int:
        """Readable while there are events to take."""
    def events(self, last: bool = False) -> tuple[list[tuple[Any, ...]], int, bool]:
        """What has happened, oldest first; how many lines of the log found no room; whether there
        are lines to be summed up later, which ``last`` does at once.

        ``("log", level, text)``, ``("broken", text)``,
        ``("password", asker, (host, user, password))``,
        ``("set", asker, [(name, value)])``, ``("reload", asker, ())``, ``("shutdown", asker, ())``.
        """
    def waits(self, asker: tuple[int, int, int]) -> bool:
        """Whether who asked a question among the events is still there."""
    def answer(self, asker: tuple[int, int, int], error: str | None = None) -> None:
        """Answers a question among the events: yes, or no with an error's text."""
    def info(self) -> dict[str, Any]:
        """The counters, as INFO names them."""
    def beats(self) -> list[int]:
        """How many beats each worker has answered."""
    def pulse(self) -> list[bool]:
        """Sends each worker a beat; tells of each whether it has answered the one before."""
