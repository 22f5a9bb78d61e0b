"""Explanation of a wait (contract, clause 17): the engine's findings, and their tree."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Blocker", "ExplainNode", "Explanation", "FullLimit", "LimitUse", "Parked", "Turn"]


@dataclass(frozen=True, slots=True)
class Blocker:
    """One key that holds a message up."""

    key: bytes | None
    """``None``: a barrier is in front, or the message is one."""
    holders: tuple[int, ...]
    """Ids of the messages now in front on that key."""
    ahead: int
    """Number of unsettled messages in front on that key."""
    exact: bool
    """False: a lower bound; counting stopped there."""


@dataclass(frozen=True, slots=True)
class FullLimit:
    """A limit name that refuses a message: it is full, its rate is used up, or a handler closed it
    (contract, clauses 26 and 27)."""

    name: str
    most: int | None
    """Number of messages with the name that may be leased at once. ``None``: any number."""
    leased: int
    keeper: int | None
    """Id of another message, for which one more is kept."""
    next_in: float | None
    """Seconds until its rate, or its closing, lets the message pass."""
    holders: tuple[int, ...]
    """Ids of the leased messages with the name, if it is full."""


@dataclass(frozen=True, slots=True)
class LimitUse:
    """A limit name: what is used of it, and how many messages wait for it (clauses 26 and 27).

    Times are in seconds.
    """

    name: str
    """Bytes that are not UTF-8 are escaped."""
    most: int | None
    """Number of messages with the name that may be leased at once. ``None``: any number."""
    interval: float | None
    """Time that one grant takes from its rate. ``None``: it has no rate."""
    burst: int | None
    """Grants of its rate at once, after a pause."""
    leased: int
    """Leased messages with the name."""
    waiting: int
    """Messages that wait for it, without its keeper; one with several names waits for one."""
    keeper: int | None
    """Id of the message that gets the next slots of all of its names (clause 26)."""
    next_in: float | None
    """Time until its rate allows a grant; 0: now. ``None``: it has no rate, or its one grant is
    the keeper's."""
    closed_for: float
    """Time for which a handler has closed it (clause 27); 0: it is open."""

    @classmethod
    def of(
        cls,
        name: bytes,
        most: int | None,
        interval: int | None,
        burst: int | None,
        leased: int,
        waiting: int,
        keeper: int | None,
        next_in: int | None,
        closed_for: int | None,
    ) -> LimitUse:
        """Return one from the answer of an engine, with times in µs."""
        return cls(
            name.decode(errors="backslashreplace"),
            most,
            None if interval is None else interval / 1e6,
            burst,
            leased,
            waiting,
            keeper,
            None if next_in is None else next_in / 1e6,
            (closed_for or 0) / 1e6,
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """The place of a message by the turns of groups (contract, clause 28)."""

    group: str
    """Its group; empty: it has none."""
    ready: int
    """Ready messages of its group, without those that wait for a limit."""
    ahead: int
    """Groups that come before its own, counted up to 1,000."""


@dataclass(frozen=True, slots=True)
class Parked:
    """The list in which a message is parked (contract, clause 31).

    A parked message may be overtaken on its other keys by what is put before it returns; on the key
    it waits for, messages that park keep their order.
    """

    key: bytes
    """The paused or stuck key under which it is parked."""
    since: float
    """Seconds since it was parked."""
    times: int
    """Number of times that it was parked so far."""
    ahead: int
    """Number of messages parked under the same key that return before it; 1,000: or more."""
    paused: bool
    """The key is paused."""
    behind: tuple[int, ...]
    """Ids of the unsettled messages of the key that were held."""


@dataclass(frozen=True, slots=True)
class ExplainNode:
    """One message of an explanation. Times are in seconds."""

    id: int
    state: str
    """``delayed``, ``waiting``, ``ready``, ``leased``, ``backing_off``, ``held`` or
    ``parked``."""
    attempt: int
    age: float
    """Since the put, to within 5 ms."""
    consumer: str
    """The thread that leases it; empty if none does."""
    held_for: float | None
    lease_left: float | None
    """None if the lease has no deadline."""
    due_in: float | None
    """For a delayed message, or one that backs off."""
    paused: tuple[bytes, ...]
    """Its paused keys; ``b""`` is the queue itself."""
    blocked: tuple[Blocker, ...]
    limits: tuple[FullLimit, ...] = ()
    """The limits and rates that alone keep a ready message from being leased."""
    turn: Turn | None = None
    """For a message that nothing but limits and pauses holds up, while messages have groups."""
    parked: Parked | None = None
    """The list in which it is parked, if it is."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The requested message (or, for a key, its messages) and every message that it waits for.

    ``nodes`` are breadth first, each message once. ``str()`` draws the tree.
    """

    nodes: tuple[ExplainNode, ...]
    truncated: bool
    """True if the limit was reached before the roots were."""

    def __str__(self) -> str:
        return tree(self, lambda node: ())


def tree(
    explanation: Explanation,
    notes: Callable[[ExplainNode], Iterable[str]],
    name: Callable[[ExplainNode], str] = lambda node: "",
) -> str:
    """Return the drawing, with a name for each message and additional lines below.

    An empty name is left out.
    """
    by_id = {node.id: node for node in explanation.nodes}
    lines: list[str] = []
    drawn: set[int] = set()
    for node in explanation.nodes:
        if node.id not in drawn:
            lines.extend(_draw(node, by_id, drawn, notes, name))
    if explanation.truncated:
        lines.append("... cut here; ask with a higher limit for more")
    return "\n".join(lines)


def from_native(found: tuple[Any, ...]) -> Explanation:
    """Return the core's answer in the classes of this module."""
    nodes, truncated = found
    names = {thread.ident: thread.name for thread in threading.enumerate()}

    def node(raw: tuple[Any, ...]) -> ExplainNode:
        id, state, attempt, age, thread, held_for, lease_left, due_in, paused, *rest = raw
        limits, turn, parked, blocked = rest
        return ExplainNode(
            id=id,
            state=state,
            attempt=attempt,
            age=age,
            consumer=names.get(thread, f"thread {thread}") if thread else "",
            held_for=held_for,
            lease_left=lease_left,
            due_in=due_in,
            paused=paused,
            blocked=tuple(Blocker(*one) for one in blocked),
            limits=tuple(FullLimit(key_text(one[0]), *one[1:]) for one in limits),
            turn=turn and Turn(turn[0].decode(errors="backslashreplace"), *turn[1:]),
            parked=None if parked is None else Parked(*parked),
        )

    return Explanation(tuple(node(raw) for raw in nodes), truncated)


def key_text(key: bytes) -> str:
    """Return a key for people: as text if it is text."""
    return printable(key.decode(errors="backslashreplace")) if key else "the queue"


def printable(text: str, keep: str = "") -> str:
    """Return text for a terminal: characters that move the cursor or reorder the line are escaped.

    ``keep`` names characters that stay, such as ``"\\n"``.
    """
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable() or char in keep
        else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def printable_json(value: object, *, ascii: bool = False, **options: Any) -> str:
    """Return JSON of the same meaning that contains no terminal control sequences.

    ``ascii`` escapes everything beyond ASCII; the other options are those of ``json.dumps``.
    """
    text = json.dumps(value, ensure_ascii=ascii, **options)
    if text.isprintable():
        return text
    # Outside strings JSON has no unprintable characters except line breaks.
    return "".join(
        char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text
    )


class PrintableFormatter(logging.Formatter):
    """Format log records without terminal control sequences, wherever the text is from.

    Line breaks stay: reports and tracebacks have several lines.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record; see ``logging.Formatter``."""
        return printable(super().format(record), keep="\n\t")


class JsonFormatter(logging.Formatter):
    """Format log records as lines of JSON, with all their fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record; see ``logging.Formatter``."""
        facts = {name: value for name, value in vars(record).items() if name not in STANDARD}
        if record.exc_info:
            facts["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:
            facts["exception"] = record.exc_text
        return json_line(
            record.created, record.levelname.lower(), record.name, record.getMessage(), facts
        )


def json_line(at: float, level: str, logger: str, message: str, facts: dict[str, Any]) -> str:
    """Return one line of JSON.

    A program's own log records may hold anything, which is then written as text.
    """
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
    when = f"{whole}.{int(at % 1 * 1000):03}Z"
    head = {"time": when, "level": level, "logger": logger, "message": message}
    return json.dumps({**head, **facts, **head}, default=str)


STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime"}


def key_names(keys: Iterable[bytes]) -> list[str]:
    """Return keys as log records carry them: in the order of their bytes, as text.

    Bytes that are not UTF-8 are escaped as ``\\xff``.
    """
    return [key.decode(errors="backslashreplace") for key in sorted(keys)]


def _draw(
    top: ExplainNode,
    by_id: dict[int, ExplainNode],
    drawn: set[int],
    notes: Callable[[ExplainNode], Iterable[str]],
    name: Callable[[ExplainNode], str],
) -> Iterator[str]:
    """Yield a node and the messages that hold it up, below it; each node once in the drawing."""
    drawn.add(top.id)
    yield line(top, name(top))
    yield from (f"   {note}" for note in notes(top))
    # A stack of its own, because a chain may be longer than Python's stack is deep: for each node
    # being drawn, the indent of the nodes below it and the holders still to be drawn.
    stack = [("", _holders(top))]
    while stack:
        indent, holders = stack[-1]
        if not holders:
            stack.pop()
            continue
        blocker, id = holders.pop(0)
        branch, below = ("├─ ", "│  ") if holders else ("└─ ", "   ")
        node = by_id.get(id)
        start = f"{indent}{branch}{_why(blocker)}"
        if node is None:
            yield f"{start}message {id}"
        elif id in drawn:
            yield f"{start}message {id} (above)"
        else:
            drawn.add(id)
            yield f"{start}{line(node, name(node))}"
            # A long chain would otherwise be drawn as a wide triangle of nothing.
            deeper = indent + below if len(indent) < _WIDEST else indent
            yield from (f"{deeper}   {note}" for note in notes(node))
            stack.append((deeper, _holders(node)))


_WIDEST = 60
"""Maximum columns by which a line is indented."""


def _holders(node: ExplainNode) -> list[tuple[Blocker | FullLimit | Parked, int]]:
    blockers: list[Blocker | FullLimit] = [*node.limits, *node.blocked]
    stuck = [] if node.parked is None else [(node.parked, id) for id in node.parked.behind]
    return [*stuck, *((blocker, id) for blocker in blockers for id in blocker.holders)]


def _why(blocker: Blocker | FullLimit | Parked) -> str:
    if isinstance(blocker, Parked):
        return f"key {key_text(blocker.key)}: "
    if isinstance(blocker, FullLimit):
        return f"limit {printable(blocker.name)}: "
    ahead = f"{blocker.ahead}{'' if blocker.exact else '+'} ahead"
    if blocker.key is None:
        return f"barrier, {ahead}: "
    return f"key {key_text(blocker.key)}, {ahead}: "


def line(node: ExplainNode, name: str = "") -> str:
    """Return one message, with a name where it has one."""
    called = f" ({name})" if name else ""
    state = node.state.replace("_", " ") if node.parked is None else parked_text(node.parked)
    parts = [f"message {node.id}{called} {state}"]
    if node.attempt > 1:
        parts.append(f"attempt {node.attempt}")
    if node.consumer:
        parts.append(f"by {printable(node.consumer)}")
    if node.held_for is not None:
        parts.append(f"for {_seconds(node.held_for)}")
    if node.lease_left is not None:
        parts.append(f"lease left {_seconds(node.lease_left)}")
    if node.due_in is not None:
        parts.append(f"due in {_seconds(node.due_in)}")
    if node.paused:
        parts.append("paused: " + ", ".join(key_text(key) for key in node.paused))
    limit = ["waits for a limit", "waits for a rate"]
    parts += [f"{limit[full.most is None]}: {full_text(full)}" for full in node.limits]
    if node.turn is not None and node.state == "ready" and not node.limits:
        parts.append(turn_text(node.turn))
    parts.append(f"age {_seconds(node.age)}")
    return ", ".join(parts)


def turn_text(turn: Turn) -> str:
    """Return in words what a message of a group waits for."""
    group = f"group {printable(turn.group)}" if turn.group else "messages without a group"
    many = "1,000 or more" if turn.ahead >= MAX_AHEAD else f"{turn.ahead:,}"
    groups = "group" if turn.ahead == 1 else "groups"
    return f"waits for its turn: {group}, {turn.ready:,} ready, {many} {groups} ahead"


MAX_AHEAD = 1_000
"""Groups ahead of a message that engines count."""


def full_text(full: FullLimit) -> str:
    """Return what refuses a message in words: ``4 of 4 on bank``, or ``api, next in 400 ms``."""
    name = printable(full.name)
    kept = f", 1 kept for message {full.keeper}" if full.keeper is not None else ""
    passed = "" if full.next_in is None else f"next in {_seconds(full.next_in)}"
    if full.most is None:
        return f"{name}, {passed or 'none left'}{kept}"
    later = f", closed, {passed}" if passed else ""
    return f"{full.leased} of {full.most} on {name}{kept}{later}"


def parked_text(parked: Parked) -> str:
    """Return where a message is parked in words: ``parked behind 17 on a:7 for 12.0 s, ...``."""
    key, age = key_text(parked.key), _seconds(parked.since)
    before = "1,000 or more" if parked.ahead >= _COUNTED else str(parked.ahead)
    if parked.behind:
        return f"parked behind {parked.behind[0]} on {key} for {age}, {before} before it"
    why = f"{key} is paused, for" if parked.paused else f"{key} is open again, after"
    return f"parked: {why} {age}, {before} before it"


_COUNTED = 1000
"""Messages that are counted before a parked one."""


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
