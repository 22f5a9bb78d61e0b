"""Checks from outside that a queue kept order and exclusion, independent of any scheduler.

Two checks that share nothing with a scheduler, and little with each other:

- `Auditor` looks at times. Every message is announced with its keys, and every start and end of
  a handler is noted; `check` then walks each key by itself and counts what started too early
  (clauses 1 and 3 of the contract) or beside a conflicting handler (clause 2).
- `Ledger` looks at effects. A handler reads its keys' digests when it starts and writes the next
  ones when it ends, as a program's own state would be read and written. A lost update or a swap
  changes the digest for good, so it equals a serial run's only if order and exclusion held.

Noting costs a list append, which is atomic: handlers on many threads need no lock of ours, and the
place in that list is one order of all starts and ends. So call `started` right after the lease is
granted, and `ended` as the last call before the lease is settled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Key = str | int | bytes
"""The types that a key may have; 7, "7" and b"7" are one key."""

Kind = Literal["order", "overlap", "lost", "unfinished"]


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise to one message on one key."""

    kind: Kind
    """order: started before an earlier conflicting message had started. overlap: started while a
    conflicting handler was running. lost: never started. unfinished: started and never ended."""

    id: int
    """The message that started wrongly, or was lost."""

    key: bytes | None
    """The key they share; None for lost and unfinished."""

    other: int | None
    """The conflicting message; None for lost and unfinished."""

    def __str__(self) -> str:
        if self.kind == "lost":
            return f"message {self.id} was never handled"
        if self.kind == "unfinished":
            return f"message {self.id} was started and never ended"
        key = (self.key or b"").decode("utf-8", "backslashreplace")
        how = "before" if self.kind == "order" else "during"
        return f"message {self.id} started {how} message {self.other} on key {key!r}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of `Auditor.check`."""

    messages: int
    """Number of messages that were announced."""

    keys: int
    """Number of distinct keys."""

    order: int
    """Pairs of message and key that started before an earlier conflicting one had."""

    overlap: int
    """Pairs of message and key that started while a conflicting handler ran."""

    lost: int
    """Messages that never started."""

    unfinished: int
    """Messages that started and never ended."""

    repeated: int
    """Starts beyond each message's first. At least once (clause 19) allows them, so they are not
    violations; compare with 0 if you expect none."""

    examples: tuple[Violation, ...]
    """The first violations found, at most `Auditor.examples`."""

    @property
    def violations(self) -> int:
        """All of them: order, overlap, lost and unfinished together."""
        return self.order + self.overlap + self.lost + self.unfinished


class Auditor:
    """Notes puts, starts and ends, and judges them.

    Ids are integers that rise in the messages' queue order: those that `put` returned, or places in
    a list. `examples` bounds how many violations a verdict spells out; all are counted.
    """

    def __init__(self, *, examples: int = 20) -> None:
        self.examples = examples
        self._expected: list[tuple[int, tuple[bytes, ...], tuple[bytes, ...]]] = []
        self._log: list[tuple[int, bool]] = []

    def expect(self, id: int, keys: Iterable[Key] = (), shared: Iterable[Key] = ()) -> None:
        """Announce a message with the keys it holds. It may start before this call; announce it
        before `check`."""
        exclusive = dict.fromkeys(map(canonical, keys))
        readers = dict.fromkeys(key for key in map(canonical, shared) if key not in exclusive)
        self._expected.append((id, tuple(exclusive), tuple(readers)))

    def started(self, id: int) -> None:
        """Note that a handler of this message starts. Safe from any thread."""
        self._log.append((id, True))

    def ended(self, id: int) -> None:
        """Note that the handler of this message ended, well or not. Safe from any thread."""
        self._log.append((id, False))

    @property
    def ends(self) -> int:
        """About how many handlers have ended; exact when none is running. For progress bars."""
        return len(self._log) // 2

    def check(self, *, complete: bool = True) -> Verdict:
        """Judge all starts and ends noted so far.

        `complete=False`, for a queue that is still running, ignores messages that have not started
        or not ended yet. A message retried in place may start several times: the same rules apply
        to each start, and no later message may have started in between. Raises ValueError if a
        start or an end was noted for an unannounced message, or an id was announced twice.
        """
        lanes, messages = self._lay_out()
        starts = dict.fromkeys(messages, 0)
        running = dict.fromkeys(messages, 0)
        found = _Found(self.examples)
        for id, begins in list(self._log):
            if id not in messages:
                raise ValueError(f"message {id} started or ended but was never announced")
            if begins:
                for lane, place, exclusive in messages[id]:
                    lane.start(id, place, exclusive, starts[id] > 0, found)
                starts[id] += 1
                running[id] += 1
            else:
                for lane, place, exclusive in messages[id]:
                    lane.end(place, exclusive)
                running[id] -= 1
        if complete:
            for id in messages:
                if not starts[id]:
                    found.add("lost", id)
                elif running[id] > 0:
                    found.add("unfinished", id)
        return Verdict(
            messages=len(messages),
            keys=len(lanes),
            order=found.counts["order"],
            overlap=found.counts["overlap"],
            lost=found.counts["lost"],
            unfinished=found.counts["unfinished"],
            repeated=sum(count - 1 for count in starts.values() if count > 1),
            examples=tuple(found.examples),
        )

    def _lay_out(self) -> tuple[dict[bytes, _Lane], dict[int, list[tuple[_Lane, int, bool]]]]:
        lanes: dict[bytes, _Lane] = {}
        messages: dict[int, list[tuple[_Lane, int, bool]]] = {}
        for id, keys, shared in sorted(self._expected):
            if id in messages:
                raise ValueError(f"message {id} was announced twice")
            messages[id] = []
            for exclusive, held in ((True, keys), (False, shared)):
                for key in held:
                    lane = lanes.get(key)
                    if lane is None:
                        lane = lanes[key] = _Lane(key)
                    messages[id].append((lane, lane.place(id, exclusive), exclusive))
        return lanes, messages


