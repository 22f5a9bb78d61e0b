"""The native module: bases of the package's classes. Checked by stubtest.

Names that begin with ``_`` are private: they may change with every version."""

import datetime as dt
from collections.abc import Callable, Coroutine, Iterable, Sequence
from types import GenericAlias, TracebackType
from typing import Any, Generic, Literal, NoReturn, Self, TypeVar, final

from typing_extensions import disjoint_base

from interlock._core_batch import AsyncLeaseBatch, LeaseBatch
from interlock._core_log import (
    BroughtRows,
    LinkReport,
    LogBridge,
    LogNode,
    RowsImage,
    RowsIterator,
    TableKeeper,
)
from interlock._core_serving import (
    Engine,
    EngineError,
    EngineRenewals,
    HubServer,
    HubTables,
    JournalCopy,
    LeaseRenewals,
    ManualClock,
    StoreFiles,
    WallClock,
)  # fmt: skip
from interlock._core_states import StateRules
from interlock._core_table import Table, TableExport, TableScan, remove_table

_T = TypeVar("_T")
_R = TypeVar("_R")

_Key = str | int | bytes
_Keys = _Key | Iterable[_Key]
_Seconds = float | dt.timedelta
_Kind = Literal["any", "keyed", "unkeyed"]
_Limit = str | Iterable[str]
_Behind = Literal["wait", "bury", "cancel", "park"]
_Names = tuple[
    tuple[bytes, ...], tuple[bytes, ...], int, float, str | None, bool, bool, bytes, str,
    _Behind | None, tuple[bytes, float, float] | None,
]  # fmt: skip
"""Keys, shared keys, priority, seconds of delay, dedup string, barrier, quiet, limit names, group,
its own value of behind; coalescing name, with seconds of debounce and their longest."""

__all__ = [
    "DEBUG_BUILD",
    "AsyncFace",
    "AsyncLease",
    "AsyncLeaseBatch",
    "Batch",
    "BroughtRows",
    "Done",
    "Engine",
    "EngineError",
    "EngineRenewals",
    "Future",
    "HubServer",
    "HubTables",
    "JournalCopy",
    "Lease",
    "LeaseBatch",
    "LeaseRenewals",
    "LinkReport",
    "LogBridge",
    "LogNode",
    "ManualClock",
    "Queue",
    "RowsImage",
    "RowsIterator",
    "StateRules",
    "StoreFiles",
    "Table",
    "TableExport",
    "TableKeeper",
    "TableScan",
    "Waiter",
    "WallClock",
    "__version__",
    "call_handler",
    "canonical",
    "canonical_keys",
    "current_grant",
    "end_call",
    "forked",
    "quicken",
    "remove_table",
    "replay",
    "run_worker",
]

__version__: str
DEBUG_BUILD: bool
"""True if it was built without optimisation."""

