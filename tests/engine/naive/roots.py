"""The naive model of a queue: what holds other messages up, and how many."""

from __future__ import annotations

from tests.engine.naive.carry import CarriedModel
from tests.engine.naive.model import BACKING_OFF, HELD, LEASED, QUEUED, Entry


class RootsModel(CarriedModel):
    def roots(self, duration: str, count: str) -> list[str]:
        found: list[tuple[int, int, str, list[str]]] = []
        if self.halted:
            queued = sum(entry.state == QUEUED for entry in self.line)
            found.append((-queued, 0, "", ["paused", "", "", str(queued), "", ""]))
        for key in self.paused:
            depth = len(self.lane(key)) + len(self.parked_under(key))
            found.append((-depth, 0, key, ["paused", "", key, str(depth), "", ""]))
        for entry in self.line:
            leased_for = self.now - entry.given
            if entry.state in (HELD, BACKING_OFF) or (
                entry.state == LEASED and not entry.head and leased_for >= int(duration)
            ):
                depth = sum(
                    len(self.lane(key)) - len(self.front(key)) + len(self.parked_under(key))
                    for key in entry.keys
                )
                if entry.barrier:
                    depth = len(self.line) - 1
                key = max(entry.keys, key=lambda key: len(self.lane(key)), default="")
                time = {
                    HELD: "",
                    BACKING_OFF: str(max(entry.due - self.now, 0)),
                    LEASED: str(leased_for),
                }[entry.state]
                consumer = entry.consumer if entry.state == LEASED else ""
                told = [entry.state, str(entry.id), key, str(depth), time, consumer]
                found.append((-depth, entry.id, key, told))
        told = [part for *_, one in sorted(found)[: int(count)] for part in one]
        return [str(len(found)), "1", *told]

    def blocked_by(self, most: int, ids: list[str], keys: list[str]) -> list[str]:
        if "" in keys:
            return [str(sum(entry.state == QUEUED for entry in self.line)), "1"]
        roots = [entry for entry in self.line if str(entry.id) in ids]
        behind: list[Entry] = []
        for at, entry in enumerate(self.line):
            on_key = entry.state == QUEUED and any(key in keys for key in entry.keys)
            before = [one for one in self.line[:at] if one in roots or one in behind]
            if entry not in roots and (on_key or any(conflict(one, entry) for one in before)):
                behind.append(entry)
        first = min((one.sequence for one in [*roots, *behind]), default=0)
        barriers = [e.sequence for e in self.line if e.barrier and e.sequence >= first]
        walked = [e for e in behind if first and not (barriers and e.sequence >= barriers[0])]
        counted = min(len(walked), most) + len(behind) - len(walked)
        under = {key for entry in roots for key in entry.keys} | set(keys)
        counted += sum(entry.under in under for entry in self.parked)
        return [str(counted), str(int(len(walked) <= most))]

    def oldest_waiting(self) -> int:
        """Look behind leased messages, those set aside and the next one; not behind all that is
        ready."""
        next_one = self.next_one(self.offered())
        in_front = [next_one] if next_one else []
        waiting = {e.sequence for e in self.line if self.state(e) == "waiting"}
        if not waiting:
            return 0
        found = [e for e in in_front if self.halted]
        for entry in self.line:
            if entry.state in (LEASED, HELD, BACKING_OFF) or entry in in_front:
                for key in entry.keys:
                    found += self.lane(key)[len(self.front(key)) :][:1]
        for key in self.paused:
            found += [e for e in self.lane(key) if e.state == QUEUED][:1]
        for at, entry in enumerate(self.line):
            if entry.barrier:
                found += [entry] if self.blocked(entry) else self.line[at + 1 : at + 2]
                break
        # One of a run waits for the one before it, too.
        assert all(entry.sequence in waiting or entry.head for entry in found)
        return min((entry.sequence for entry in found), default=0)


def conflict(one: Entry, other: Entry) -> bool:
    if one.barrier or other.barrier:
        return True
    return any(key in other.keys for key in one.exclusive) or any(
        key in other.exclusive for key in one.shared
    )
