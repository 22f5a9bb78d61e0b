"""The format of wire version 1: arguments put together, replies taken apart, errors named.

The only module that knows it; docs/reference/engine-wire.md says what each part means. Times are
µs here, and nowhere above.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from interlock.engine.nonsense import NOT_UNDERSTOOD, nonsense, understood
from interlock.engine.records import first, words
from interlock.engine.request import Argument
from interlock.failure import kept
from interlock.limits import MAX_BATCH, MAX_CALL, MAX_PAYLOAD
from interlock.message import Put, Stats
from interlock.retry import Retry

Settlement = tuple[Argument, ...]


@dataclass(slots=True)
class Message:
    """A message as a put sends it."""

    payload: bytes
    keys: tuple[bytes, ...] = ()
    shared: tuple[bytes, ...] = ()
    options: tuple[Argument, ...] = ()
    """Names and values."""

    def arguments(self) -> tuple[Argument, ...]:
        """As il1_put takes it."""
        keys, shared, options = self.keys, self.shared, self.options
        counts = (len(keys), len(shared), len(options) // 2)
        return (self.payload, *counts, *keys, *shared, *options)


@dataclass(slots=True)
class Handed:
    """A message as a lease hands it out."""

    id: int
    sequence: int
    attempt: int
    payload: bytes
    keys: frozenset[bytes]
    shared: frozenset[bytes]
    quiet: bool
    """Whoever handles it says nothing of that."""


@dataclass(slots=True)
class Leased:
    """The answer to a call to lease; without messages, it says when to ask again."""

    token: int
    messages: list[Handed]
    due: float | None
    """Seconds until something falls due; None: nothing will."""
    sealed: bool
    """The queue is sealed, and nothing in it is unsettled."""


def micros(seconds: float) -> int:
    """A duration as the wire has it."""
    return round(min(seconds, 1e9) * 1e6) if seconds else 0


def put_options(
    *,
    priority: int = 0,
    delay: float = 0,
    dedup: str | None = None,
    window: float | None = None,
    barrier: bool = False,
    result: float = 0,
    quiet: bool = False,
    retry: Retry | None = None,
) -> tuple[Argument, ...]:
    """The names and values of a put; what is as usual is left out."""
    found: list[Argument] = []
    if priority:
        found += ["PRIORITY", priority]
    if delay:
        found += ["DELAY", micros(delay)]
    if dedup is not None:
        found += ["DEDUP", dedup.encode()]
        if window is not None:
            found += ["WINDOW", micros(window)]
    if barrier:
        found += ["BARRIER", 1]
    if result:
        found += ["RESULT", micros(result)]
    if quiet:
        found += ["QUIET", 1]
    if retry is not None:
        found += policy(retry)
    return tuple(found)


def policy(retry: Retry) -> list[Argument]:
    """A retry policy, as a put or a declaration names it."""
    return [
        *("ATTEMPTS", retry.attempts or 0),
        *("FIRST", micros(retry.first)),
        *("FACTOR", round(min(retry.factor, 1e9) * 1000)),
        *("LONGEST", micros(retry.longest)),
        *("JITTER", int(retry.jitter)),
        *("THEN", retry.then),
    ]


def acking(token: int, id: int, result: bytes | None = None) -> Settlement:
    """Settles the message."""
    return ("ACK", token, id) if result is None else ("DONE", token, id, result)


def nacking(token: int, id: int, delay: float | None, error: str) -> Settlement:
    """Back to its place after `delay` seconds; None: after its policy's backoff."""
    return ("NACK", token, id, "" if delay is None else micros(delay), text(error))


def rejecting(token: int, id: int, reason: str) -> Settlement:
    """A dead letter."""
    return ("REJECT", token, id, text(reason))


def exhausting(token: int, id: int, error: str) -> Settlement:
    """As if its attempts were used up: a dead letter, or held, as its policy says."""
    return ("EXHAUST", token, id, text(error))


def releasing(token: int, id: int) -> Settlement:
    """Back to its place, as it was."""
    return ("RELEASE", token, id)


