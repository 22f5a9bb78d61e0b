"""A queue as the contract describes it, on one list and with scans instead of indexes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from interlock import Empty, Full, LeaseLost

QUEUED, LEASED, BACKING_OFF, HELD, DELAYED = "queued", "leased", "backing off", "held", "delayed"


@dataclass(frozen=True)
class Policy:
    """Options of the queue; times in seconds."""

    maxsize: int
    maxdead: int
    lease: float | None
    dedup_window: float
    attempts: int | None
    first: float
    factor: float
    longest: float
    then: str


@dataclass(eq=False)
class Entry:
    id: int
    payload: str
    exclusive: frozenset[str]
    shared: frozenset[str]
    priority: int
    barrier: bool
    dedup: str | None
    attempt: int = 1
    suspect: bool = False
    """A lease of it ran out."""
    state: str = QUEUED
    due: float = 0.0
    """The end of the delay, the backoff or the lease; infinite for a lease without a deadline."""
    grant: int = 0
    """The number of its lease, while leased."""
    error: str = ""


class Model:
    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.now = 0.0
        self.line: list[Entry] = []
        """Unsettled messages that have a place, first in sequence first."""
        self.delayed: list[Entry] = []
        self.dead: list[Entry] = []
        self.settled: dict[str, tuple[int, float]] = {}
        """Record of a dedup string: the message and the time of its settlement."""
        self.paused: set[str | None] = set()
        self.number = 0
        self.grants = 0

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self._apply_due()

    def _apply_due(self) -> None:
        for entry in self._due(LEASED, self.line):
            if entry.suspect:
                self._fail(entry, "lease expired")
            else:
                entry.suspect, entry.state = True, QUEUED
        for entry in self._due(BACKING_OFF, self.line):
            entry.state = QUEUED
        for entry in self._due(DELAYED, self.delayed):
            self.delayed.remove(entry)
            entry.state = QUEUED
            self.number += 1
            self.line.append(entry)

    def _due(self, state: str, entries: list[Entry]) -> list[Entry]:
        due = [entry for entry in entries if entry.state == state and entry.due <= self.now]
        return sorted(due, key=lambda entry: (entry.due, entry.id))

    # Calls of producers.

    def put(
        self,
        payload: str,
        keys: list[str],
        shared: list[str],
        priority: int,
        delay: float,
        dedup: str | None,
        barrier: bool,
    ) -> int:
        self._apply_due()
        known = self._known(dedup)
        if known is not None:
            return known
        self._check_room()
        self.number += 1
        exclusive, readers = frozenset(keys), frozenset(shared) - frozenset(keys)
        entry = Entry(self.number, payload, exclusive, readers, priority, barrier, dedup)
        if delay:
            entry.state, entry.due = DELAYED, self.now + delay
            self.delayed.append(entry)
        else:
            self.line.append(entry)
        return entry.id

    def _known(self, dedup: str | None) -> int | None:
        if dedup is None:
            return None
        for entry in self.unsettled():
            if entry.dedup == dedup:
                return entry.id
        if dedup in self.settled:
            id, when = self.settled[dedup]
            if self.now < when + self.policy.dedup_window:
                return id
        return None

    def _check_room(self) -> None:
        if self.policy.maxsize and len(list(self.unsettled())) >= self.policy.maxsize:
            raise Full

    def unsettled(self) -> Iterator[Entry]:
        yield from self.line
        yield from self.delayed

    # Calls of consumers.

    def ready(self) -> Iterator[Entry]:
        """Each queued message that conflicts with nothing before it, and that nothing pauses."""
        exclusive: set[str] = set()
        shared: set[str] = set()
        for place, entry in enumerate(self.line):
            if entry.barrier:
                if place == 0 and entry.state == QUEUED and None not in self.paused:
                    yield entry
                return
            keys = entry.exclusive | entry.shared
            free = not (entry.exclusive & (exclusive | shared) or entry.shared & exclusive)
            held_up = None in self.paused or keys & self.paused
            if free and not held_up and entry.state == QUEUED:
                yield entry
            exclusive |= entry.exclusive
            shared |= entry.shared

    def get(self, kind: str) -> Entry:
        self._apply_due()
        fitting = [
            entry
            for entry in self.ready()
            if kind == "any"
            or (kind == "keyed") == bool(entry.exclusive or entry.shared or entry.barrier)
        ]
        if not fitting:
            raise Empty
        # max() takes the first of equals.
        entry = max(fitting, key=lambda entry: entry.priority)
        self.grants += 1
        entry.state, entry.grant = LEASED, self.grants
        lease = self.policy.lease
        entry.due = float("inf") if lease is None else self.now + lease
        return entry

    def _leased(self, grant: int) -> Entry:
        self._apply_due()
        for entry in self.line:
            if entry.state == LEASED and entry.grant == grant:
                return entry
        raise LeaseLost

    def ack(self, grant: int) -> None:
        self._settle(self._leased(grant))

    def nack(self, grant: int, delay: float | None, error: str) -> None:
        entry = self._leased(grant)
        entry.suspect = False
        self._fail(entry, error, delay)

    def release(self, grant: int) -> None:
        self._leased(grant).state = QUEUED

    def extend(self, grant: int, seconds: float) -> None:
        self._leased(grant).due = self.now + seconds

    def reject(self, grant: int, reason: str) -> None:
        entry = self._leased(grant)
        entry.error = reason
        self._bury_or_hold(entry)

    def _fail(self, entry: Entry, error: str, delay: float | None = None) -> None:
        policy = self.policy
        entry.error = error
        if policy.attempts is not None and entry.attempt >= policy.attempts:
            if policy.then == "dead":
                self._bury_or_hold(entry)
            else:
                entry.state = HELD
            return
        if delay is None:
            delay = min(policy.longest, policy.first * policy.factor ** (entry.attempt - 1))
        entry.attempt += 1
        entry.state, entry.due = (BACKING_OFF, self.now + delay) if delay else (QUEUED, 0.0)

    def _bury_or_hold(self, entry: Entry) -> None:
        if len(self.dead) >= self.policy.maxdead:
            entry.state = HELD
            return
        self._settle(entry)
        self.dead.append(entry)

    def _settle(self, entry: Entry) -> None:
        (self.delayed if entry in self.delayed else self.line).remove(entry)
        if entry.dedup is not None:
            self.settled[entry.dedup] = entry.id, self.now

    # Calls of operators.

    def _find(self, id: int, *states: str) -> Entry | None:
        self._apply_due()
        for entry in self.unsettled():
            if entry.id == id and entry.state in states:
                return entry
        return None

    def cancel(self, id: int) -> bool:
        entry = self._find(id, QUEUED, BACKING_OFF, HELD, DELAYED)
        if entry is not None:
            self._settle(entry)
            self.settled.pop(entry.dedup or "", None)
        return entry is not None

    def revoke(self, id: int, then: str) -> bool:
        entry = self._find(id, LEASED)
        if entry is None:
            return False
        if then == "retry":
            self._fail(entry, "revoked")
        elif then == "hold":
            entry.error, entry.state = "revoked", HELD
        elif then == "dead":
            entry.error = "revoked"
            self._bury_or_hold(entry)
        else:
            self._settle(entry)
        return True

    def retry(self, id: int) -> bool:
        entry = self._find(id, HELD, BACKING_OFF)
        if entry is None:
            return False
        # One that backs off had its attempt raised when it failed.
        entry.attempt += entry.state == HELD
        entry.state = QUEUED
        return True

    def skip(self, id: int) -> bool:
        entry = self._find(id, HELD, BACKING_OFF)
        if entry is not None:
            self._settle(entry)
        return entry is not None

    def bury(self, id: int) -> bool:
        entry = self._find(id, HELD, BACKING_OFF)
        if entry is None or len(self.dead) >= self.policy.maxdead:
            return False
        self._bury_or_hold(entry)
        return True

    def requeue(self, id: int) -> int:
        self._apply_due()
        for letter in self.dead:
            if letter.id == id:
                self._check_room()
                self.dead.remove(letter)
                self.number += 1
                again = Entry(
                    self.number,
                    letter.payload,
                    letter.exclusive,
                    letter.shared,
                    letter.priority,
                    letter.barrier,
                    None,
                )
                self.line.append(again)
                return again.id
        raise KeyError(id)

    def discard(self, id: int) -> bool:
        before = len(self.dead)
        self.dead = [letter for letter in self.dead if letter.id != id]
        return len(self.dead) < before

    def messages(self) -> list[tuple[int, object, int]]:
        self._apply_due()
        return sorted((entry.id, entry.payload, entry.attempt) for entry in self.unsettled())

    def pause(self, key: str | None) -> bool:
        changed = key not in self.paused
        self.paused.add(key)
        return changed

    def resume(self, key: str | None) -> bool:
        changed = key in self.paused
        self.paused.discard(key)
        return changed

    def counts(self) -> dict[str, int]:
        self._apply_due()
        states = [entry.state for entry in self.unsettled()]
        ready = len(list(self.ready()))
        return {
            "qsize": len(states) - states.count(LEASED),
            "unsettled": len(states),
            "ready": ready,
            "waiting": states.count(QUEUED) - ready,
            "leased": states.count(LEASED),
            "backing_off": states.count(BACKING_OFF),
            "held": states.count(HELD),
            "delayed": len(self.delayed),
            "dead": len(self.dead),
        }
