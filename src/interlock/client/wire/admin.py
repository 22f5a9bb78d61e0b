"""The format of wire version 1 for watching and operating a queue: requests and their replies.

Each request receives `call`, which calls a function of one queue and returns its reply. Puts,
leases and settlements are in `wire`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal, Protocol

from interlock.client.request import Argument, Request
from interlock.client.wire import events as told_events
from interlock.client.wire import worker_directory
from interlock.client.wire.bad_reply import understood
from interlock.client.wire.events import Events
from interlock.client.wire.flat_reply import Parts
from interlock.client.wire.messages import Sleep, first, micros
from interlock.client.wire.records import Dropped, Letter, NewKeys, Stored, Version
from interlock.client.wire.worker_directory import Announced, Asked
from interlock.explanation import (
    Blocker,
    ExplainNode,
    Explanation,
    FullLimit,
    LimitUse,
    Parked,
    Turn,
)
from interlock.message import Stats
from interlock.roots import Found, Roots
from interlock.runtime.limits import MAX_BATCH, MAX_HISTORY


class Call(Protocol):
    """A way to call the functions of one queue; see `Engine.call`."""

    def __call__(
        self,
        function: str,
        *arguments: Argument,
        wait: float = 0,
        again: bool = True,
        sleep: Sleep | None = None,
    ) -> Request[list[bytes]]:
        """Call `il1_` and `function` on the queue, and return the reply."""
        ...


# -- Watching -------------------------------------------------------------------------------------


def stats(call: Call) -> Request[dict[str, int]]:
    """Return all counts of il1_stats, by name; and `time`, the engine's, µs since 1970."""
    return numbers((yield from call("stats")))


def configured(call: Call, *options: Argument) -> Request[dict[str, str]]:
    """Declare options, names and values; return the options in force, by name."""
    return words((yield from call("configure", *options)))


Part = Literal["dead", "newest", "key", "delayed", "rising"]
"""Part that il1_scan reads: dead letters, a key's lane, or a key's delayed messages; rising: all
messages in the order of their ids, from a server with the feature ``ordered``."""


def scan(
    call: Call, cursor: bytes, count: int, part: Part | None = None, key: bytes | None = None
) -> Request[tuple[bytes, list[Stored]]]:
    """Return the next cursor, b"0" at the end, and some unsettled messages, or dead letters."""
    more = [one for one in (part, key) if one is not None]
    return scanned((yield from call("scan", cursor, count, *more)))


def scan_ids(call: Call, after: int, ids: Sequence[int]) -> Request[tuple[int, list[Stored]]]:
    """Return the unsettled messages among those with these ascending ids, as far as one reply holds
    them, and the id that ends the reply; 0 if it holds all."""
    cursor, found = scanned((yield from call("scan", after, len(ids), "ids", *ids)))
    return int(cursor), found


def scan_larger(
    call: Call, cursor: bytes, count: int, least: int, state: object
) -> Request[tuple[bytes, int, Sequence[int]]]:
    """Return the next cursor, b"0" at the end; the last number that the queue has given; and ids
    larger than one, of the unsettled messages in a state (None: of all). Servers with the feature
    ``larger`` have it."""
    more = [] if state is None else [str(state)]
    return ids_found((yield from call("scan", cursor, count, "larger", least, *more)))


def scan_front(
    call: Call, count: int, least: int, state: object
) -> Request[tuple[int | None, Sequence[int]]]:
    """Return the last id found, 0 if no more follow, None if only a scan finds them; and the first
    ids above one, of the unsettled messages in a state (None: of all). Servers with the feature
    ``front`` have it."""
    more = [] if state is None else [str(state)]
    return first_ids((yield from call("scan", 0, count, "front", least, *more)))


def peek(call: Call, id: int) -> Request[Stored | None]:
    """Return an unsettled message, or a dead letter; None if this id is unknown."""
    return peeked((yield from call("peek", id)))


def lease_token(call: Call, id: int) -> Request[int | None]:
    """Return the token of the lease that has a message; None if it is not leased."""
    reply = yield from call("peek", id)
    # STATE TOKEN ...
    return int(reply[1]) if reply and reply[1] else None


