"""A queue on an engine as the contract describes it: one list, scans instead of indexes.

It answers as the wire does, for it is given the time: ids and tokens follow from that. What an
operator does is in model_operate, what only reads in model_read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from scripts.wire.declaration import declared
from tests.engine.naive.hooks import Hooks
from tests.engine.naive.policy import backoff, history

QUEUED, LEASED, BACKING_OFF, DELAYED, HELD = "queued", "leased", "backing_off", "delayed", "held"
PARKED = "parked"

WIRE = declared()
"""Names and numbers, of which there is one declaration. The model defines their meaning."""
DEFAULTS = {option.name: str(option.default) for option in WIRE.queue}
MOST = {name: limit.of("redis") for name, limit in WIRE.limits.items()}
TOLD = MOST["MAX_TOLD"]
"""Bytes after which a call leases or returns no further message."""
DEAD_GRACE = 600_000_000
"""µs for which a dead letter that is too old stays behind the call that found it so."""
BETWEEN = "\x1f"
"""Between the names of a message, and the entries of a declaration of limits."""
POLICY = tuple(option.name for option in WIRE.policy)


class Refused(Exception):
    """A call that changes nothing; says the error's code."""


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

    def option(self, name: str) -> str | None:
        return dict(self.options).get(name)

    def canonical_keys(self) -> tuple[list[str], list[str]]:
        """The exclusive ones, of which its coalescing name is the first; and the shared ones."""
        name = self.option("COALESCE")
        exclusive = list(dict.fromkeys([*([] if name is None else [name]), *self.keys]))
        return exclusive, [key for key in dict.fromkeys(self.shared) if key not in exclusive]


@dataclass(eq=False)
class Entry:
    id: int
    payload: str
    exclusive: list[str]
    shared: list[str]
    options: dict[str, str]
    sequence: int
    attempt: int = 1
    state: str = QUEUED
    due: int = 0
    token: int = 0
    given: int = 0
    consumer: str = ""
    error: str = ""
    """The errors of its attempts, the newest first: text, attempt and time of each."""
    died: int = 0
    suspect: int = 0
    """The token of the lease that ran out while its handler may have run."""
    told: str = ""
    """Said by its lease's holder: begun, waiting, or nothing yet of a suspect; begun is final."""
    silent: int = 0
    """Number of leases of it, as a suspect, that ran out in a row and of which nothing was said."""
    set_aside: str | None = None
    """The paused key for which it was set aside when it came up."""
    waits_for: str | None = None
    """The limit for whose room it waits."""
    passes: int = 0
    slots: int | None = None
    """Number of its first names, rates last, of which a keeper keeps a slot."""
    stuck: bool = False
    """It was held: its keys are shut until it is settled."""
    dying: tuple[int, str | None] | None = None
    """Held until those that go with it are gone: token and error of its death, None: its newest."""
    returned: bool = False
    """A lease of it ended without settling it: it keeps its places."""
    first: int = 0
    """Its sequence when it was parked for the first time."""
    times: int = 0
    since: int = 0
    under: str = ""
    """The key for which it is parked."""
    revision: int = 0
    """Number of puts that replaced its payload."""
    latest: int = 0
    """Until when a debounce may delay it; 0: for ever."""
    head: Entry | None = None
    """The message behind which it is leased, as one of its run."""

    def __post_init__(self) -> None:
        if "LIMIT" in self.options:
            names = sorted(set(self.options["LIMIT"].split(BETWEEN)))
            self.options["LIMIT"] = BETWEEN.join(names)
        if "RUN" in self.options:
            most, _, label = self.options["RUN"].partition(":")
            self.options["RUN"] = f"{int(most)}:{label}"
        self.barrier = self.options.get("BARRIER") == "1"
        self.keys = [*self.exclusive, *self.shared]

    @property
    def names(self) -> list[str]:
        """Its limit names."""
        return self.options["LIMIT"].split(BETWEEN) if "LIMIT" in self.options else []

    @property
    def group(self) -> str:
        """Its group; messages without one are in the group with the empty name."""
        return self.options.get("GROUP", "")

    @property
    def keyed(self) -> bool:
        return bool(self.keys or self.barrier)

    def forget_wait(self) -> None:
        self.waits_for, self.passes, self.slots = None, 0, None

    @property
    def priority(self) -> int:
        return int(self.options.get("PRIORITY", 0))

    def counted_keys(self) -> list[str]:
        return [str(len(self.exclusive)), str(len(self.shared)), *self.keys]

    def told_attempt(self) -> str:
        quiet = "-" if self.options.get("QUIET") == "1" else ""
        return f"{'+' if self.head else ''}{quiet}{self.attempt}"

    def told_bytes(self) -> int:
        return sum(len(text) for text in (self.payload, self.error, *self.keys))

    def newest_error(self) -> str:
        return self.error.partition("\x1e")[0].partition("\x1f")[0]

    def told_sequence(self) -> str:
        return "" if self.sequence == self.id else str(self.sequence)