@disjoint_base
class Queue(Generic[_T]):
    """The native base of ``interlock.KeyedQueue``; see there."""

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
        numbers: dict[str, _Seconds | str | None],
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
    @property
    def is_shutdown(self) -> bool:
        """True once ``shutdown`` was called: puts are refused, and unsettled messages drain."""
    @property
    def unfinished_tasks(self) -> int: ...
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
        limit: _Limit | None = None,
        group: str | None = None,
        behind: _Behind | None = None,
        coalesce: _Key | None = None,
        debounce: _Seconds | None = None,
        longest: _Seconds | None = None,
    ) -> int:
        """Put a message and return its id.

        Args:
            block: wait for room. Default True.
            timeout: seconds to wait for room. Default: for ever.
            keys: one key (str, int, bytes) or several, held alone. Default: the queue's ``keys``.
            shared: keys held together with other readers.
            priority: -100 to 100; higher ones are leased first, but never out of a key's order.
            delay: seconds until the message takes its place.
            dedup: a name; nothing is put while it is known, and the first message's id is returned.
            barrier: runs alone, after all earlier messages and before all later ones; has no keys.
            quiet: leave the message out of the debug log.
            limit: names of concurrency limits, each of which must have room for its lease.
            group: a name; messages of different groups take turns.
            behind: what happens to it while it waits on a key behind a message that is held, or for
                ``"park"`` on a paused key. Default: what the queue says. A parked message may be
                overtaken on its other keys by what is put before it returns; on the key it waits
                for, messages that park keep their order.

        Raises:
            Full: the queue stayed full until the timeout.
            ShutDown: the queue is shut down.
            WouldDeadlock: the caller is the only one that could make room.
            TypeError, ValueError: an argument has a wrong type or is out of range; nothing was put.
        """
    def get(
        self, block: bool = True, timeout: _Seconds | None = None, *, kind: _Kind = "any"
    ) -> Lease[_T]:
        """Lease the next message: of the ready ones with the highest priority, the first put.

        Args:
            block: wait for a message. Default True.
            timeout: seconds to wait. Default: for ever.
            kind: ``"any"``, ``"keyed"`` (barriers too) or ``"unkeyed"``.

        Returns:
            a lease, to be settled by its methods, or as a context manager.

        Raises:
            Empty: no message was ready until the timeout.
            ShutDown: it is shut down and empty, or with ``immediate`` and none is ready.
            WouldDeadlock: it is shut down, and the caller holds every message that could come.
        """
    def put_many(
        self,
        items: Iterable[_T],
        block: bool = True,
        timeout: _Seconds | None = None,
        *,
        keys: _Keys | Callable[[_T], _Keys | None] | None = None,
        shared: _Keys | Callable[[_T], _Keys | None] | None = None,
        priority: int = 0,
        delay: _Seconds = 0,
        dedup: Callable[[_T], str | None] | None = None,
        quiet: bool = False,
        each_keys: Iterable[_Keys | None] | None = None,
        each_shared: Iterable[_Keys | None] | None = None,
        limit: _Limit | Callable[[_T], _Limit | None] | None = None,
        group: str | Callable[[_T], str | None] | None = None,
        behind: _Behind | Callable[[_T], _Behind | None] | None = None,
        coalesce: _Key | Callable[[_T], _Key | None] | None = None,
        debounce: _Seconds | None = None,
        longest: _Seconds | None = None,
    ) -> list[int]:
        """Put a batch, whole or not at all, in order. Return the ids. See ``put``.

        Args:
            items: the payloads.
            keys, shared, limit, group, behind: as for ``put``; or a callable of each payload.
            each_keys, each_shared: the keys of each payload, or None, in order: as many as items.
            dedup: a callable of each payload, which returns its name or None.

        Raises:
            Full: the whole batch did not fit until the timeout; nothing was put.
            ValueError: the batch is larger than the bounds of the queue.
            ShutDown: the queue is shut down.
        """
    def get_many(
        self,
        limit: int,
        block: bool = True,
        timeout: _Seconds | None = None,
        *,
        kind: _Kind = "any",
    ) -> LeaseBatch[_T]:
        """Lease at least one message, at most ``limit``; otherwise as ``get``."""
    def ack_many(self, leases: Iterable[Lease[_T]]) -> None:
        """Settle all these leases; then raise the error of the first lost one."""
    def qsize(self) -> int:
        """Return the number of messages that are not leased."""
    def empty(self) -> bool:
        """Return True if every queued message is leased."""
    def full(self) -> bool:
        """Return True if a put would have to wait."""
    def cancel(self, id: int) -> bool:
        """Settle a message that is not leased. False: it is leased or settled."""
    def revoke(self, id: int, then: Literal["retry", "hold", "dead", "skip"] = "retry") -> bool:
        """End the lease of a message as if it had expired. False: it is not leased."""
    def retry(self, id: int) -> bool:
        """Make a held message, or one that backs off, ready immediately. False: it is neither."""
    def skip(self, id: int) -> bool:
        """Settle a held message, or one that backs off. False: it is neither."""
    def bury(self, id: int) -> bool:
        """Make a held message, or one that backs off, a dead letter. False: it is neither."""
    def pause(self, key: _Key | None = None) -> bool:
        """Lease no more messages, or none with the key. False: it was paused already."""
    def resume(self, key: _Key | None = None) -> bool:
        """Undo a pause. False: it was not paused."""
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
        barrier: bool | None = None,
        quiet: bool | None = None,
        limit: _Limit | None = None,
        group: str | None = None,
        behind: _Behind | None = None,
        coalesce: _Key | None = None,
        debounce: _Seconds | None = None,
        longest: _Seconds | None = None,
    ) -> int: ...
    def _get(
        self, block: bool = True, timeout: _Seconds | None = None, *, kind: _Kind | None = None
    ) -> Lease[_T]: ...
    # fmt: off
    def _batch(
        self, items: Iterable[_T],
        keys: Any, shared: Any, priority: Any, delay: Any, dedup: Any, quiet: Any,
        each_keys: Any, each_shared: Any, limit: Any, group: Any, behind: Any, coalesce: Any,
        debounce: Any, longest: Any,
    ) -> Batch: ...
    # fmt: on
    def _try_put(self, payload: _T, *named: Any) -> int | Batch: ...
    # fmt: off
    def _put_known(
        self, payload: _T, block: bool, timeout: _Seconds | None,
        keys: Any, shared: Any, priority: Any, delay: Any, dedup: Any, barrier: Any,
        quiet: Any, limit: Any, group: Any, behind: Any, coalesce: Any, debounce: Any, longest: Any,
    ) -> tuple[int, bool, bool]: ...
    def _try_put_in_full(
        self, payload: _T,
        keys: Any, shared: Any, priority: Any, delay: Any, dedup: Any, barrier: Any,
        quiet: Any, limit: Any, group: Any, behind: Any, coalesce: Any = None,
        debounce: Any = None, longest: Any = None,
    ) -> int | Batch: ...
    def _batch_of_one(
        self, payload: _T,
        keys: Any, shared: Any, priority: Any, delay: Any, dedup: Any, barrier: Any,
        quiet: Any, limit: Any, group: Any, behind: Any, coalesce: Any, debounce: Any, longest: Any,
    ) -> Batch: ...
    # fmt: on
    def _try_get(self, kind: _Kind | None) -> Lease[_T] | None: ...
    def _try_get_async(
        self, kind: _Kind | None, me: int | None = None
    ) -> AsyncLease[_T] | None: ...
    def _check_room(self, call: str, me: int) -> None: ...
    def _check_join(self) -> None: ...
    def _several_getters(self) -> None: ...
    def _parked(self) -> int: ...
    def _look(self) -> float | None: ...
    def _set_limits(self, limits: str) -> None: ...
    def _set_weights(self, weights: str) -> None: ...
    def _set_behind(self, behind: str) -> None: ...
    @property
    def _number(self) -> int: ...
    def _revoke_token(self, token: int, id: int) -> bool: ...
    def _requeue(self, id: int) -> int | None: ...
    def discard(self, id: int) -> bool:
        """Drop a dead letter. False: no dead letter has this id."""

    def _purgeable(self, dead: bool, place: int) -> tuple[list[int], int]: ...
    def _messages(
        self, limit: int, state: str | None, key: str | int | bytes | None, after: int | None
    ) -> list[tuple[Any, ...]]: ...
    def _dead_letters(self, limit: int, key: _Key | None) -> list[tuple[Any, ...]]: ...
    def _dead_error(self, id: int) -> str | None: ...
    def _explain(
        self, id: int | None, key: _Key | None, limit: int
    ) -> tuple[list[tuple[Any, ...]], bool] | None: ...
    def _hot_keys(self, n: int) -> list[tuple[bytes, int]]: ...
    def _limits(self, n: int) -> list[tuple[Any, ...]]: ...
    def _roots(self, long: float, limit: int) -> tuple[int, bool, list[tuple[Any, ...]]]: ...
    def _blocked(self, ids: list[int], keys: list[bytes], most: int) -> tuple[int, bool]: ...
    def _stats(self) -> dict[str, Any]: ...
    def _undrained(
        self, limit: int
    ) -> tuple[list[int], list[bytes], list[int], list[int], list[int]]: ...
    def _join(self, timeout: _Seconds | None = None) -> bool: ...
    def _shutdown(
        self, immediate: bool, at_once: bool = False
    ) -> list[tuple[int, _T, frozenset[bytes], frozenset[bytes], int, int]]: ...
    def _record(self) -> None: ...
    def _recording(self) -> str | None: ...
    def _submit(
        self,
        class_: type[Any],
        keys: _Keys | None,
        shared: _Keys | None,
        priority: int | None,
        quiet: bool,
        limit: _Limit | None,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        keywords: dict[str, Any] | None,
    ) -> Any: ...
    def _named(
        self,
        call: str,
        keys: _Keys,
        shared: _Keys | None,
        priority: int | None,
        quiet: bool | None,
        limit: _Limit | None,
    ) -> tuple[tuple[bytes, ...], tuple[bytes, ...], tuple[str, ...]]: ...
    # fmt: off
    def _named_put(
        self, call: str, payload: _T,
        keys: Any, shared: Any, priority: Any, delay: Any, dedup: Any, barrier: Any,
        quiet: Any, limit: Any, group: Any, behind: Any, coalesce: Any, debounce: Any, longest: Any,
    ) -> _Names: ...
    def _named_many(
        self, payloads: Sequence[_T],
        keys: Any, shared: Any, each_keys: Any, each_shared: Any, priority: Any,
        delay: Any, dedup: Any, quiet: Any, limit: Any, group: Any, behind: Any, coalesce: Any,
        debounce: Any, longest: Any,
    ) -> list[_Names]: ...
    # fmt: on
    def _unsettled(self) -> int: ...
    def _waits_for(self, id: int, stuck: list[int]) -> tuple[str, ...] | None: ...
    def _thread_of(self, id: int) -> int | None: ...
    def _fail_all(self, exception: Callable[[], BaseException]) -> None: ...
    def _set_crew(self, all: int, any: int) -> None: ...
    def _keep_no_dead_letters(self) -> None: ...
    def _handling(self) -> list[int]: ...

