"""The naive model of a queue: what can be read of it; no reading applies what is due."""

from __future__ import annotations

from dataclasses import replace

from tests.engine.naive.limits import NEVER
from tests.engine.naive.model import (
    BACKING_OFF,
    DELAYED,
    HELD,
    LEASED,
    PARKED,
    POLICY,
    QUEUED,
    TOLD,
    WIRE,
    Entry,
)
from tests.engine.naive.operate import OperatedModel

OPTIONS = tuple(option.name for option in WIRE.message if option.name != "DELAY")
KEPT_OF_THE_DEAD = (
    "PRIORITY",
    "BARRIER",
    "RESULT",
    "QUIET",
    "LIMIT",
    "GROUP",
    "BEHIND",
    "RUN",
    *POLICY,
)
SHOWN_BEFORE_A_BARRIER = 10
NAMED = WIRE.limits["MAX_NAMED"].of("redis")
NAMED_BYTES = WIRE.limits["MAX_NAMED_BYTES"].of("redis")


class ReadModel(OperatedModel):
    def pauses_of(self, entry: Entry) -> list[str]:
        queue = [""] if self.halted else []
        return queue + [key for key in entry.keys if key in self.paused]

    def state(self, entry: Entry) -> str:
        if entry.state != QUEUED:
            return entry.state
        return "waiting" if self.blocked(entry) or self.pauses_of(entry) else "ready"

    def stats(self) -> list[str]:
        states = [self.state(entry) for entry in self.unsettled()]
        now = ("delayed", "waiting", "ready", "leased", "backing_off", "held", "parked")
        counts = {
            "unsettled": len(states),
            "bytes": sum(len(entry.payload) for entry in self.unsettled()),
            **{name: states.count(name) for name in now},
            "dead": len(self.dead),
            "lanes": len(self.depths()),
            "paused": len(self.paused) + self.halted,
            "sealed": int(self.sealed),
            "results": len(self.kept),
            "result_bytes": sum(len(text) for _, _, text in self.kept.values()),
            "limited": sum(entry.waits_for is not None for entry in self.line),
            "groups": len({entry.group for entry in self.unsettled() if entry.group}),
            "oldest_ready": (
                min((entry.sequence for entry in self.offered()), default=0)
                if "ready" in states
                else 0
            ),
            "oldest_waiting": self.oldest_waiting(),
            "riding": sum(entry.head is not None for entry in self.line),
            "full": int(not self.has_room(1, 1)),
        }
        reply: list[str] = []
        for figure in WIRE.figures:
            name = figure.name
            reply += name, str(self.counts[name] if figure.total else counts[name])
        return [*reply, "time", str(self.now)]

    def oldest_waiting(self) -> int:
        raise NotImplementedError

    def depths(self) -> dict[str, int]:
        keys = {key for entry in self.line for key in entry.keys}
        return {key: len(self.lane(key)) for key in keys}

    def hot(self) -> list[list[str]]:
        return sorted([key, str(depth)] for key, depth in self.depths().items())

    def result(self, id: str) -> list[str]:
        if self.find(id):
            return ["pending"]
        for entry in self.dead:
            if str(entry.id) == id:
                return ["dead", entry.newest_error()]
        ended, until, result = self.kept.get(int(id), ("gone", self.now + 1, ""))
        if until <= self.now:
            return ["gone"]
        return [ended, result] if ended in ("acked", "expired") else [ended]

    def dead_letters(self, count: int, after: str, key: str | None) -> list[str]:
        letters = self.dead
        if after:
            places = [at for at, entry in enumerate(letters) if str(entry.id) == after]
            letters = letters[places[0] + 1 :] if places else []
        reply: list[str] = []
        bytes = 0
        for entry in letters:
            if key is None or key in entry.keys:
                told = map(str, (entry.id, entry.attempt, entry.died, entry.error, entry.priority))
                reply += [*told, entry.payload, *entry.counted_keys()]
                bytes += entry.told_bytes()
                count -= 1
            if count == 0 or bytes >= TOLD:
                break
        return reply

    def due(self, entry: Entry) -> str:
        return str(entry.due) if entry.state in (DELAYED, BACKING_OFF) else ""

    def told(self, entry: Entry) -> list[str]:
        plain = {"PRIORITY": "0", "BARRIER": "0", "RESULT": "0", "QUIET": "0"}
        given = {k: v for k, v in entry.options.items() if v != plain.get(k)}
        if "DEDUP" not in given:
            given.pop("WINDOW", None)
        if "COALESCE" in given and entry.revision:
            given["REVISION"] = str(entry.revision)
        pairs = [part for name in OPTIONS if name in given for part in (name, given[name])]
        first = [str(entry.id), entry.told_sequence(), str(entry.attempt), entry.payload]
        exclusive, shared, *keys = entry.counted_keys()
        counts = [exclusive, shared, str(len(pairs) // 2)]
        state = [self.state(entry), self.due(entry), entry.error]
        return [*first, *counts, *keys, *pairs, *state]

    def told_dead(self, entry: Entry) -> list[str]:
        kept = {k: v for k, v in entry.options.items() if k in KEPT_OF_THE_DEAD}
        told = self.told(replace(entry, options=kept, sequence=entry.id, state=HELD))
        return [*told[:-3], "dead", str(entry.died), entry.error]

    def peek(self, id: str) -> list[str]:
        entry = self.find(id)
        if entry is None:
            for dead in self.dead:
                if str(dead.id) == id:
                    return ["dead", "", "", "", str(dead.died), "0", *self.told_dead(dead)]
            return []
        lease = ["", "", ""]
        if entry.state == LEASED:
            lease = [str(entry.token), entry.consumer, str(entry.due)]
        blocked = str(self.blocked(entry)) if entry.state == QUEUED else "0"
        return [self.state(entry), *lease, self.due(entry), blocked, *self.told(entry)]

    def scan(self) -> list[list[str]]:
        return sorted(self.told(entry) for entry in self.unsettled())

    def scan_key(self, key: str, count: int, after: Entry | None = None) -> list[str]:
        lane, reply, bytes = self.lane(key), ["0"], 0
        if after in lane:
            lane = lane[lane.index(after) + 1 :]
        for number, entry in enumerate(lane, 1):
            reply += self.told(entry)
            bytes += entry.told_bytes()
            if number == count or bytes >= TOLD:
                return [str(entry.id), *reply[1:]]
        return reply

    def scan_ids(self, ids: list[str], count: int, after: int) -> list[str]:
        reply, bytes = ["0"], 0
        for entry in [self.find(id) for id in ids if int(id) > after]:
            if entry is not None:
                reply += self.told(entry)
                bytes, count = bytes + entry.told_bytes(), count - 1
                if count == 0 or bytes >= TOLD:
                    return [str(entry.id), *reply[1:]]
        return reply

    def scan_larger(self, least: str, state: str | None = None) -> list[str]:
        found = [one for one in self.unsettled() if state in (None, self.state(one))]
        ids = sorted(one.id for one in found if one.id > int(least))
        return ["0", str(self.number if self.unsettled() else 0), *map(str, ids)]

    def scan_front(self, count: int, least: str, state: str | None = None) -> list[str]:
        ids = self.scan_larger(least, state)[2:][:count]
        return [ids[-1] if len(ids) == count else "0", *ids]

    def scan_delayed(self, key: str) -> list[list[str]]:
        found = [e for e in self.unsettled() if e.state in (DELAYED, PARKED) and key in e.keys]
        return sorted(self.told(entry) for entry in found)

    # Why a message waits.

    def explain(self, what: str, name: str, limit: int) -> list[str]:
        first = (
            [self.find(name)]
            if what == "id"
            else list(self.lane(name) or self.parked_under(name)[:1])
        )
        walk = _Walk(limit)
        for entry in first:
            if entry is None or walk.truncated:
                break
            if walk.queue:
                walk.name([entry])
            else:
                walk.add(entry)
        if not walk.queue:
            return []
        reply = []
        for entry in walk.queue:
            reply += self._node(entry, walk)
        return [str(int(walk.truncated)), str(len(walk.queue)), *reply]

    def _node(self, entry: Entry, walk: _Walk) -> list[str]:
        times = ["", "", "", ""]
        if entry.state == LEASED:
            left = max(entry.due - self.now, 0)
            times = [entry.consumer, str(self.now - entry.given), str(left), ""]
        elif self.due(entry):
            times = ["", "", "", str(max(entry.due - self.now, 0))]
        paused = self.pauses_of(entry) if entry.state == QUEUED else []
        self.advance()
        full = [
            (name, walk.name(self.leased_with(name) if self.lacks_slot(name, entry) else []))
            for name in self.full_names(entry)
        ]
        waits = entry.state == QUEUED or entry.head
        blockers = self._blockers(entry, walk) if waits else []
        age = str(max(self.now - entry.id, 0))
        told = [str(entry.id), self.state(entry), str(entry.attempt), age, *times]
        told += [str(len(paused)), *paused, str(len(full))]
        for name, holders in full:
            keeper, most = self.slot_kept(name), self.most(name)
            told += [name, "" if most == NEVER else str(most), str(len(self.leased_with(name)))]
            told.append(str(keeper.id) if keeper and keeper is not entry else "")
            until = self.shut_until(name, entry)
            told += [str(int(until) - self.now) if self.now < until < NEVER else ""]
            told.append(str(len(holders)))
            told += [str(holder.id) for holder in holders]
        told += self.told_group(entry)
        parked, stuck = self.parking(entry)
        named = walk.name(stuck)
        told += ["1", *parked, str(len(named)), *[str(e.id) for e in named]] if parked else ["0"]
        told.append(str(len(blockers)))
        for key, ahead, holders in blockers:
            told += [key, str(ahead), "1", str(len(holders)), *[str(e.id) for e in holders]]
        return told

    def _blockers(self, entry: Entry, walk: _Walk) -> list[tuple[str, int, list[Entry]]]:
        before = self.before(entry)
        if entry.barrier:
            by_id = sorted(before, key=lambda other: other.id)
            leased = walk.name([other for other in by_id if other.state == LEASED])
            others = [other for other in by_id if other.state != LEASED]
            room = max(min(walk.limit, SHOWN_BEFORE_A_BARRIER) - len(leased), 0)
            return [("", len(before), leased + walk.name(others[:room]))] if before else []
        found = []
        barriers = [other for other in before if other.barrier]
        if barriers:
            found.append(("", len(barriers), walk.name(barriers[:1])))
        for key in entry.keys:
            if entry not in self.front(key):
                lane = self.lane(key)
                found.append((key, lane.index(entry), walk.name(self.front(key))))
        return found


class _Walk:
    """The messages of an explanation, in the order in which they were named."""

    def __init__(self, limit: int) -> None:
        self.queue: list[Entry] = []
        self.limit = limit
        self.truncated = False
        self.named = NAMED
        self.bytes = NAMED_BYTES

    def add(self, entry: Entry) -> None:
        if entry not in self.queue:
            self.truncated |= len(self.queue) == self.limit
            self.queue += [entry] if len(self.queue) < self.limit else []

    def name(self, entries: list[Entry]) -> list[Entry]:
        """The named ones, each of which will be reported."""
        named = []
        for entry in entries[: self.limit]:
            if self.named <= 0 or self.bytes <= 0:
                self.truncated = True
                break
            keys = () if entry in self.queue else entry.keys
            self.named -= 1 + len(keys)
            self.bytes -= sum(len(key) for key in keys)
            named.append(entry)
            self.add(entry)
        return named
