"""Replies of a server about the messages it holds (wire version 1), taken apart.

Payloads, keys and names are bytes as the server has them: whoever looks need not know how a program
encodes its payloads. Times are whole µs, as on the wire, so that what is carried on is exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from interlock.engine.nonsense import understood
from interlock.explanation import Blocker, ExplainNode, Explanation
from interlock.limits import MAX_KEYS_ON_REDIS


@dataclass(frozen=True, slots=True)
class Stored:
    """An unsettled message."""

    id: int
    sequence: int
    """Its place; of a delayed message, which has none yet, its id."""

    attempt: int
    payload: bytes
    keys: tuple[bytes, ...]
    shared: tuple[bytes, ...]
    options: dict[str, bytes]
    """The options it was put with that are not as usual, by the names of `il1_put`."""

    state: str
    """delayed, waiting, ready, leased, backing_off or held; dead of a dead letter."""

    due: int | None
    """The time its delay or backoff ends, or it died, µs since 1970; None where it has none."""

    error: str
    """Its last failure."""

    @property
    def priority(self) -> int:
        """-100 to 100."""
        return int(self.options.get("PRIORITY", b"0"))


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter."""

    id: int
    attempts: int
    time: int
    """The time when it died, µs since 1970."""

    error: str
    priority: int
    payload: bytes
    keys: tuple[bytes, ...]
    shared: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Dropped:
    """The outcome for a queue that was to be dropped."""

    gone: bool
    """False: there was none, or it has unsettled messages."""

    unsettled: int
    leased: int
    dead: int
    results: int


@dataclass(frozen=True, slots=True)
class Version:
    """The versions and features of the server that answers."""

    wire: int
    library: str
    """The library's hash, or the hub's version."""

    features: frozenset[str]

    @property
    def release(self) -> tuple[int, ...]:
        """The release that the library is of; nothing for those before the first that says it."""
        return release_of(self.release_text)

    @property
    def release_text(self) -> str:
        """The same as it was said; empty for those before."""
        told = (one.removeprefix("release=") for one in self.features if one.startswith("release="))
        return next(told, "")

    @property
    def most_keys(self) -> int:
        """Most keys of a message."""
        return next(
            (int(one[5:]) for one in self.features if KEYS.fullmatch(one)), MAX_KEYS_ON_REDIS
        )


def release_of(text: str) -> tuple[int, ...]:
    """The numbers of a release, to be compared: of 1.2.3rc1 (1, 2, 3)."""
    return tuple(int(part) for part in re.findall(r"\d{1,9}", RELEASE.match(text)[0]))  # type: ignore[index]


@understood
def version(reply: Sequence[bytes]) -> Version:
    """The reply of il1_version."""
    wire, library, *features = (part.decode() for part in reply)
    return Version(int(wire), library, frozenset(features))


@understood
def scanned(reply: Sequence[bytes]) -> tuple[bytes, list[Stored]]:
    """The reply of il1_scan: the next cursor, and messages."""
    parts = Parts(reply)
    cursor = parts.take()
    return cursor, [stored(parts) for _ in parts.rest()]


def stored(parts: Parts) -> Stored:
    """A message as il1_scan tells it."""
    id = parts.number()
    sequence = parts.maybe()
    attempt, payload = parts.number(), parts.take()
    exclusive, shared, options = parts.number(), parts.number(), parts.number()
    keys, readers = parts.some(exclusive), parts.some(shared)
    named = {parts.take().decode(): parts.take() for _ in range(options)}
    state, due, error = parts.text(), parts.maybe(), parts.text()
    return Stored(
        id, sequence or id, attempt, payload, keys, readers, named, state, due, error
    )  # fmt: skip


@understood
def letters(reply: Sequence[bytes]) -> list[Letter]:
    """The reply of il1_dead_letters."""
    parts = Parts(reply)
    return [_letter(parts) for _ in parts.rest()]


@understood
def dropped(reply: Sequence[bytes]) -> Dropped:
    """The reply of il1_drop."""
    gone, *counts = map(int, reply)
    return Dropped(bool(gone), *counts)


@understood
def explanation(reply: Sequence[bytes]) -> Explanation | None:
    """The reply of il1_explain; None for what is not there."""
    if not reply:
        return None
    parts = Parts(reply)
    truncated = parts.take() == b"1"
    return Explanation(tuple(_node(parts) for _ in range(parts.number())), truncated)


