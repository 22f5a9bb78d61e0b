"""Messages as users see them, and the lease under which one is being handled."""

from __future__ import annotations

import contextvars
import sys
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_args

from interlock import _core
from interlock._core import AsyncLease, AsyncLeaseBatch, Lease, LeaseBatch
from interlock.runtime.concurrency import Behind
from interlock.runtime.limits import MAX_WALKED

__all__ = [
    "AsyncLease",
    "AsyncLeaseBatch",
    "DeadLetter",
    "HotKey",
    "Key",
    "Keys",
    "Kind",
    "Lease",
    "LeaseBatch",
    "Message",
    "Put",
    "QueuedMessage",
    "State",
    "Stats",
    "current_lease",
]

T = TypeVar("T")

Sequence.register(LeaseBatch)

Key = str | int | bytes
Keys = Key | Iterable[Key]
Kind = Literal["any", "keyed", "unkeyed"]
State = Literal["delayed", "waiting", "ready", "leased", "backing_off", "held", "parked"]


@dataclass(frozen=True, slots=True)
class Message(Generic[T]):
    """A cancelled message: ``shutdown(immediate=True)`` returns these."""

    id: int
    payload: T
    keys: frozenset[bytes]
    shared: frozenset[bytes]
    priority: int
    attempt: int


@dataclass(frozen=True, slots=True)
class QueuedMessage(Generic[T]):
    """An unsettled message: ``messages()`` lists these."""

    id: int
    payload: T
    keys: frozenset[bytes]
    shared: frozenset[bytes]
    priority: int
    attempt: int
    state: State
    error: str
    """The last failure, as in ``DeadLetter``; empty if it has not failed."""
    limit: tuple[str, ...] = ()
    """Its limit names, sorted (contract, clauses 26 and 27)."""
    group: str | None = None
    """Its group (clause 28)."""
    coalesce: bytes | None = None
    """Its coalescing name (clause 29), one of ``keys``."""
    behind: Behind | None = None
    """Its own outcome behind a failure (clause 31); None: the queue's."""


@dataclass(frozen=True, slots=True)
class DeadLetter(Generic[T]):
    """A message that was given up, with everything known about it."""

    id: int
    payload: T
    keys: frozenset[bytes]
    shared: frozenset[bytes]
    attempts: int
    error: str
    """The last failure: an exception's name and text, or the reason of a ``reject``."""
    priority: int


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key and its number of unsettled messages."""

    key: bytes
    depth: int


class Put(NamedTuple):
    """Result of ``put_known``."""

    id: int
    known: bool = False
    """True if the dedup string was known: this is the first message's id, and nothing was put."""
    replaced: bool = False
    """True if the payload of an earlier message with the ``coalesce`` name was replaced: this is
    that message's id."""


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts of a queue: current ones, then those since it was created."""

    # wire: stats
    unsettled: int
    """The sum of ``delayed``, ``waiting``, ``ready``, ``leased``, ``backing_off``, ``held`` and
    ``parked``."""
    bytes: int
    """Size of the unsettled messages; 0 if the queue has no ``maxbytes``."""
    delayed: int
    """Messages that are not due yet."""
    waiting: int
    """Messages blocked by an earlier conflicting message, or paused (the queue or a key)."""
    ready: int
    """Messages that can be leased now, or wait only for a limit or a rate."""
    leased: int
    """Messages being handled."""
    backing_off: int
    """Messages that failed and wait for the next attempt."""
    held: int
    """Messages that wait for an operator."""
    dead: int
    """Dead letters."""
    puts: int
    """Messages put, including requeued ones; not puts with a known dedup string."""
    leases: int
    """Messages leased."""
    acks: int
    """Messages acknowledged."""
    retries: int
    """Messages returned for a further attempt: nacks, lost leases, revocations."""
    releases: int
    """Leases released unused."""
    leases_expired: int
    """Leases that expired."""
    revoked: int
    """Leases that an operator or a handler's timeout ended."""
    dead_lettered: int
    """Messages that became dead letters, for any reason."""
    cancelled: int
    """Messages cancelled."""
    skipped: int
    """Held messages that were skipped."""
    requeued: int
    """Dead letters that were requeued."""
    deduplicated: int
    """Puts with a known dedup string."""
    messages_expired: int
    """Messages dropped because they had expired when their turn came."""
    dead_expired: int
    """Dead letters removed because of their age."""
    limited: int
    """Those of the ready messages that a lease call found waiting for a limit or a rate (clauses 26
    and 27)."""
    groups: int
    """Groups with unsettled messages (clause 28)."""
    parked: int
    """Messages that hold no place until a paused or stuck key opens (clause 31)."""
    coalesced: int
    """Puts that replaced the payload of an earlier message (clause 29); ``puts`` does not count
    them."""
    # /wire
    oldest_ready: float = field(compare=False)
    """Seconds for which the oldest ready message has been in its place, whatever its priority.

    0 if none is ready. A delayed message takes its place when it is due.
    """
    oldest_waiting: float = field(compare=False)
    """Seconds for which the oldest waiting message has been in its place; 0 if none waits.

    It is searched for behind 100 messages of each kind that can hold others up.
    """


# Set by ``with lease`` and by callers of handlers; the executor's workers keep theirs natively.
_current: contextvars.ContextVar[Any] = contextvars.ContextVar("interlock_lease")


# Tasks that call handlers: a task that a handler starts has its current lease too, and is not a
# handler.
_handlers: weakref.WeakSet[Any] = weakref.WeakSet()


def _handles_here() -> bool:
    """Return whether the caller is the handler of the current lease, which a consumer set."""
    asyncio = sys.modules.get("asyncio")
    try:
        task = None if asyncio is None else asyncio.current_task()
    except RuntimeError:
        return True
    return task is None or task in _handlers


def current_lease() -> Lease[Any]:
    """Return the lease under which the calling handler runs.

    It has its message's id, keys, attempt and token.

    Raises:
        LookupError: the caller is not a handler.
    """
    lease = _current.get(None)
    if lease is None:
        lease = _core.current_grant()
    if lease is None:
        raise LookupError(
            "current_lease(): no message is being handled here; it works inside 'with lease', "
            "handlers of consume(), and functions run by KeyedExecutor and KeyedTaskGroup"
        )
    if lease.__class__ is tuple:
        # A lease of a batch with its place: made on request.
        batch, place = lease
        lease = batch.lease(place)
    found: Lease[Any] = lease
    return found


def check_state(state: object) -> None:
    """Check the argument of ``messages(state=)``."""
    if state is None or state in get_args(State):
        return
    if not isinstance(state, str):
        raise TypeError(f"messages(): state is {type(state).__name__}; allowed: str")
    raise ValueError(f"messages(): state is {state!r}; allowed: {', '.join(get_args(State))}")


def check_walk(walk: object) -> int:
    """Return the argument of ``roots(walk=)``."""
    if not isinstance(walk, int) or isinstance(walk, bool):
        raise TypeError(f"roots(): walk is {type(walk).__name__}; allowed: int")
    if not 1 <= walk <= MAX_WALKED:
        raise ValueError(f"roots(): walk is {walk}; allowed: 1 to {MAX_WALKED:,}")
    return walk


def check_purged(what: object) -> None:
    """Check the argument of ``purge(what)``."""
    if not isinstance(what, str):
        raise TypeError(f"purge(): what is {type(what).__name__}; allowed: str")
    if what not in ("pending", "dead"):
        raise ValueError(f"purge(): what is {what!r}; allowed: 'pending', 'dead'")