def explain(
    call: Call, what: Literal["id", "key"], named: int | bytes, limit: int
) -> Request[Explanation | None]:
    """Explain why a message waits, or what blocks a key.

    Return None if it does not exist.
    """
    return explanation((yield from call("explain", what, named, limit)))


def roots(call: Call, limit: int, slow_wait: float, walk: int) -> Request[Roots]:
    """Return what blocks other messages, and how many wait for it."""
    told = yield from found_roots(call, limit, slow_wait)
    counts = []
    for root in told.roots:
        counts.append((yield from count_blocked(call, walk, *root.named())))
    total = (yield from count_blocked(call, walk, *told.named())) if counts else (0, True)
    return told.counted(counts, total)


def found_roots(call: Call, limit: int, slow_wait: float) -> Request[Found]:
    """Return what blocks other messages, without counting those that wait for each."""
    return roots_found((yield from call("roots", micros(slow_wait), min(limit, MAX_BATCH))))


def count_blocked(
    call: Call, walk: int, ids: Sequence[int], keys: Sequence[bytes]
) -> Request[tuple[int, bool]]:
    """Return how many messages wait behind these, and whether that is all."""
    named: list[Argument] = [part for id in ids for part in ("id", id)]
    named += [part for key in keys for part in ("key", key)]
    return blocked((yield from call("blocked", walk, *named)))


def hot(call: Call, cursor: bytes) -> Request[tuple[bytes, dict[bytes, int]]]:
    """Return the next cursor, b"0" at the end, and the number of messages on some keys."""
    return depths((yield from call("hot", cursor)))


def limits(call: Call, count: int) -> Request[tuple[int, list[LimitUse]]]:
    """Return how many limit names messages wait for; and, of those and the declared ones, what is
    used of each, of ``count`` with most waiting messages."""
    return limits_used((yield from call("limits", min(count, MAX_BATCH))))


def dead_letters(
    call: Call, count: int, after: int | None, key: bytes | None = None
) -> Request[list[Letter]]:
    """Return up to ``count`` dead letters in the order of their deaths, with a key those on it.

    They follow the one with this id, if it is not None. A server without the feature ``ordered``
    searches only some of the dead letters for the key.
    """
    more = [] if key is None else [key]
    return letters((yield from call("dead_letters", count, "" if after is None else after, *more)))


def paused(call: Call, cursor: bytes) -> Request[tuple[bytes, set[bytes]]]:
    """Return the next cursor, b"0" at the end, and paused keys.

    An empty key stands for the whole queue.
    """
    return paused_keys((yield from call("paused", cursor)))


def result(
    call: Call, id: int, wait: float, sleep: Sleep | None = None
) -> Request[tuple[bytes, bytes]]:
    """Return the state of a message that may be settled, and its result or error."""
    return ended((yield from call("result", id, micros(wait), wait=wait, sleep=sleep)))


def join(
    call: Call, wait: float, *id: int, sleep: Sleep | None = None
) -> Request[tuple[int, float | None]]:
    """Return the number of unsettled messages, or of those with one id.

    It comes with the seconds until something is due.
    """
    return joined((yield from call("join", micros(wait), *id, wait=wait, sleep=sleep)))


def events(call: Call, after: int | None, count: int, seconds: float) -> Request[Events]:
    """Note a watcher for this time; return up to ``count`` events after the one of a number.

    None: no events, only the current number.
    """
    named = "" if after is None else after
    return told_events.events((yield from call("events", named, count, micros(seconds))))


def workers(call: Call, after: str, count: int) -> Request[list[Announced]]:
    """Return up to ``count`` workers with names after this one."""
    named = after.encode(errors="surrogateescape")
    return worker_directory.workers((yield from call("workers", named, count)))


def announce(call: Call, worker: str, seconds: float, text: str) -> Request[list[Asked]]:
    """Announce a worker for this time; return the requests that were left for it."""
    said = text.encode(errors="backslashreplace")
    reply = yield from call("announce", worker.encode(), micros(seconds), said)
    return worker_directory.requests(reply)