def text(value: str) -> bytes:
    """An error or a reason, cut to what the wire takes."""
    return kept(value).encode()


def parts(settlements: Sequence[Settlement]) -> list[Sequence[Settlement]]:
    """The settlements as one call each takes them: in order, and as few parts as can be."""
    # So few are within both bounds, whatever their results.
    if len(settlements) <= _SURELY:
        return [settlements]
    found: list[Sequence[Settlement]] = []
    start = size = 0
    for at, one in enumerate(settlements):
        last = one[-1]
        more = len(last) if isinstance(last, bytes) else 0
        if at - start == MAX_BATCH or size + more > MAX_CALL:
            found.append(settlements[start:at])
            start, size = at, 0
        size += more
    found.append(settlements[start:])
    return found


def puts(reply: Sequence[bytes], count: int) -> list[Put]:
    """The reply of il1_put to so many messages."""
    try:
        if count == 1:
            id, known = reply
            return [Put(int(id), known == b"1")]
        if len(reply) != 2 * count:
            raise ValueError
        each = zip(reply[::2], reply[1::2], strict=True)
        return [Put(int(id), known == b"1") for id, known in each]
    except NOT_UNDERSTOOD:
        raise nonsense(reply) from None


def leased(reply: Sequence[bytes], at: int = 0) -> Leased:
    """The reply of il1_lease, from `at` on."""
    try:
        return _leased(reply, at)
    except NOT_UNDERSTOOD:
        raise nonsense(reply) from None


def _leased(reply: Sequence[bytes], at: int) -> Leased:
    token, _deadline, due, count = reply[at : at + 4]
    at += 4
    messages = []
    for _ in range(int(count)):
        id, sequence, attempt, payload, exclusive, shared = reply[at : at + 6]
        middle = at + 6 + int(exclusive)
        end = middle + int(shared)
        # With a minus before it, of a quiet message.
        number = int(attempt)
        messages.append(
            Handed(
                int(id),
                int(sequence or id),
                number if number > 0 else -number,
                payload,
                frozenset(reply[at + 6 : middle]),
                frozenset(reply[middle:end]),
                number < 0,
            )
        )
        at = end
    sealed = due == b"sealed"
    left = None if sealed or not due else int(due) / 1e6
    return Leased(int(token or 0), messages, left, sealed)


@understood
def answered(reply: Sequence[bytes], settled: int) -> tuple[list[bytes], Leased]:
    """The reply of il1_next: of each of so many settlements its answer, and the lease."""
    end = 1 + settled
    if int(reply[0]) != settled:
        raise ValueError
    return list(reply[1:end]), leased(reply, end)


@understood
def joined(reply: Sequence[bytes]) -> tuple[int, float | None]:
    """The reply of il1_join: how many are unsettled; in how many seconds something is due."""
    left, due = reply
    return int(left), _span(due)


@understood
def answer(settled: bytes) -> str:
    """The outcome of a message's settlement, in a word."""
    return _ANSWERS[settled]


def stats(counted: dict[str, int]) -> Stats:
    """As KeyedQueue counts them."""
    return Stats(**{field.name: counted.get(field.name, 0) for field in fields(Stats)})


def _span(part: bytes) -> float | None:
    return int(part) / 1e6 if part else None


@understood
def bounds(reply: Sequence[bytes]) -> tuple[int, int]:
    """MAXSIZE and MAXBYTES of what il1_configure answers."""
    found = words(reply)
    return int(found["MAXSIZE"]), int(found["MAXBYTES"])


@understood
def ended(reply: Sequence[bytes]) -> tuple[bytes, bytes]:
    """The reply of il1_result: how the message stands, and its result or error."""
    state = first(reply)
    return state, reply[1] if state in (b"done", b"failed") else b""


MAX_EXPLAINED = 1000
_SURELY = MAX_CALL // (2 * MAX_PAYLOAD)
LOST = b"LEASELOST"
_ANSWERS = {
    b"ACKED": "acked",
    b"RETRIED": "retried",
    b"DEAD": "dead",
    b"HELD": "held",
    b"RELEASED": "released",
    LOST: "lost",
}
