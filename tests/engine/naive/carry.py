"""The naive model of a queue: how it is removed, and given what another queue held."""

from __future__ import annotations

from tests.engine.naive.model import BACKING_OFF, DEFAULTS, HELD, PARKED, TOLD, Entry, Refused, Spec
from tests.engine.naive.read import KEPT_OF_THE_DEAD, ReadModel

Item = tuple[str, str, int, int, str, Spec]


class CarriedModel(ReadModel):
    made = False
    """Something came into it."""

    def _next_number(self) -> int:
        self.made = True
        return super()._next_number()

    def drop(self, *force: str) -> list[str]:
        existed = self.made or self.declared or self.halted or self.sealed or bool(self.paused)
        if existed:
            self.apply_due()
        out = sum(entry.state == "leased" for entry in self.line)
        there = [len(self.unsettled()), out, len(self.dead), len(self.kept)]
        goes = existed and (not there[0] or bool(force))
        if goes:
            # The time remains, and the last numbers.
            self.line, self.delayed, self.dead, self.paused = [], [], [], []
            self.named, self.kept, self.options = {}, {}, dict(DEFAULTS)
            self.used, self.closed, self.places, self.newest = {}, {}, {}, {}
            self.parked, self.sweeps, self.resweep = [], [], None
            self.halted = self.sealed = self.declared = self.made = False
            self.counts.clear()
        return [str(int(goes)), *map(str, there)]

    def restore(self, arguments: list[str]) -> list[str]:
        window, *rest = arguments
        items = list(_items(rest))
        marks = {item[0] for item in items}
        if any(dict(item[5].options).get("DEDUP") in marks for item in items):
            raise Refused("BADARG")
        self.apply_due()
        seen: set[str] = set()
        new: list[Item] = []
        for item in items:
            names = {item[0], *self._names(item)}
            if all(self.known(name) is None for name in names) and not names & seen:
                new.append(item)
                seen |= names
            seen.add(item[0])
        queued = [item[5].payload for item in new if item[1] != "dead"]
        if queued:
            # All but the "stopped" ones may be parked.
            placed = [i[5] for i in new if i[1] in ("waiting", "ready", "parked") and i[2] == 1]
            size = len("".join(queued))
            self.room(len(queued), size, size, placed)
        dead = len(new) - len(queued)
        dying = sum(entry.dying is not None for entry in self.line)
        if dead and len(self.dead) + dying + dead > int(self.options["MAXDEAD"]):
            raise Refused("FULL")
        reply: list[str] = []
        for item in items:
            known = [self.known(name) for name in (item[0], *self._names(item))]
            found = next((id for id in known if id is not None), None)
            if found is not None:
                self.counts["deduplicated"] += 1
                became = "known"
            else:
                entry, became = self._restore_one(*item[1:])
                found = entry.id
            if known[0] is None:
                self.named[item[0]] = found, self.now + int(window)
            reply += [str(found), became]
        return reply

    def _names(self, item: Item) -> list[str]:
        """Its dedup string; a dead letter has none."""
        name = dict(item[5].options).get("DEDUP")
        return [] if name is None or item[1] == "dead" else [name]

    def scan_dead(self, count: int, newest: bool = False, behind: Entry | None = None) -> list[str]:
        reply, bytes = ["0"], 0
        dead = self.dead[::-1] if newest else self.dead
        if behind:
            dead = dead[dead.index(behind) + 1 :]
        for number, entry in enumerate(dead[:count], 1):
            reply += self.told_dead(entry)
            bytes += entry.told_bytes()
            if number == count or bytes >= TOLD:
                return [str(entry.id), *reply[1:]]
        return reply

    def _restore_one(
        self, state: str, attempt: int, time: int, error: str, spec: Spec
    ) -> tuple[Entry, str]:
        if state == "dead":
            options = {k: v for k, v in spec.options if k in KEPT_OF_THE_DEAD}
            id = self._next_number()
            entry = Entry(id, spec.payload, *spec.canonical_keys(), options, id)
            entry.died = min(time, self.now)
            self.dead.append(entry)
        else:
            state = "waiting" if state == PARKED else state
            if state == "delayed":
                spec = Spec(spec.payload, spec.keys, spec.shared, (*spec.options, ("DELAY", "1")))
            stopped = state in ("held", "backing_off")
            id = self.enter(spec, attempt, error, stopped)
            found = self.find(str(id))
            if found is None:
                # It went with a held message.
                for dead in self.dead:
                    if dead.id == id:
                        return dead, "dead"
                return Entry(id, spec.payload, [], [], {}, id), "cancelled"
            entry = found
            if state == "delayed":
                entry.due = time
            elif entry.state == PARKED or self.blocked(entry):
                state = PARKED if entry.state == PARKED else "waiting"
            elif stopped:
                entry.state, entry.due = (HELD, 0) if state == "held" else (BACKING_OFF, time)
                if state == "held":
                    self.become_stuck(entry)
                    self.move()
        entry.attempt, entry.error = attempt, error
        return entry, state


def _items(rest: list[str]) -> list[Item]:
    items = []
    while rest:
        mark, state, attempt, time, error, payload, *counts = rest[:9]
        exclusive, shared, options = map(int, counts)
        named = rest[9 : 9 + exclusive + shared]
        rest = rest[9 + exclusive + shared :]
        pairs = tuple((rest[2 * at], rest[2 * at + 1]) for at in range(options))
        rest = rest[2 * options :]
        spec = Spec(payload, tuple(named[:exclusive]), tuple(named[exclusive:]), pairs)
        items.append((mark, state, int(attempt), int(time), error, spec))
    return items