@understood
def pairs(reply: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Names and values."""
    return list(zip(reply[::2], reply[1::2], strict=True))


@understood
def numbers(reply: Sequence[bytes]) -> dict[str, int]:
    """Names and numbers."""
    return {name.decode(): int(value) for name, value in pairs(reply)}


@understood
def words(reply: Sequence[bytes]) -> dict[str, str]:
    """Names and words."""
    return {name.decode(): value.decode() for name, value in pairs(reply)}


@understood
def first(reply: Sequence[bytes]) -> bytes:
    """The first string."""
    found = reply[0]
    if type(found) is not bytes:
        raise TypeError
    return found


@understood
def number(reply: Sequence[bytes]) -> int:
    """The number that is the first string."""
    return int(first(reply))


@understood
def depths(reply: Sequence[bytes]) -> tuple[bytes, dict[bytes, int]]:
    """The reply of il1_hot: the next cursor, and of each key how deep it is."""
    cursor, *rest = reply
    return cursor, {key: int(depth) for key, depth in pairs(rest)}


@understood
def puts(reply: Sequence[bytes]) -> list[tuple[int, bool]]:
    """The reply of il1_put: of each message its id, and whether it was known."""
    return [(int(id), known == b"1") for id, known in pairs(reply)]


@understood
def restored(reply: Sequence[bytes]) -> list[tuple[int, str]]:
    """The reply of il1_restore: of each message its id, and how it stands."""
    return [(int(id), became.decode()) for id, became in pairs(reply)]


@understood
def paused(reply: Sequence[bytes]) -> tuple[bytes, set[bytes]]:
    """The reply of il1_paused: the next cursor, and keys."""
    cursor, *some = reply
    return cursor, set(some)


@understood
def names(reply: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
    """The reply of il1_queues with a cursor: the next one, and names of queues."""
    cursor, *some = reply
    return cursor, some


@understood
def scanned_keys(reply: tuple[bytes, list[bytes]]) -> tuple[bytes, list[bytes]]:
    """The reply of SCAN: the next cursor, and keys."""
    cursor, keys = reply
    if type(keys) is not list:
        raise TypeError
    return cursor, keys


@understood
def peeked(reply: Sequence[bytes]) -> Stored | None:
    """The reply of il1_peek; None for what is not there."""
    # STATE TOKEN CONSUMER DEADLINE DUE BLOCKED stand before the message.
    return stored(Parts(reply[6:])) if reply else None


class Parts:
    """A flat reply, read from its start."""

    def __init__(self, reply: Sequence[bytes]) -> None:
        self._reply = reply
        self._at = 0

    def take(self) -> bytes:
        """The next part."""
        part = self._reply[self._at]
        self._at += 1
        return part

    def number(self) -> int:
        """The next part, a number."""
        return int(self.take())

    def maybe(self) -> int | None:
        """The next part, a number or nothing."""
        part = self.take()
        return int(part) if part else None

    def seconds(self) -> float | None:
        """The next part, a duration or nothing."""
        part = self.maybe()
        return None if part is None else part / 1e6

    def text(self) -> str:
        """The next part, words; what is no UTF-8 is escaped."""
        return self.take().decode(errors="backslashreplace")

    def some(self, count: int) -> tuple[bytes, ...]:
        """So many parts."""
        return tuple(self.take() for _ in range(count))

    def rest(self) -> Iterator[None]:
        """As long as there is more."""
        while self._at < len(self._reply):
            yield


def _letter(parts: Parts) -> Letter:
    id, attempts, time, error = parts.number(), parts.number(), parts.number(), parts.text()
    priority, payload = parts.number(), parts.take()
    exclusive, shared = parts.number(), parts.number()
    return Letter(
        id, attempts, time, error, priority, payload, parts.some(exclusive), parts.some(shared)
    )


def _node(parts: Parts) -> ExplainNode:
    id, state, attempt = parts.number(), parts.text(), parts.number()
    age = parts.seconds()
    consumer = parts.text()
    held_for, lease_left, due_in = parts.seconds(), parts.seconds(), parts.seconds()
    paused = parts.some(parts.number())
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
    )


def _blocker(parts: Parts) -> Blocker:
    key, ahead, exact = parts.take(), parts.number(), parts.take() == b"1"
    holders = tuple(int(id) for id in parts.some(parts.number()))
    return Blocker(key=key or None, holders=holders, ahead=ahead, exact=exact)


KEYS = re.compile(r"keys=\d{1,9}")
RELEASE = re.compile(r"[\d.]*")