class Ledger:
    """A digest for each key, updated by the handlers themselves.

    An exclusive message reads its key's digest as it starts and replaces it as it ends. Shared
    messages add themselves to the digest that they read, in any order among themselves. Only
    messages that hold the keys touch an entry, so there is no lock: if exclusion is broken, an
    update gets lost, and that is meant to show.
    """

    def __init__(self) -> None:
        self._entries: dict[str, tuple[bytes, list[int]]] = {}

    def begin(self, keys: Iterable[str], shared: Iterable[str]) -> list[tuple[bytes, list[int]]]:
        """Read the entries of the keys, exclusive ones first. Pass the result to `finish`."""
        # setdefault is atomic: readers that start together find the same list of reads.
        entry = self._entries.setdefault
        seen = [entry(key, (_NEW, [])) for key in keys]
        seen.extend(entry(key, (_NEW, [])) for key in shared)
        return seen

    def finish(
        self,
        id: str,
        keys: Iterable[str],
        shared: Iterable[str],
        seen: list[tuple[bytes, list[int]]],
    ) -> None:
        """Write the entries that message `id` makes from those it read."""
        name = id.encode("utf-8", "surrogatepass")
        entries = iter(seen)
        for key in keys:
            digest, reads = next(entries)
            self._entries[key] = (_chain(digest, reads, name), [])
        for _ in shared:
            _, reads = next(entries)
            reads.append(int.from_bytes(_hash(name)))

    def digests(self) -> Mapping[str, bytes]:
        """Return the digest of each key that was ever held: 16 bytes."""
        return {key: _chain(digest, reads, b"") for key, (digest, reads) in self._entries.items()}

    def digest(self) -> str:
        """Return one digest of all keys, as 32 hexadecimal digits."""
        whole = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for key, digest in sorted(self.digests().items()):
            name = key.encode("utf-8", "surrogatepass")
            whole.update(len(name).to_bytes(4) + name + digest)
        return whole.hexdigest()


def canonical(key: Key) -> bytes:
    """Return the bytes that name a key: UTF-8 of a str, the digits of an int, bytes as they are."""
    if isinstance(key, bytes):
        return key
    return str(key).encode()


class _Lane:
    """One key's messages in order, and which of them have started and are running."""

    __slots__ = ("ids", "key", "last", "passed", "running", "started", "writers")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.ids: list[int] = []
        self.started: list[bool] = []
        self.writers: list[int] = []
        # Each of these twice, for writers and for readers: running places with their counts, and
        # the furthest place that has ever started.
        self.running: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self.last = [-1, -1]
        # The furthest start of any message, and of any writer.
        self.passed = [0, 0]

    def place(self, id: int, exclusive: bool) -> int:
        self.ids.append(id)
        self.started.append(False)
        if exclusive:
            self.writers.append(len(self.ids) - 1)
        return len(self.ids) - 1

    def start(self, id: int, place: int, exclusive: bool, again: bool, found: _Found) -> None:
        writers, readers = self.running
        beside = next(iter(writers), None)
        if beside is None and exclusive:
            beside = next(iter(readers), None)
        if beside is not None:
            found.add("overlap", id, self.key, self.ids[beside])
        ahead = self._first_waiting() if exclusive else self._first_waiting_writer()
        if ahead < place:
            found.add("order", id, self.key, self.ids[ahead])
        elif again:
            furthest = max(self.last) if exclusive else self.last[0]
            if furthest > place:
                found.add("order", self.ids[furthest], self.key, id)
        self.started[place] = True
        mode = 0 if exclusive else 1
        self.last[mode] = max(self.last[mode], place)
        self.running[mode][place] = self.running[mode].get(place, 0) + 1

    def end(self, place: int, exclusive: bool) -> None:
        running = self.running[0 if exclusive else 1]
        left = running.get(place, 0) - 1
        if left > 0:
            running[place] = left
        else:
            running.pop(place, None)

    def _first_waiting(self) -> int:
        passed = self.passed[0]
        while passed < len(self.ids) and self.started[passed]:
            passed += 1
        self.passed[0] = passed
        return passed

    def _first_waiting_writer(self) -> int:
        passed = self.passed[1]
        while passed < len(self.writers) and self.started[self.writers[passed]]:
            passed += 1
        self.passed[1] = passed
        return self.writers[passed] if passed < len(self.writers) else len(self.ids)


class _Found:
    """Violations: all counted, the first ones kept."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.counts: dict[Kind, int] = {"order": 0, "overlap": 0, "lost": 0, "unfinished": 0}
        self.examples: list[Violation] = []

    def add(self, kind: Kind, id: int, key: bytes | None = None, other: int | None = None) -> None:
        self.counts[kind] += 1
        if len(self.examples) < self.keep:
            self.examples.append(Violation(kind, id, key, other))


def _hash(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _chain(digest: bytes, reads: list[int], name: bytes) -> bytes:
    # A sum does not depend on the order of its parts: readers may end in any.
    folded = (sum(reads) & _DIGEST_MASK).to_bytes(_DIGEST_BYTES)
    return _hash(digest + folded + name)


_DIGEST_BYTES = 16
_NEW = bytes(_DIGEST_BYTES)
_DIGEST_MASK = (1 << (8 * _DIGEST_BYTES)) - 1
