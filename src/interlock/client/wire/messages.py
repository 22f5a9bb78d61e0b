"""The format of wire version 1 for puts, leases and settlements: requests and their replies.

Only this module and `wire_queue`, which has the rest, know the format;
docs/reference/engine-wire.md describes each part. Times are in µs here, and nowhere above.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interlock.client.request import Argument, Request
from interlock.client.wire.bad_reply import NOT_UNDERSTOOD, nonsense, understood
from interlock.failure import kept
from interlock.message import Put
from interlock.retry import Retry
from interlock.runtime.concurrency import Behind
from interlock.runtime.limits import MAX_BATCH, MAX_CALL, MAX_ERROR, MAX_PAYLOAD

if TYPE_CHECKING:
    from interlock.client.connection.call import Engine
    from interlock.client.session import Session

Settlement = tuple[Argument, ...]
Sleep = tuple[tuple[Argument, ...], float]
"""A waiting command, sent together with the call after it, and its maximum seconds."""


@dataclass(slots=True)
class Message:
    """A message in the form of a put."""

    payload: bytes
    keys: tuple[bytes, ...] = ()
    shared: tuple[bytes, ...] = ()
    options: tuple[Argument, ...] = ()
    """Names and values."""

    def arguments(self) -> tuple[Argument, ...]:
        """Return the message in the form of il1_put."""
        keys, shared, options = self.keys, self.shared, self.options
        counts = (len(keys), len(shared), len(options) // 2)
        return (self.payload, *counts, *keys, *shared, *options)


@dataclass(slots=True)
class Handed:
    """A message in the form of a lease."""

    id: int
    sequence: int
    attempt: int
    payload: bytes
    keys: frozenset[bytes]
    shared: frozenset[bytes]
    quiet: bool
    """Its handling is not logged."""


class Leased:
    """The answer to a lease call; without messages, it says when to ask again.

    It keeps the reply: a message object is made from its part of that on demand.
    """

    __slots__ = (
        "_at", "_messages", "alone", "count", "deadline", "due", "reply", "sealed", "token",
    )  # fmt: skip

    def __init__(
        self,
        token: int,
        deadline: int,
        reply: Sequence[bytes],
        at: int,
        count: int,
        due: float | None,
        sealed: bool,
        alone: bool,
    ) -> None:
        self.token = token
        self.deadline = deadline
        """µs, by the engine's clock; 0: nothing is leased."""
        self.reply = reply
        self.count = count
        self.due = due
        """Seconds until something falls due; None: nothing will."""
        self.sealed = sealed
        """The queue is sealed, and has no unsettled message."""
        self.alone = alone
        """A lease of its only message expired while its handler may have run: it must be handled
        alone in its process, so that it takes no other message down with it."""
        self._at = at
        self._messages: list[Handed] | None = None

    @property
    def messages(self) -> list[Handed]:
        """The messages, made once."""
        if self._messages is None:
            places = self.places()
            try:
                self._messages = [_handed(self.reply, place) for place in places]
            except NOT_UNDERSTOOD:
                raise nonsense(self.reply) from None
        return self._messages

    def places(self) -> Sequence[int]:
        """Return the position in the reply at which each message begins; see ``handed``."""
        try:
            return _places(self.reply, self._at, self.count)
        except NOT_UNDERSTOOD:
            raise nonsense(self.reply) from None


def micros(seconds: float) -> int:
    """Return a duration in the form of the wire."""
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
    limit: bytes = b"",
    group: str = "",
    behind: Behind | None = None,
    coalesce: tuple[bytes, float, float] | None = None,
    run: str = "",
) -> tuple[Argument, ...]:
    """Return the names and values of a put; defaults are left out.

    `coalesce`: the coalescing name, and the seconds of debounce and their longest, 0 without.
    """
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
    if limit:
        found += ["LIMIT", limit]
    if group:
        found += ["GROUP", group.encode()]
    if behind is not None:
        found += ["BEHIND", behind]
    if coalesce is not None:
        name, debounce, longest = coalesce
        found += ["COALESCE", name]
        if debounce:
            found += ["DEBOUNCE", micros(debounce), "WITHIN", micros(longest)]
    if run:
        found += ["RUN", run.encode()]
    if retry is not None:
        found += policy(retry)
    return tuple(found)


def follow(message: Message, before: Argument) -> Message:
    """Return the message as one that is put only where this dedup string is known."""
    return dataclasses.replace(message, options=(*message.options, "AFTER", before))


def dedup(message: Message) -> Argument:
    """Return the dedup string of a message that has one."""
    return message.options[message.options.index("DEDUP") + 1]


def policy(retry: Retry) -> list[Argument]:
    """Return a retry policy in the form of a put or a declaration."""
    return [
        *("ATTEMPTS", retry.attempts or 0),
        *("FIRST", micros(retry.first)),
        *("FACTOR", round(min(retry.factor, 1e9) * 1000)),
        *("LONGEST", micros(retry.longest)),
        *("JITTER", int(retry.jitter)),
        *("THEN", retry.then),
    ]