@final
class Lease(Generic[_T]):
    """The right to handle one message, until it is settled.

    As a context manager it returns the payload, acknowledges on success, and on an exception
    returns the message by the retry policy and lets the exception through; ``RetryAfter`` and
    ``Reject`` choose the settlement. Dropped unsettled, it is a failed attempt, and warns.
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
        """Rises with every lease of the queue: a fencing token for the handler's writes."""
    @property
    def lost(self) -> bool:
        """True if it expired or was revoked, as far as the queue knows at this moment."""
    def ack(self) -> None:
        """Acknowledge the message as handled: its lanes move on.

        Raises LeaseLost, and changes nothing, if the lease was settled, expired or was revoked.
        """
    def nack(self, delay: _Seconds | None = None, error: BaseException | str | None = None) -> None:
        """Report the message as not handled: it is redelivered, in its place, or given up.

        Args:
            delay: seconds until then. Default: by the retry policy.
            error: reason for the logs and the dead letter. Raises LeaseLost as ``ack``.
        """
    def reject(self, reason: str) -> None:
        """Make the message a dead letter immediately. Raises LeaseLost as ``ack``."""
    def release(self) -> None:
        """Return the message unhandled: same place and attempt. Raises LeaseLost as ``ack``."""
    def extend(self, seconds: _Seconds) -> None:
        """Set the deadline to this many seconds from now. Raises LeaseLost as ``ack``."""
    def _give_up(self, error: BaseException | str) -> None: ...
    def _defer(self, delay: _Seconds) -> None: ...
    def _close(self, limit: str, delay: _Seconds) -> None: ...
    def __enter__(self) -> _T: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> Literal[False]: ...

