"""The primary's part of a node: turns commands into changes, appends them, counts who has them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from interlock.cluster.commands import Outcome
from interlock.cluster.entry import (
    BARRIER,
    CHANGES,
    EVERY,
    Answer,
    Change,
    Entry,
    Origin,
    encode,
    lineage_behind,
)
from interlock.cluster.reply import error
from interlock.cluster.stamps import HybridClock

if TYPE_CHECKING:
    from interlock.cluster.commands import Commands

logger = logging.getLogger("interlock.cluster")

Append = Callable[[bytes], None]
FULL = error("TABLEFULL the table has as many rows as its capacity says; delete some, or raise it")
FAILED = Outcome(error("ERR the node could not do it; its log says why"), [])
NOTHING: Mapping[bytes, bytes] = {}
MOST_CHANGES = 1_000
MOST_BYTES = 256 << 10


@dataclass(slots=True)
class Sent:
    """An entry that was appended and has not come back yet."""

    number: int
    seq: int
    keys: list[bytes]
    own: list[tuple[int, bytes]]
    """Writes of this node's own clients, by their numbers, with their replies."""


@dataclass(slots=True)
class _Ahead:
    """A row with all changes that are under way."""

    state: bytes
    base: bytes | None
    """The state that it came from, which is shown still."""
    count: int = 1
    """Changes of it that are under way."""


@dataclass(slots=True)
class _Batch:
    changes: list[Change] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    own: list[tuple[int, bytes]] = field(default_factory=list)
    size: int = 0

    def __bool__(self) -> bool:
        return bool(self.changes or self.answers or self.own)