# -- Operating ------------------------------------------------------------------------------------


def change(call: Call, function: str, *arguments: Argument, again: bool = True) -> Request[bool]:
    """Call cancel, revoke, retry, skip, bury, discard, forget, seal or reopen.

    Return True if that changed something.
    """
    return first((yield from call(function, *arguments, again=again))) == b"1"


def gate(
    call: Call, function: Literal["pause", "resume"], keys: Sequence[bytes]
) -> Request[list[bool]]:
    """Pause or resume keys, or the queue; return True for each that changed."""
    return [one == b"1" for one in (yield from call(function, *keys))]


def requeue(
    call: Call,
    id: int,
    payload: bytes | None = None,
    keys: NewKeys | None = None,
    again: bool = True,
) -> Request[int | None]:
    """Requeue a dead letter, or a copy with another payload and, with that, other keys and names.

    Return its new id, None if the dead letter does not exist.
    """
    edited: tuple[Argument, ...] = () if payload is None else (payload,)
    if keys is not None:
        edited += (len(keys.exclusive), len(keys.shared), *keys.exclusive, *keys.shared)
        edited += () if keys.names is None else keys.names.texts()
    reply = yield from call("requeue", id, *edited, again=again)
    return number(reply) if reply else None


def ask(call: Call, worker: str, text: str) -> Request[int | None]:
    """Leave a request for a worker; return its number, None if that worker is not announced."""
    reply = yield from call("ask", worker.encode(errors="surrogateescape"), text.encode())
    return number(reply) if reply else None


def purge(call: Call, what: str) -> Request[int]:
    """Cancel or drop some; return the number, 0 once nothing is left."""
    return number((yield from call("purge", what)))


def drop(call: Call, force: bool) -> Request[Dropped]:
    """Remove a queue; with `force` even if messages are unsettled."""
    return dropped((yield from call("drop", *(("FORCE",) if force else ()))))


def restore(
    call: Call, window: int, items: Sequence[tuple[str, Stored]]
) -> Request[list[tuple[int, str]]]:
    """Put messages with their state from another queue, each with a mark that is known for `window`
    µs.

    Return the id and the state of each.
    """
    flat = [part for mark, one in items for part in _restored(mark, one)]
    return restored((yield from call("restore", window, *flat)))


def _restored(mark: str, one: Stored) -> list[Argument]:
    state = "waiting" if one.state in ("ready", "leased") else one.state
    pairs = [part for pair in one.options.items() for part in pair]
    counts = (len(one.keys), len(one.shared), len(one.options))
    stood = (mark, state, max(one.attempt, 1), one.due or 0, one.history[:MAX_HISTORY])
    return [*stood, one.payload, *counts, *one.keys, *one.shared, *pairs]


# -- Replies --------------------------------------------------------------------------------------


@understood
def joined(reply: Sequence[bytes]) -> tuple[int, float | None]:
    """Parse the reply of il1_join."""
    left, due = reply
    return int(left), int(due) / 1e6 if due else None


@understood
def bounds(options: dict[str, str]) -> tuple[int, int]:
    """Return MAXSIZE and MAXBYTES of declared options."""
    return int(options["MAXSIZE"]), int(options["MAXBYTES"])


@understood
def ended(reply: Sequence[bytes]) -> tuple[bytes, bytes]:
    """Parse the reply of il1_result."""
    state = first(reply)
    return state, reply[1] if state in (b"acked", b"dead", b"expired") else b""


def counts(counted: dict[str, int]) -> Stats:
    """Return the counts as KeyedQueue has them."""
    named: dict[str, Any] = {field.name: counted.get(field.name, 0) for field in fields(Stats)}
    return Stats(**named | {name: age(counted, name) for name in OLDEST})


def age(counted: dict[str, int], name: str) -> float:
    """Return how many seconds the oldest message named by ``oldest_ready`` or ``oldest_waiting``
    has waited, by the engine's clock; 0 if there is no such message."""
    since = counted.get(name, 0)
    # An engine of an older release does not report its time.
    now = counted["time"] / 1e6 if "time" in counted else time.time()
    return max(now - since / 1e6, 0.0) if since else 0.0