@disjoint_base
class AsyncFace(Generic[_T]):
    """The native base of ``interlock.aio.AsyncQueue``; see there."""

    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    def __new__(cls, queue: Queue[_T]) -> Self: ...
    @property
    def queue(self) -> Queue[_T]: ...

@final
class AsyncLease(Generic[_T]):
    """A lease that is settled with ``await`` and entered with ``async with``; see ``Lease``."""

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
    def _defer(self, delay: _Seconds) -> None: ...
    def _close(self, limit: str, delay: _Seconds) -> None: ...
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
    """One wait: ``call`` is called when a retry may succeed. ``on_loop``: number of the event loop
    that has to run for the retry; 0 for a thread."""

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
    def get_async(self, kind: _Kind, to_the_end: bool) -> AsyncLease[Any] | None: ...
    def get_many_async(self, limit: int, kind: _Kind) -> AsyncLeaseBatch[Any] | None: ...
    def put(self, batch: Batch) -> list[int] | None: ...
    def lacks_room(self) -> bool: ...
    def put_known(self, batch: Batch) -> tuple[int, bool] | None: ...
    def drained(self) -> bool: ...
    def give_up(self) -> None: ...

@final
class Batch:
    """Waiting puts with one set of arguments."""

    @property
    def call(self) -> str: ...

@final
class Done:
    """An awaitable of a finished operation."""

    def __await__(self) -> Self: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> NoReturn: ...
    def send(self, _value: object) -> NoReturn: ...
    def throw(self, error: Any, value: Any = None, _traceback: Any = None) -> NoReturn: ...
    def close(self) -> None: ...

@disjoint_base
class Future(Generic[_R]):
    """The native base of ``interlock.Future``; see there."""

    def __class_getitem__(cls, key: Any) -> GenericAlias: ...
    def __new__(cls, *_arguments: object, **_keywords: object) -> Self: ...
    @property
    def id(self) -> int:
        """Id of its message: for ``explain``, ``revoke`` and the rest. 0 before it has one."""
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
    """Try the usual forms of a class's ``put`` and ``get`` natively first."""

def forked() -> None: ...
def canonical(value: _Key, name: str = "key") -> bytes: ...
def canonical_keys(value: _Keys, call: str, name: str) -> tuple[bytes, ...]: ...
def replay(schedule: str) -> list[str]:
    """Return the replies to each call of a recorded schedule, or raise ValueError."""