def acking(token: int, id: int, result: bytes | None = None) -> Settlement:
    """Return the settlement that acknowledges the message."""
    return ("ACK", token, id) if result is None else ("DONE", token, id, result)


def nacking(token: int, id: int, delay: float | None, error: str) -> Settlement:
    """Return the settlement that returns the message to its position after `delay` seconds.

    None: after its policy's backoff.
    """
    return ("NACK", token, id, "" if delay is None else micros(delay), text(error))


def rejecting(token: int, id: int, reason: str) -> Settlement:
    """Return the settlement that makes the message a dead letter."""
    return ("REJECT", token, id, text(reason))


def exhausting(token: int, id: int, error: str) -> Settlement:
    """Return the settlement that treats the message's attempts as used up.

    It becomes a dead letter, or is held, by its policy.
    """
    return ("EXHAUST", token, id, text(error))


def dropping(token: int, id: int, reason: str) -> Settlement:
    """Return the settlement of a message that had expired before a handler began."""
    return ("DROP", token, id, text(reason))


def releasing(token: int, id: int) -> Settlement:
    """Return the settlement that returns the message to its position, unchanged."""
    return ("RELEASE", token, id)


def deferring(token: int, id: int, delay: float) -> Settlement:
    """Return the settlement that returns the message to its position, unchanged.

    It is leased again `delay` seconds later, and its lanes stay closed until then.
    """
    return ("DEFER", token, id, micros(delay))


def closing(token: int, id: int, delay: float, error: str, limit: str, counts: bool) -> Settlement:
    """Return the settlement that returns the message to its position after `delay` seconds, and
    closes a limit name to all messages until then.

    `counts`: the attempt failed, as by `nacking`; else as by `deferring`.
    """
    return ("CLOSE", token, id, micros(delay), text(error), limit.encode(), int(counts))


def text(value: str) -> bytes:
    """Return an error or a reason, cut to the limit of the wire."""
    return kept(value, MAX_ERROR).encode()


def _as_before(one: Settlement) -> Settlement:
    """Return a settlement for an older server that keeps shorter errors, and knows neither DEFER
    nor DROP nor CLOSE."""
    if one[0] == "CLOSE":
        one = ("NACK", *one[1:5])
    if one[0] == "DEFER":
        return ("NACK", *one[1:], b"deferred")
    if one[0] == "DROP":
        one = ("REJECT", *one[1:])
    if one[0] in ("NACK", "REJECT", "EXHAUST"):
        last = one[-1]
        assert type(last) is bytes
        return (*one[:-1], kept(last.decode()).encode())
    return one


def parts(settlements: Sequence[Settlement]) -> list[Sequence[Settlement]]:
    """Return the settlements split by call: in order, and in as few parts as possible."""
    # This few are within both bounds, whatever their results.
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


def put(
    engine: Engine,
    session: Session[Any],
    key: str,
    messages: Sequence[Message],
    wait: float,
    within: float | None = None,
    final: str = "",
) -> Request[list[Put]]:
    """Call il1_put once, under the session's next number; see `Engine.call`."""
    arguments: Sequence[Argument]
    if len(messages) == 1:
        arguments = messages[0].arguments()
    else:
        arguments = [argument for message in messages for argument in message.arguments()]
    session.calls += 1
    asked = (session.consumer, session.calls, micros(wait), *arguments)
    reply = yield from engine.call(
        session, "put", key, *asked, wait=wait, within=within, final=final
    )
    return puts(reply, len(messages))


def take(
    engine: Engine,
    session: Session[Any],
    key: str,
    call: int,
    settlements: Sequence[Settlement],
    lease: tuple[int, int, str],
    wait: float = 0,
    sleep: Sleep = ((), 0.0),
) -> Request[tuple[list[bytes], Leased]]:
    """Call il1_next, or il1_lease if there is nothing to settle, under a number.

    Args:
        settlements: at most one call's; see `parts`.
        lease: maximum number of messages, length of their lease in µs, and their kind.

    Returns the outcome of each settlement, and the lease.
    """
    before, asleep = sleep
    asked = (session.consumer, call, micros(wait), *lease)
    if settlements:
        if engine.is_older:
            settlements = [_as_before(one) for one in settlements]
        flat = [argument for one in settlements for argument in one]
        reply = yield from engine.call(session, "next", key, *asked, *flat, wait=wait)
        return answered(reply, len(settlements))
    reply = yield from engine.call(
        session, "lease", key, *asked, wait=wait, before=before, asleep=asleep
    )
    return [], leased(reply)


def settle(
    engine: Engine, session: Session[Any], key: str, settlements: Sequence[Settlement]
) -> Request[list[bytes]]:
    """Call il1_settle, as often as needed for this many; return the outcome of each."""
    answers: list[bytes] = []
    for some in parts(settlements) if settlements else ():
        if engine.is_older:
            some = [_as_before(one) for one in some]
        number = session.calls = session.calls + 1
        # The common case: one call.
        asked = some[0] if len(some) == 1 else [argument for one in some for argument in one]
        reply = yield from engine.call(session, "settle", key, session.consumer, number, *asked)
        if len(reply) != len(some):
            raise nonsense(reply)
        answers += reply
    return answers