@understood
def version(reply: Sequence[bytes]) -> Version:
    """Parse the reply of il1_version."""
    wire, library, *features = (part.decode() for part in reply)
    return Version(int(wire), library, frozenset(features))


@understood
def scanned(reply: Sequence[bytes]) -> tuple[bytes, list[Stored]]:
    """Parse the reply of il1_scan: the next cursor, and messages."""
    parts = Parts(reply)
    cursor = parts.take()
    return cursor, [stored(parts) for _ in parts.rest()]


@understood
def ids_found(reply: Sequence[bytes]) -> tuple[bytes, int, Sequence[int]]:
    """Parse the reply of il1_scan of ids: the next cursor, the last number given, and ids."""
    cursor, last, *ids = reply
    return cursor, int(last), list(map(int, ids))


@understood
def first_ids(reply: Sequence[bytes]) -> tuple[int | None, Sequence[int]]:
    """Parse the reply of il1_scan of the first ids: the last one, and all."""
    last, *ids = reply
    return int(last) if last else None, list(map(int, ids))


def stored(parts: Parts) -> Stored:
    """Read a message in the form of il1_scan."""
    id = parts.number()
    sequence = parts.maybe()
    attempt, payload = parts.number(), parts.take()
    exclusive, shared, options = parts.number(), parts.number(), parts.number()
    keys, readers = parts.some(exclusive), parts.some(shared)
    named = {parts.take().decode(): parts.take() for _ in range(options)}
    state, due, history = parts.text(), parts.maybe(), parts.take()
    return Stored(
        id, sequence or id, attempt, payload, keys, readers, named, state, due, history
    )  # fmt: skip


@understood
def letters(reply: Sequence[bytes]) -> list[Letter]:
    """Parse the reply of il1_dead_letters."""
    parts = Parts(reply)
    return [_letter(parts) for _ in parts.rest()]


@understood
def dropped(reply: Sequence[bytes]) -> Dropped:
    """Parse the reply of il1_drop."""
    gone, *counts = map(int, reply)
    return Dropped(bool(gone), *counts)


@understood
def explanation(reply: Sequence[bytes]) -> Explanation | None:
    """Parse the reply of il1_explain; None if the subject does not exist."""
    if not reply:
        return None
    parts = Parts(reply)
    truncated = parts.take() == b"1"
    return Explanation(tuple(_node(parts) for _ in range(parts.number())), truncated)


@understood
def roots_found(reply: Sequence[bytes]) -> Found:
    """Parse the reply of il1_roots."""
    parts = Parts(reply)
    found, exact = parts.number(), parts.take() == b"1"
    rows = [
        (parts.text(), parts.maybe(), parts.take(), parts.number(), parts.seconds(), parts.text())
        for _ in parts.rest()
    ]
    return Found.read(found, exact, rows)


@understood
def blocked(reply: Sequence[bytes]) -> tuple[int, bool]:
    """Parse the reply of il1_blocked."""
    count, exact = reply
    return int(count), exact == b"1"


