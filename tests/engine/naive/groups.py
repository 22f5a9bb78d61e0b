"""The naive model of a queue: groups take turns (clause 28).

A ring has the places of groups, the lowest number first. Messages with keys and those without have
a ring for each priority, and so have those that wait for a limit name.
"""

from __future__ import annotations

from tests.engine.naive.limits import LimitedModel, counted, declared_for
from tests.engine.naive.model import BETWEEN, QUEUED, WIRE, Entry, Place, Refused, Ring

MOST_WEIGHT = WIRE.limits["MAX_WEIGHT"].of("redis")
MOST_AHEAD = 1_000
"""Groups ahead of a message that are counted."""


class GroupedModel(LimitedModel):
    def has_groups(self) -> bool:
        """True while an unsettled message has a group: otherwise there are no turns."""
        return any(entry.group for entry in self.unsettled())

    def weight(self, group: str) -> int:
        return int(declared_for(self.options["WEIGHTS"], group) or 1)

    def ring(self, entry: Entry, name: str = "", keyed: bool | None = None) -> Ring:
        half = entry.keyed if keyed is None else keyed
        return name, half, entry.priority, entry.group

    def place(self, ring: Ring) -> Place:
        """The group of messages without one is first until it has had a turn."""
        return self.places.get(ring, Place())

    def place_last(self, ring: Ring) -> None:
        self.turns += 1
        self.places[ring] = Place(self.turns)

    def enter_ring(self, entry: Entry) -> None:
        """A message is put: its group gets a place, unless it has an unsettled one of this kind."""
        if not entry.group:
            return
        if not self.has_groups():
            self.places.clear()
        ring = self.ring(entry)
        if all(self.ring(other) != ring for other in self.unsettled()):
            self.place_last(ring)

    def enter_line(self, entry: Entry, name: str) -> None:
        """A message begins to wait for a name."""
        ring = self.ring(entry, name)
        if self.has_groups() and all(self.ring(e, name) != ring for e in self.line_of(name)):
            self.place_last(ring)

    def take_turn(self, entry: Entry, kind: str) -> None:
        """A message is granted to a consumer that asked for this kind."""
        if not self.has_groups():
            return
        halves = (True, False) if kind == "any" else (entry.keyed,)
        rings = [self.ring(entry, keyed=half) for half in halves]
        if entry.waits_for is not None and entry.slots is None:
            rings.append(self.ring(entry, entry.waits_for))
        self.turns += 1
        for ring in rings:
            if entry.group and ring not in self.places:
                continue
            place = self.places.setdefault(ring, Place())
            place.used += 1
            if place.used >= self.weight(entry.group):
                place.number, place.used = self.turns, 0

    def next_one(self, entries: list[Entry], name: str = "") -> Entry | None:
        """The first by priority, then by the place of its group, then by sequence."""
        highest = max((entry.priority for entry in entries), default=0)
        some = [entry for entry in entries if entry.priority == highest]
        if not some:
            return None
        turn = min(some, key=lambda entry: self.place(self.ring(entry, name)).number)
        return min((e for e in some if e.group == turn.group), key=lambda entry: entry.sequence)

    def told_group(self, entry: Entry) -> list[str]:
        """For an explanation: the ready messages of its group, and the groups ahead of it."""
        if entry.state != QUEUED or self.blocked(entry) or not self.has_groups():
            return ["0"]
        ready = self.offered()
        mine = self.place(self.ring(entry)).number
        ahead = 0
        for group in {other.group for other in ready} - {entry.group}:
            own = [e for e in ready if e.group == group and e.keyed == entry.keyed]
            first = self.next_one(own)
            if first is not None:
                theirs = self.place(self.ring(first)).number
                ahead += (-first.priority, theirs) < (-entry.priority, mine)
        count = sum(other.group == entry.group for other in ready)
        return ["1", entry.group, str(count), str(min(ahead, MOST_AHEAD))]


def checked_weights(text: str) -> str:
    """The declaration in its canonical form."""
    if len(text) > WIRE.limits["MAX_LIMITS"].of("redis"):
        raise Refused("BADARG")
    found: dict[str, int] = {}
    for entry in text.split(BETWEEN) if text else ():
        name, _, value = entry.rpartition("=")
        if not name or name in found:
            raise Refused("BADARG")
        found[name] = counted(value, MOST_WEIGHT)
    return BETWEEN.join(f"{name}={found[name]}" for name in sorted(found))
