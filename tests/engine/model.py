"""A queue on an engine as the contract describes it: one list, scans instead of indexes.

It answers as the wire does, for it is given the time: ids and tokens follow from that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

READY_OR_WAITING, LEASED, BACKING_OFF, DELAYED = "queued", "leased", "backing_off", "delayed"


@dataclass(frozen=True)
class Spec:
    """A message as it is put; times in µs."""

    payload: str
    keys: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    options: tuple[tuple[str, str], ...] = ()

    def arguments(self) -> list[str]:
        counts = [len(self.keys), len(self.shared), len(self.options)]
        pairs = [part for pair in self.options for part in pair]
        return [self.payload, *map(str, counts), *self.keys, *self.shared, *pairs]


@dataclass(eq=False)
class Entry:
    id: int
    payload: str
    exclusive: list[str]
    shared: list[str]
    options: dict[str, str]
    sequence: int
    attempt: int = 1
    state: str = READY_OR_WAITING
    due: int = 0
    token: int = 0
    error: str = ""
    died: int = 0

    def option(self, name: str, default: int) -> int:
        return int(self.options.get(name, default))

    def keys(self) -> list[str]:
        counts = [str(len(self.exclusive)), str(len(self.shared))]
        return [*counts, *self.exclusive, *self.shared]


def backoff(id: int, n: int) -> int:
    """The pause after the n-th attempt failed, in µs, by the default policy."""
    longest = min(1_000_000 * 2 ** (n - 1), 60_000_000)
    half = longest // 2
    part = ((id % 16777213) * 40503 + n * 9973) % 65536 / 65536
    return half + int((longest - half) * part)


@dataclass
class Model:
    now: int
    line: list[Entry] = field(default_factory=list)
    """Unsettled messages that have a place, first in sequence first."""
    delayed: list[Entry] = field(default_factory=list)
    dead: list[Entry] = field(default_factory=list)
    named: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    """Of a dedup string: the message, and when its window ends, once it is settled."""
    number: int = 0
    fence: int = 0
    known: int = 0

    def _next_number(self) -> int:
        self.number = max(self.number + 1, self.now)
        return self.number

    def apply_due(self) -> None:
        expired = [entry for entry in self.line if entry.state == LEASED and entry.due <= self.now]
        # As a lease handed them out, the lease with the first deadline first.
        for entry in sorted(expired, key=lambda e: (e.due, e.token, *self._rank(e))):
            self._fail(entry, None, "lease expired")
        for entry in self.line:
            if entry.state == BACKING_OFF and entry.due <= self.now:
                entry.state = READY_OR_WAITING
        due = [entry for entry in self.delayed if entry.due <= self.now]
        for entry in sorted(due, key=lambda entry: (entry.due, entry.id)):
            self.delayed.remove(entry)
            entry.state, entry.sequence = READY_OR_WAITING, self._next_number()
            self.line.append(entry)

    @staticmethod
    def _rank(entry: Entry) -> tuple[int, int]:
        return -entry.option("PRIORITY", 0), entry.sequence

    def put(self, specs: list[Spec]) -> list[str]:
        self.apply_due()
        reply = []
        for spec in specs:
            options = dict(spec.options)
            name = options.get("DEDUP")
            if name in self.named:
                id, until = self.named[name]
                if until is None or until > self.now:
                    self.known += 1
                    reply += [str(id), "1"]
                    continue
            id = self._next_number()
            exclusive = list(dict.fromkeys(spec.keys))
            shared = [key for key in dict.fromkeys(spec.shared) if key not in exclusive]
            entry = Entry(id, spec.payload, exclusive, shared, options, id)
            if name is not None:
                self.named[name] = id, None
            if delay := entry.option("DELAY", 0):
                entry.state, entry.due = DELAYED, self.now + delay
                self.delayed.append(entry)
            else:
                self.line.append(entry)
            reply += [str(id), "0"]
        return reply

    def ready(self) -> Iterator[Entry]:
        exclusive: set[str] = set()
        shared: set[str] = set()
        for entry in self.line:
            held_up = (exclusive | shared).intersection(entry.exclusive)
            held_up |= exclusive.intersection(entry.shared)
            if not held_up and entry.state == READY_OR_WAITING:
                yield entry
            exclusive.update(entry.exclusive)
            shared.update(entry.shared)

    def lease(self, count: int, duration: int, kind: str) -> list[str]:
        self.apply_due()
        return self.grant(count, duration, kind)

    def grant(self, count: int, duration: int, kind: str) -> list[str]:
        fitting = [
            entry
            for entry in self.ready()
            if kind == "any" or (kind == "keyed") == bool(entry.exclusive or entry.shared)
        ]
        taken = sorted(fitting, key=self._rank)[:count]
        if not taken:
            waits = [entry.due for entry in self.line if entry.state in (LEASED, BACKING_OFF)]
            waits += [entry.due for entry in self.delayed]
            return ["", "", str(min(waits)) if waits else "", "0"]
        self.fence = max(self.fence + 1, self.now)
        deadline = self.now + duration
        reply = [str(self.fence), str(deadline), "", str(len(taken))]
        for entry in taken:
            entry.state, entry.token, entry.due = LEASED, self.fence, deadline
            sequence = str(entry.sequence) if entry.sequence != entry.id else ""
            reply += [str(entry.id), sequence, str(entry.attempt), entry.payload, *entry.keys()]
        return reply

    def settle(self, settlements: list[list[str]]) -> list[str]:
        self.apply_due()
        return [self._settle_one(*one) for one in settlements]

    def _settle_one(self, verb: str, token: str, id: str, *rest: str) -> str:
        for entry in self.line:
            if entry.state == LEASED and (str(entry.token), str(entry.id)) == (token, id):
                break
        else:
            return "LEASELOST"
        if verb in ("ACK", "DONE"):
            self._end(entry)
            return "ACKED"
        if verb == "RELEASE":
            entry.state = READY_OR_WAITING
            return "RELEASED"
        if verb == "REJECT":
            self._bury(entry, rest[0])
            return "DEAD"
        return "RETRIED" if self._fail(entry, int(rest[0]) if rest[0] else None, rest[1]) else "DEAD"

    def _fail(self, entry: Entry, delay: int | None, error: str) -> bool:
        bound = entry.option("ATTEMPTS", 5)
        if bound and entry.attempt >= bound:
            self._bury(entry, error)
            return False
        if delay is None:
            delay = backoff(entry.id, entry.attempt)
        entry.attempt += 1
        entry.state, entry.due = (BACKING_OFF, self.now + delay) if delay else (READY_OR_WAITING, 0)
        return True

    def _bury(self, entry: Entry, error: str) -> None:
        entry.error, entry.died = error, self.now
        self._end(entry)
        self.dead.append(entry)

    def _end(self, entry: Entry) -> None:
        self.line.remove(entry)
        if "DEDUP" in entry.options:
            until = self.now + entry.option("WINDOW", 300_000_000)
            self.named[entry.options["DEDUP"]] = entry.id, until

    def extend(self, token: str, duration: int) -> list[str]:
        self.apply_due()
        held = [e for e in self.line if e.state == LEASED and str(e.token) == token]
        for entry in held:
            entry.due = self.now + duration
        return [str(self.now + duration)] if held else ["LEASELOST"]

    # What only reads applies nothing that is due.

    def stats(self) -> list[str]:
        states = [entry.state for entry in self.line]
        ready = len(list(self.ready()))
        lanes = {key for entry in self.line for key in (*entry.exclusive, *entry.shared)}
        counts = {
            "unsettled": len(self.line) + len(self.delayed),
            "ready": ready,
            "waiting": states.count(READY_OR_WAITING) - ready,
            "leased": states.count(LEASED),
            "backing_off": states.count(BACKING_OFF),
            "delayed": len(self.delayed),
            "dead": len(self.dead),
            "lanes": len(lanes),
            "known": self.known,
        }
        return [part for name, count in counts.items() for part in (name, str(count))]

    def dead_letters(self, count: int) -> list[str]:
        reply = []
        for entry in self.dead[:count]:
            told = [entry.id, entry.attempt, entry.died]
            reply += [*map(str, told), entry.error, entry.payload, *entry.keys()]
        return reply

    def peek(self, id: str) -> list[str]:
        for entry in (*self.line, *self.delayed):
            if str(entry.id) == id:
                break
        else:
            return []
        state = entry.state
        if state == READY_OR_WAITING:
            state = "ready" if entry in self.ready() else "waiting"
        token = str(entry.token) if state == LEASED else ""
        blocked = str(self._blocked(entry)) if state == "waiting" else "0"
        priority = str(entry.option("PRIORITY", 0))
        return [state, str(entry.attempt), token, blocked, priority, entry.payload, *entry.keys()]

    def _blocked(self, entry: Entry) -> int:
        """On how many of its keys something stands before it that conflicts."""
        before = self.line[: self.line.index(entry)]
        exclusive = {key for other in before for key in other.exclusive}
        shared = {key for other in before for key in other.shared}
        waits = sum(key in exclusive or key in shared for key in entry.exclusive)
        return waits + sum(key in exclusive for key in entry.shared)