@understood
def pairs(reply: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Return names and values in pairs."""
    return list(zip(reply[::2], reply[1::2], strict=True))


@understood
def numbers(reply: Sequence[bytes]) -> dict[str, int]:
    """Return numbers by their names."""
    return {name.decode(): int(value) for name, value in pairs(reply)}


@understood
def words(reply: Sequence[bytes]) -> dict[str, str]:
    """Return words by their names. Limit names of other languages' clients are any bytes."""
    return {name.decode(): value.decode(errors="surrogateescape") for name, value in pairs(reply)}


@understood
def number(reply: Sequence[bytes]) -> int:
    """Return the first string as a number."""
    return int(first(reply))


@understood
def depths(reply: Sequence[bytes]) -> tuple[bytes, dict[bytes, int]]:
    """Parse the reply of il1_hot: the next cursor, and the depth of each key."""
    cursor, *rest = reply
    return cursor, {key: int(depth) for key, depth in pairs(rest)}


@understood
def limits_used(reply: Sequence[bytes]) -> tuple[int, list[LimitUse]]:
    """Parse the reply of il1_limits."""
    parts = Parts(reply)
    awaited = parts.number()
    found = []
    for _ in parts.rest():
        name, most, interval, burst = parts.take(), parts.maybe(), parts.maybe(), parts.maybe()
        leased, waiting, keeper = parts.number(), parts.number(), parts.maybe()
        use = name, most, interval, burst, leased, waiting, keeper, parts.maybe(), parts.maybe()
        found.append(LimitUse.of(*use))
    return awaited, found


@understood
def restored(reply: Sequence[bytes]) -> list[tuple[int, str]]:
    """Parse the reply of il1_restore: the id and the state of each message."""
    return [(int(id), became.decode()) for id, became in pairs(reply)]


@understood
def paused_keys(reply: Sequence[bytes]) -> tuple[bytes, set[bytes]]:
    """Parse the reply of il1_paused: the next cursor, and keys."""
    cursor, *some = reply
    return cursor, set(some)


@understood
def names(reply: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
    """Parse the reply of il1_queues with a cursor: the next one, and names of queues."""
    cursor, *some = reply
    return cursor, some


@understood
def scanned_keys(reply: tuple[bytes, list[bytes]]) -> tuple[bytes, list[bytes]]:
    """Parse the reply of SCAN: the next cursor, and keys."""
    cursor, keys = reply
    if type(keys) is not list:
        raise TypeError
    return cursor, keys


@understood
def peeked(reply: Sequence[bytes]) -> Stored | None:
    """Parse the reply of il1_peek; None if the message does not exist."""
    # STATE TOKEN CONSUMER DEADLINE DUE BLOCKED precede the message.
    return stored(Parts(reply[6:])) if reply else None


def _letter(parts: Parts) -> Letter:
    id, attempts, time, history = parts.number(), parts.number(), parts.number(), parts.take()
    priority, payload = parts.number(), parts.take()
    exclusive, shared = parts.number(), parts.number()
    return Letter(
        id, attempts, time, history, priority, payload, parts.some(exclusive), parts.some(shared)
    )


def _node(parts: Parts) -> ExplainNode:
    id, state, attempt = parts.number(), parts.text(), parts.number()
    age = parts.seconds()
    consumer = parts.text()
    held_for, lease_left, due_in = parts.seconds(), parts.seconds(), parts.seconds()
    paused = parts.some(parts.number())
    limits = tuple(_full(parts) for _ in range(parts.number()))
    has_turn = parts.number() > 0
    turn = Turn(parts.text(), parts.number(), parts.number()) if has_turn else None
    parked = _parked(parts) if parts.number() else None
    blocked = tuple(_blocker(parts) for _ in range(parts.number()))
    return ExplainNode(
        id=id,
        state=state,
        attempt=attempt,
        age=age or 0.0,
        consumer=consumer,
        held_for=held_for,
        lease_left=lease_left,
        due_in=due_in,
        paused=paused,
        blocked=blocked,
        limits=limits,
        turn=turn,
        parked=parked,
    )


def _full(parts: Parts) -> FullLimit:
    name, most, leased, keeper = parts.text(), parts.maybe(), parts.number(), parts.maybe()
    next_in = parts.seconds()
    holders = tuple(int(id) for id in parts.some(parts.number()))
    return FullLimit(name, most, leased, keeper, next_in, holders)


def _parked(parts: Parts) -> Parked:
    key, since = parts.take(), parts.seconds()
    times, ahead, paused = parts.number(), parts.number(), parts.take() == b"1"
    behind = tuple(int(id) for id in parts.some(parts.number()))
    return Parked(key, since or 0.0, times, ahead, paused, behind)


def _blocker(parts: Parts) -> Blocker:
    key, ahead, exact = parts.take(), parts.number(), parts.take() == b"1"
    holders = tuple(int(id) for id in parts.some(parts.number()))
    return Blocker(key=key or None, holders=holders, ahead=ahead, exact=exact)


OLDEST = ("oldest_ready", "oldest_waiting")
"""Counts that are times, µs since 1970."""