class Primary:
    """One term as the primary, under one token.

    What it computes rests on changes that it has appended and not read yet: these are `ahead`.
    Nothing of that is shown or answered before it comes back through the stream.
    """

    def __init__(
        self,
        *,
        token: int,
        node: str,
        address: str,
        ack: int,
        states: Mapping[bytes, bytes],
        commands: Commands,
        clock: HybridClock,
        now_ms: Callable[[], int],
        append: Append,
        has_room: Callable[[], bool],
        replicas: Callable[[], Iterable[str]],
    ) -> None:
        self.token = token
        self.active = False
        """Its barrier has come back: all that counts before it is applied."""
        self.handing_over = False
        self.number = 0
        self.seq = 0
        self._lineage = 0
        self.sent: deque[Sent] = deque()
        self.seen: dict[str, int] = {}
        """Of each other node the number of the last write that it passed on."""
        self._node = node
        self._schema = ""
        self._address = address
        self._ack = ack
        self._states = states
        self._commands = commands
        self._clock = clock
        self._now_ms = now_ms
        self._append = append
        self._has_room = has_room
        self._replicas = replicas
        self._join = commands.rules.join
        self._ahead: dict[bytes, _Ahead] = {}
        self._batch = _Batch()
        # Of the changes that are just added, where they are from.
        self._origin: Origin | None = None
        self._haves: dict[str, int] = {}
        self.acked = 0
        self._told_acked = 0
        self._owed_until = 0

    def begin(self, schema: str) -> None:
        """Append the barrier."""
        self._schema = schema
        self._emit(Entry(BARRIER, self.token, self._node, 0, self.seq, self._now_ms(),
                         self._clock.next()[0], address=self._address, schema=schema))  # fmt: skip

    def begin_after(self, seq: int, lineage: int) -> None:
        """Begin to work: the barrier has come back behind the change `seq`."""
        self.active = True
        self.seq, self._lineage = seq, lineage
        self._seal(None)

    # -- Writes -------------------------------------------------------------------------------

    def read(self, key: bytes) -> bytes | None:
        """Return a row's state with all that is under way."""
        ahead = self._ahead.get(key)
        return self._states.get(key) if ahead is None else ahead.state

    def write(self, node: str, number: int, arguments: list[bytes], resp3: bool) -> None:
        """Do a write; its reply goes the way of its changes."""
        try:
            done = self._commands.run(arguments, resp3, self.read, self._clock, self._now_ms())
        except Exception:
            # Its client tries it again perhaps, at the next primary too: it must not end them all.
            logger.exception("a write of %d words could not be done", len(arguments))
            done = FAILED
        reply, changes = done.reply, done.changes
        if not self._has_room() and any(self.read(key) is None for key, _ in changes):
            reply, changes = FULL, []
        self._add(changes, done.states)
        if node == self._node:
            self._batch.own.append((number, reply))
        else:
            self._batch.answers.append(Answer(node, number, reply))
            self._batch.size += len(reply) + 20
            self.seen[node] = number

    def merge(self, changes: Sequence[Change]) -> None:
        """Append changes that some node has seen and others have not, this one perhaps."""
        self._add(changes)

    def bring(self, changes: Iterable[Change], origin: Origin) -> None:
        """Append changes of another data centre, those that are news here, and their place."""
        self.flush()
        join = self._join
        news = [
            (key, delta)
            for key, delta in changes
            if join(before := self.read(key), delta) is not before
        ]
        last = (len(news) - 1) // MOST_CHANGES * MOST_CHANGES if news else 0
        for start in range(0, last, MOST_CHANGES):
            # The place is known with the last of them: what comes twice is no news.
            self._bring(news[start : start + MOST_CHANGES], Origin(origin.dc, 0, 0, 0, 0, ""))
        self._bring(news[last:], origin)

    def _bring(self, changes: Sequence[Change], origin: Origin) -> None:
        # Where they are long they take several entries: the place is in the last.
        self._origin = Origin(origin.dc, 0, 0, 0, 0, "")
        self._add(changes)
        self._seal(origin)
        self._origin = None

    def _add(self, changes: Sequence[Change], states: Mapping[bytes, bytes] = NOTHING) -> None:
        """Take changes; `states`: rows with all of them, as far as that was found before."""
        ahead, batch = self._ahead, self._batch
        for key, delta in changes:
            entry, state = ahead.get(key), states.get(key)
            if entry is None:
                base = self._states.get(key)
                ahead[key] = _Ahead(self._join(base, delta) if state is None else state, base)
            else:
                entry.state = self._join(entry.state, delta) if state is None else state
                entry.count += 1
            batch.changes.append((key, delta))
            batch.size += len(key) + len(delta) + 8
            self.seq += 1
            if len(batch.changes) >= MOST_CHANGES or batch.size >= MOST_BYTES:
                self._seal(self._origin)
                batch = self._batch

    # -- Entries ------------------------------------------------------------------------------

    def flush(self) -> None:
        """Append what has gathered."""
        if self._batch:
            self._seal(None)

    def beat(self, successor: str = "") -> None:
        """Append what has gathered, or an empty entry: others see that the primary lives."""
        self._seal(None, successor)

    @property
    def owes(self) -> bool:
        """Other nodes wait to hear that replicas have what they passed on."""
        return self._owed_until > self._told_acked and self.acked > self._told_acked

    def _seal(self, origin: Origin | None, successor: str = "") -> None:
        batch, self._batch = self._batch, _Batch()
        if batch.answers and self._ack > 1:
            self._owed_until = self.seq
        self._told_acked = self.acked
        self._emit(
            Entry(
                CHANGES,
                self.token,
                self._node,
                self.number,
                self.seq,
                self._now_ms(),
                self._clock.next()[0],
                ack=self._ack,
                acked=self.acked,
                changes=batch.changes,
                answers=batch.answers,
                origin=origin,
                # Of beats, for who came by a snapshot and has not read the barrier.
                address="" if batch.changes else self._address,
                schema="" if batch.changes else self._schema,
                successor=successor,
            ),
            batch.own,
        )

    def _emit(self, entry: Entry, own: list[tuple[int, bytes]] | None = None) -> None:
        keys = [key for key, _ in entry.changes]
        self.sent.append(Sent(entry.number, entry.seq, keys, own or []))
        self.number += 1
        entry.lineage = self._lineage
        data = encode(entry)
        if entry.kind != BARRIER:
            self._lineage = lineage_behind(self._lineage, data)
        self._append(data)

    def settled(self, number: int) -> dict[bytes, bytes]:
        """Return rows of an own entry that is read now as they are with it, as far as known."""
        found: dict[bytes, bytes] = {}
        if self.sent and self.sent[0].number == number:
            for key in self.sent[0].keys:
                ahead = self._ahead[key]
                # What was computed then is what comes out now, unless there was more since.
                if ahead.count == 1 and ahead.base is self._states.get(key):
                    found[key] = ahead.state
        return found

    def came_back(self, number: int) -> Sent | None:
        """Note that an own entry was applied; return it, or None if one before it is missing."""
        if not self.sent or self.sent[0].number != number:
            return None
        sent = self.sent.popleft()
        for key in sent.keys:
            ahead = self._ahead[key]
            ahead.count -= 1
            if ahead.count:
                ahead.base = self._states.get(key)
            else:
                del self._ahead[key]
        return sent

    @property
    def is_idle(self) -> bool:
        """Nothing is under way."""
        return not self.sent and not self._batch

    # -- Acknowledgements ---------------------------------------------------------------------

    def has(self, node: str, seq: int) -> None:
        """Note that a replica has applied all up to a number."""
        self._haves[node] = max(seq, self._haves.get(node, 0))
        self.count()

    def count(self) -> None:
        """Find up to where enough replicas have applied; of `EVERY`, those that there are now."""
        if self._ack == 0:
            return
        if self._ack == EVERY:
            found = [self._haves.get(node, 0) for node in self._replicas()]
            self.acked = max(self.acked, min(found, default=self.seq))
            return
        found = sorted(self._haves.values(), reverse=True)
        if len(found) >= self._ack:
            self.acked = max(self.acked, found[self._ack - 1])