def _told_keys(keys: list[str]) -> list[str]:
    """The first keys, as many as an event tells."""
    told: list[str] = []
    for key in keys[: MOST["MAX_EVENT_KEYS"]]:
        if len("".join([*told, key])) > MOST["MAX_EVENT_KEY_BYTES"]:
            break
        told.append(key)
    return told


@dataclass
class Place:
    """A place of a group in a ring: the lowest number is next."""

    number: int = 0
    used: int = 0
    """Messages of the present turn."""


Ring = tuple[str, bool, int, str]
"""The limit name for which messages wait, or nothing; whether they have keys; their priority; and
their group."""


@dataclass
class Model(Hooks):
    now: int
    line: list[Entry] = field(default_factory=list)
    """Unsettled messages that have a place, first in sequence first."""
    delayed: list[Entry] = field(default_factory=list)
    parked: list[Entry] = field(default_factory=list)
    """Unsettled messages that have no place until a key opens."""
    sweeps: list[str] = field(default_factory=list)
    """Keys whose lanes are swept, in this order."""
    resweep: str | None = None
    """The last shut key, in the order of bytes, that is swept anew."""
    dead: list[Entry] = field(default_factory=list)
    mark: int | None = None
    """The time at which the oldest dead letter was first seen to be too old."""
    named: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    """Record of a dedup string: the message, and the end of its window once it is settled."""
    newest: dict[str, int] = field(default_factory=dict)
    """The unsettled message of each coalescing name that was put last."""
    kept: dict[int, tuple[str, int, str]] = field(default_factory=dict)
    """For a message whose put asked for it: how it ended, until when that is kept, the result."""
    used: dict[str, int] = field(default_factory=dict)
    """Time from which on the rate of a limit name is as if nothing had been granted."""
    closed: dict[str, int] = field(default_factory=dict)
    """Until when a handler has closed a limit name."""
    places: dict[Ring, Place] = field(default_factory=dict)
    turns: int = 0
    """The last number of a place."""
    paused: list[str] = field(default_factory=list)
    halted: bool = False
    sealed: bool = False
    declared: bool = False
    options: dict[str, str] = field(default_factory=lambda: dict(DEFAULTS))
    counts: Counter[str] = field(default_factory=Counter)
    number: int = 0
    fence: int = 0
    watched: int = 0
    """Until when somebody watches."""
    last_event: int = 0
    events: list[list[str]] = field(default_factory=list)
    """Kept events without their numbers, which are consecutive up to the last one."""

    def happened(
        self, kind: str, entry: Entry, token: int = 0, consumer: str = "", error: str = ""
    ) -> None:
        if self.now >= self.watched:
            return
        self.last_event += 1
        cut = error.translate({0x1E: " ", 0x1F: " "})[: MOST["MAX_TEXT"]]
        event = [str(self.now), kind, str(entry.id), str(entry.attempt), str(token or "")]
        told = [_told_keys(entry.exclusive), _told_keys(entry.shared)]
        counts = [str(len(keys)) for keys in told]
        self.events.append([*event, consumer, cut, *counts, *told[0], *told[1]])
        del self.events[: -MOST["MAX_EVENTS"]]

    def end_watch(self) -> None:
        """Nobody watches any more; the last number is forgotten when the time is as far."""
        if self.watched <= self.now:
            self.watched, self.events = 0, []
        if not self.watched and self.last_event <= self.now:
            self.last_event = 0

    def _next_number(self) -> int:
        self.number = max(self.number + 1, self.now)
        return self.number

    def unsettled(self) -> list[Entry]:
        return [*self.line, *self.delayed, *self.parked]

    def find(self, id: str) -> Entry | None:
        return next((entry for entry in self.unsettled() if str(entry.id) == id), None)

    def option(self, name: str, entry: Entry | None = None) -> str:
        return (entry.options if entry else {}).get(name, self.options[name])

    def apply_due(self) -> None:
        self.end_watch()
        self.begin_moves()
        heads = [entry for entry in self.line if entry.state == LEASED and not entry.head]
        expired = [entry for entry in heads if entry.due <= self.now]
        for entry in sorted(expired, key=lambda e: (e.due, e.id)):
            self.part(entry)
            self.counts["leases_expired"] += 1
            self.happened("lease_expired", entry, entry.token)
            entry.silent = entry.silent + 1 if entry.told == "nothing" else 0
            begun = entry.told in ("", "begun") or entry.silent >= 3
            if begun and entry.suspect:
                entry.suspect = entry.token
                self.fail(entry, None, "lease expired")
            else:
                entry.suspect = entry.token if begun else entry.suspect
                self.come_again(entry, 0)
            self.advance()
            self.move()
        over = [
            entry for entry in self.line if entry.state == BACKING_OFF and entry.due <= self.now
        ]
        for entry in sorted(over, key=lambda e: (e.due, e.sequence)):
            entry.state = QUEUED
            self.happened("due", entry)
        due = [entry for entry in self.delayed if entry.due <= self.now]
        for entry in sorted(due, key=lambda entry: (entry.due, entry.id)):
            self.delayed.remove(entry)
            entry.state, entry.sequence = QUEUED, self._next_number()
            self.happened("due", entry)
            self.take_place(entry)
            self.move()
        ttl = int(self.options["DEAD_TTL"])
        passed = self.mark is not None and self.mark + min(DEAD_GRACE, ttl) <= self.now
        while passed and ttl and self.dead and self.dead[0].died + ttl <= (self.mark or 0):
            del self.dead[0]
            self.counts["dead_expired"] += 1
        if not (ttl and self.dead and self.dead[0].died + ttl <= self.now):
            self.mark = None
        elif self.mark is None or self.mark > self.now or passed:
            self.mark = self.now
        self.kept = {id: one for id, one in self.kept.items() if one[1] > self.now}

    # Putting.

    def known(self, name: str | None) -> int | None:
        if name is None or name not in self.named:
            return None
        id, until = self.named[name]
        return id if until is None or until > self.now else None

    def room(self, count: int, size: int, whole: int, new: Iterable[Spec] = ()) -> None:
        """Refuse messages and bytes for which there is no room; all payloads have `whole` bytes."""
        most, bytes = int(self.options["MAXSIZE"]), int(self.options["MAXBYTES"])
        if (most and count > most) or (bytes and whole > bytes):
            raise Refused("TOOBIG")
        self.refuse_stuck(new)
        if not self.has_room(count, size):
            raise Refused("FULL")

    def has_room(self, count: int, size: int) -> bool:
        most, bytes = int(self.options["MAXSIZE"]), int(self.options["MAXBYTES"])
        held = self.unsettled()
        together = sum(len(entry.payload) for entry in held) + size
        return not (most and len(held) + count > most) and not (bytes and together > bytes)

    def put(self, specs: list[Spec]) -> list[str]:
        self.apply_due()
        if self.sealed:
            raise Refused("SEALED")
        after = [spec.option("AFTER") for spec in specs]
        if any(name is not None and self.known(name) is None for name in after):
            raise Refused("UNKNOWN")
        new: dict[str | int, Spec] = {}
        for at, spec in enumerate(specs):
            name = spec.option("DEDUP")
            if self.known(name) is None:
                new.setdefault(at if name is None else name, spec)
        count, size, whole = self.need(list(new.values()))
        if count or size:
            self.room(count, size, whole, self.entering(new.values()))
        reply = []
        for spec in specs:
            known = self.known(spec.option("DEDUP"))
            if known is not None:
                self.counts["deduplicated"] += 1
                reply += [str(known), "1"]
            elif replaced := self.replaceable(spec):
                self.replace(replaced, spec)
                reply += [str(replaced.id), "2"]
            else:
                reply += [str(self.enter(spec)), "0"]
        return reply

    def enter(self, spec: Spec, attempt: int = 1, error: str = "", stopped: bool = False) -> int:
        self.counts["puts"] += 1
        options = dict(spec.options)
        id = self._next_number()
        exclusive, shared = spec.canonical_keys()
        entry = Entry(id, spec.payload, exclusive, shared, options, id, attempt)
        entry.error, entry.returned = error, stopped or attempt > 1
        self.enter_ring(entry)
        entry.revision = int(options.pop("REVISION", 0))
        self.happened("put", entry)
        if "DEDUP" in options:
            self.named[options["DEDUP"]] = id, None
        if "COALESCE" in options:
            self.newest[options["COALESCE"]] = id
        options.pop("AFTER", None)
        delay, within = int(options.pop("DELAY", 0)), int(options.pop("WITHIN", 0))
        if debounce := int(options.pop("DEBOUNCE", 0)):
            entry.latest = self.now + within if within else 0
            delay = min(debounce, within) if within else debounce
        if delay:
            entry.state, entry.due = DELAYED, self.now + delay
            self.delayed.append(entry)
        elif stopped:
            self.line.append(entry)
        else:
            self.take_place(entry)
            self.move()
        return id

    # Order of messages.

    def lane(self, key: str) -> list[Entry]:
        return [entry for entry in self.line if key in entry.keys]

    def before(self, entry: Entry) -> list[Entry]:
        return self.line[: self.line.index(entry)]

    def blocked(self, entry: Entry) -> int:
        """Number of keys and barriers on which a conflicting message is ahead of it."""
        before = self.before(entry)
        if entry.barrier:
            return int(bool(before))
        if not before:
            return 0
        writes = sum(any(key in other.keys for other in before) for key in entry.exclusive)
        reads = sum(any(key in other.exclusive for other in before) for key in entry.shared)
        return writes + reads + any(other.barrier for other in before)

    def unblocked(self) -> Iterator[Entry]:
        """Messages of which `blocked` is 0, in one pass."""
        written, named = set[str](), set[str]()
        for at, entry in enumerate(self.line):
            conflicts = named.intersection(entry.exclusive) or written.intersection(entry.shared)
            if not (at if entry.barrier else conflicts):
                yield entry
            if entry.barrier:
                return
            written.update(entry.exclusive)
            named.update(entry.keys)

    def in_front(self) -> list[Entry]:
        """Messages with nothing ahead of them that were not set aside by a pause, in order."""
        free = [e for e in self.unblocked() if e.state == QUEUED and e.set_aside is None]
        return sorted(free, key=lambda entry: (-entry.priority, entry.sequence))

    def offered(self) -> list[Entry]:
        """Those in front that wait for no limit either."""
        return [entry for entry in self.in_front() if entry.waits_for is None]

    def ready(self, kind: str, count: int) -> Iterator[Entry]:
        """Set aside what is paused or has no room, when it comes up."""
        kind = kind.rstrip("+")
        kinds = {"any": (True, False), "keyed": (True,), "unkeyed": (False,)}[kind]
        front = [] if self.halted else [e for e in self.in_front() if e.keyed in kinds]
        while count:
            front = [e for e in front if e.state == QUEUED and e.set_aside is None]
            entry = self.next_one(self.candidates(front))
            if entry is None:
                return
            if self.admit(entry):
                count -= 1
                yield entry

    # Leasing and settling.

    def lease(self, consumer: str, count: int, duration: int, kind: str) -> list[str]:
        self.apply_due()
        return self.grant(consumer, count, duration, kind)

    def grant(self, consumer: str, count: int, duration: int, kind: str) -> list[str]:
        taken: list[Entry] = []
        for entry in self.ready(kind, count):
            if entry.suspect and taken:
                break
            taken.append(entry)
            # Later ones find its slots taken.
            entry.state = LEASED
            self.take_turn(entry, kind.rstrip("+"))
            entry.forget_wait()
            self.charge(entry)
            if entry.suspect or sum(len(one.payload) for one in taken) >= TOLD:
                break
            if kind.endswith("+") and not self.ride(entry, taken, kind.rstrip("+")):
                break
        if not taken:
            if self.sealed and not self.unsettled():
                return ["", "", "sealed", "0"]
            return ["", "", self.next_due(), "0"]
        self.fence = max(self.fence + 1, self.now)
        deadline = self.now + duration
        alone = "alone" if taken[0].suspect else ""
        reply = [str(self.fence), str(deadline), alone, str(len(taken))]
        for entry in taken:
            entry.token, entry.due = self.fence, deadline
            entry.given, entry.consumer = self.now, consumer
            entry.told = "nothing" if alone else ""
            self.happened("lease", entry, entry.token, consumer)
            told = [str(entry.id), entry.told_sequence(), entry.told_attempt(), entry.payload]
            reply += [*told, *entry.counted_keys()]
        self.counts["leases"] += len(taken)
        return reply

    def next_due(self) -> str:
        if self.has_moves():
            return "0"
        due = [e.due for e in self.unsettled() if e.state in (LEASED, BACKING_OFF, DELAYED)]
        waits = [*due, *self.opens()]
        return str(max(int(min(waits)) - self.now, 0)) if waits else ""

    def settle(self, settlements: list[list[str]]) -> list[str]:
        self.apply_due()
        answers = []
        for one in settlements:
            answers.append(self._settle_one(*one))
            self.advance()
            self.move()
        return answers

    def _settle_one(self, verb: str, token: str, id: str, *rest: str) -> str:
        entry = self.find(id)
        if entry is None or entry.state != LEASED or str(entry.token) != token or entry.head:
            if entry is not None and str(entry.suspect) == token:
                entry.suspect = entry.silent = 0
            return "LEASELOST"
        if verb == "CLOSE":
            delay, error, name, counts = rest
            self.closed[name] = max(self.closed.get(name, 0), self.now + int(delay))
            verb, rest = ("NACK", (delay, error)) if counts == "1" else ("DEFER", (delay,))
        if verb in ("ACK", "DONE", "DROP"):
            self.promote(entry)
        else:
            self.part(entry)
        if verb in ("ACK", "DONE"):
            self.counts["acks"] += 1
            self.happened("ack", entry, entry.token)
            self.keep(entry, "acked", "".join(rest))
            self.end(entry)
            return "ACKED"
        if verb in ("RELEASE", "DEFER"):
            self.counts["releases"] += 1
            self.happened(verb.lower(), entry, entry.token)
            self.come_again(entry, int("".join(rest) or 0))
            return "RELEASED"
        if verb == "DROP":
            self.counts["messages_expired"] += 1
            self.happened("message_expired", entry, entry.token, error=rest[0])
            self.keep(entry, "expired", rest[0])
            self.end(entry)
            return "DROPPED"
        if verb == "REJECT":
            return self.give_up(entry, rest[0], "dead")
        if verb == "EXHAUST":
            return self.give_up(entry, rest[0], self.option("THEN", entry))
        entry.suspect = entry.silent = 0
        return self.fail(entry, int(rest[0]) if rest[0] else None, rest[1])

    def fail(self, entry: Entry, delay: int | None, error: str) -> str:
        most = int(self.option("ATTEMPTS", entry))
        if most and entry.attempt >= most:
            return self.give_up(entry, error, self.option("THEN", entry))
        if delay is None:
            delay = self.backoff(entry)
        self.counts["retries"] += 1
        self.add_error(entry, error)
        self.happened("retry", entry, entry.token, error=error)
        entry.attempt += 1
        self.come_again(entry, delay)
        return "RETRIED"

    def come_again(self, entry: Entry, delay: int) -> None:
        entry.state, entry.due = (BACKING_OFF, self.now + delay) if delay else (QUEUED, 0)
        entry.returned = True

    def add_error(self, entry: Entry, error: str) -> None:
        entry.error = history(entry.error, error, entry.attempt, self.now, MOST["MAX_HISTORY"])

    def backoff(self, entry: Entry) -> int:
        names = ("FIRST", "FACTOR", "LONGEST", "JITTER")
        return backoff(entry.id, entry.attempt, *[int(self.option(n, entry)) for n in names])

    def give_up(self, entry: Entry, error: str, then: str) -> str:
        self.add_error(entry, error)
        held = then == "hold" or not self.has_dead_room()
        if not held and self.begins_to_die(entry, entry.token, error):
            return "HELD" if entry in self.line else "DEAD"
        self.happened("hold" if held else "dead", entry, entry.token, error=error)
        if held:
            entry.state = HELD
            self.become_stuck(entry)
            return "HELD"
        self.bury_entry(entry)
        return "DEAD"

    def bury_entry(self, entry: Entry) -> None:
        self.counts["dead_lettered"] += 1
        entry.died = self.now
        self.end(entry)
        self.dead.append(entry)

    def keep(self, entry: Entry, ended: str, result: str = "") -> None:
        span, most = int(entry.options.get("RESULT", 0)), int(self.options["RESULTS"])
        if span and len(result) <= most:
            self.kept[entry.id] = ended, self.now + span, result
            while sum(len(text) for _, _, text in self.kept.values()) > most:
                del self.kept[next(iter(self.kept))]

    def end(self, entry: Entry) -> None:
        for there in (self.line, self.delayed, self.parked):
            # One that is buried or cancelled at its put is nowhere.
            if entry in there:
                there.remove(entry)
        if "DEDUP" in entry.options:
            name, window = entry.options["DEDUP"], int(self.option("WINDOW", entry))
            self.named[name] = entry.id, self.now + window
            if not window:
                del self.named[name]
        if self.newest.get(entry.options.get("COALESCE", "")) == entry.id:
            del self.newest[entry.options["COALESCE"]]

    def extend(self, token: str, duration: int, waiting: str = "") -> list[str]:
        self.apply_due()
        held = [e for e in self.line if e.state == LEASED and str(e.token) == token]
        for entry in held:
            entry.due = self.now + duration
            if entry.told != "begun" and (entry.told or waiting):
                entry.told = waiting or "begun"
        return [str(self.now + duration)] if held else ["LEASELOST"]