def extend(
    engine: Engine, session: Session[Any], key: str, token: int, seconds: float, waits: bool = False
) -> Request[bool]:
    """Call il1_extend; `waits`: no handler has begun it. Return False if the lease is lost."""
    waiting = ("waiting",) if waits else ()
    length = max(micros(seconds), 1)
    reply = yield from engine.call(session, "extend", key, token, length, *waiting)
    return first(reply) != LOST


def puts(reply: Sequence[bytes], count: int) -> list[Put]:
    """Parse the reply of il1_put for this many messages."""
    try:
        if count == 1:
            id, became = reply
            return [Put(int(id), became == b"1", became == b"2")]
        if len(reply) != 2 * count:
            raise ValueError
        each = zip(reply[::2], reply[1::2], strict=True)
        return [Put(int(id), became == b"1", became == b"2") for id, became in each]
    except NOT_UNDERSTOOD:
        raise nonsense(reply) from None


def leased(reply: Sequence[bytes], at: int = 0) -> Leased:
    """Parse the reply of il1_lease, starting at `at`."""
    try:
        return _leased(reply, at)
    except NOT_UNDERSTOOD:
        raise nonsense(reply) from None


def _leased(reply: Sequence[bytes], at: int) -> Leased:
    token, deadline, due, count = reply[at : at + 4]
    sealed = due == b"sealed"
    alone = due == b"alone"
    left = None if sealed or alone or not due else int(due) / 1e6
    until = int(deadline or 0)
    return Leased(int(token or 0), until, reply, at + 4, int(count), left, sealed, alone)


def _places(reply: Sequence[bytes], at: int, count: int) -> Sequence[int]:
    if not count:
        return ()
    size, odd = divmod(len(reply) - at, count)
    keys = b"%d" % (size - FIELDS)
    if (
        not odd
        and reply[at + EXCLUSIVE :: size].count(keys) == count
        and reply[at + SHARED :: size].count(b"0") == count
    ):
        # The common case: all have the same number of keys.
        return range(at, len(reply), size)
    found = []
    for _ in range(count):
        found.append(at)
        at += FIELDS + int(reply[at + EXCLUSIVE]) + int(reply[at + SHARED])
    if at > len(reply):
        raise ValueError
    return found


@understood
def handed(reply: Sequence[bytes], at: int) -> Handed:
    """Return the message at this position of a reply."""
    return _handed(reply, at)


def _handed(reply: Sequence[bytes], at: int) -> Handed:
    id, sequence, attempt, payload, exclusive, shared = reply[at : at + FIELDS]
    middle = at + FIELDS + int(exclusive)
    # With a leading plus for a rider of a run, and a leading minus for a quiet message.
    number = int(attempt.removeprefix(RIDES))
    return Handed(
        int(id),
        int(sequence or id),
        abs(number),
        payload,
        frozenset(reply[at + FIELDS : middle]),
        frozenset(reply[middle : middle + int(shared)]) if shared != b"0" else _NO_KEYS,
        number < 0,
    )


_NO_KEYS: frozenset[bytes] = frozenset()


def answered(reply: Sequence[bytes], settled: int) -> tuple[list[bytes], Leased]:
    """Parse the reply of il1_next: the answer to each of this many settlements, and the lease."""
    end = 1 + settled
    try:
        if int(reply[0]) != settled:
            raise ValueError
        return list(reply[1:end]), _leased(reply, end)
    except NOT_UNDERSTOOD:
        raise nonsense(reply) from None


@understood
def answer(settled: bytes) -> str:
    """Return the outcome of a message's settlement, as a word."""
    return _ANSWERS[settled]


@understood
def first(reply: Sequence[bytes]) -> bytes:
    """Return the first string."""
    found = reply[0]
    if type(found) is not bytes:
        raise TypeError
    return found


MAX_EXPLAINED = 1000
_SURELY = MAX_CALL // (2 * MAX_PAYLOAD)
ID, SEQUENCE, ATTEMPT, PAYLOAD, EXCLUSIVE, SHARED = range(6)
"""Number of parts of a message in the reply of a lease before its keys."""
FIELDS = 6
FIRST = (b"1", b"-1", b"+1", b"+-1")
"""Attempt fields of a first attempt: a minus if it is quiet, behind a plus if it rides in a run."""
RIDES = b"+"
"""The first byte of the attempt of a message that rides behind the one before it in its run."""
ACKED, LOST, HELD = b"ACKED", b"LEASELOST", b"HELD"
_ANSWERS = {
    ACKED: "acked",
    b"RETRIED": "retried",
    b"DEAD": "dead",
    HELD: "held",
    b"RELEASED": "released",
    b"DROPPED": "dropped",
    LOST: "lost",
}
