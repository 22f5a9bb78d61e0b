"""The naive model of a queue: runs (clause 30).

Riders are leased: they have the token of their head, the only one of a run that has a lease of its
own. That they follow it in all of its lanes is asked anew each time.
"""

from __future__ import annotations

from tests.engine.naive.coalesce import CoalescedModel
from tests.engine.naive.model import LEASED, MOST, QUEUED, TOLD, Entry


class RunsModel(CoalescedModel):
    def riders(self, head: Entry) -> list[Entry]:
        """The messages behind it in its run, in order."""
        return [entry for entry in self.line if entry.head is head]

    def ride(self, head: Entry, taken: list[Entry], kind: str) -> bool:
        """Lease what follows a leased message in a run. Return whether the call may go on."""
        most = int(head.options.get("RUN", "1").partition(":")[0])
        if not is_whole(head):
            most = 1
        last = head
        for _ in range(most - 1):
            rider = self.next_of(last)
            if rider is None or not self.may_ride(rider, last):
                break
            if len(taken) == MOST["MAX_BATCH"]:
                return False
            rider.state, rider.head = LEASED, head
            self.take_turn(rider, kind)
            self.charge(rider)
            taken.append(rider)
            last = rider
            if sum(len(one.payload) for one in taken) >= TOLD:
                return False
        return len(taken) < MOST["MAX_BATCH"]

    def next_of(self, entry: Entry) -> Entry | None:
        """The message right behind it in the lane of its first exclusive key."""
        lane = self.lane(entry.exclusive[0])
        return next(iter(lane[lane.index(entry) + 1 :]), None)

    def may_ride(self, rider: Entry, last: Entry) -> bool:
        if rider.state != QUEUED or not is_whole(rider) or _common(rider) != _common(last):
            return False
        # It waits for the one before it alone: for nothing else in any lane, nor for a barrier.
        lanes = [self.lane(key) for key in rider.keys]
        adjacent = all(lane.index(rider) == lane.index(last) + 1 for lane in lanes)
        waits = self.blocked(rider) == len(rider.exclusive)
        return adjacent and waits and not any(self.refuses(name, rider) for name in rider.names)

    def promote(self, head: Entry) -> None:
        """It is settled: the next of its run has the lease now."""
        riders = self.riders(head)
        for rider in riders:
            rider.head = None if rider is riders[0] else riders[0]

    def part(self, head: Entry) -> None:
        """Its lease ends in another way: those behind it were never leased."""
        for rider in self.riders(head):
            rider.state, rider.head, rider.due = QUEUED, None, 0


def is_whole(entry: Entry) -> bool:
    """Return whether a message may be in a run: one that was leased before may not."""
    named = "RUN" in entry.options and bool(entry.exclusive)
    return named and entry.attempt == 1 and not entry.suspect and not entry.returned


def _common(entry: Entry) -> tuple[object, ...]:
    """Return what all messages of a run have in common."""
    return (
        set(entry.exclusive),
        set(entry.shared),
        entry.priority,
        entry.group,
        entry.options["RUN"],
    )
