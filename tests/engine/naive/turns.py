"""The turns of groups (clause 28), checked on the naive model alone.

    python -m tests.engine.naive.turns --schedules 500 --seed 7

Random schedules are those that the servers are compared with. What they must show is said here in
other words than in the model: who is granted at the expense of whom. The rest are queues in which
groups compete for long.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.engine.naive.model import QUEUED, Entry, Spec
from tests.engine.naive.roots import conflict
from tests.engine.naive.watch import WatchedModel
from tests.engine.schedules.director import Director
from tests.engine.schedules.steps import random_steps

START = 1_700_000_000_000_000
LONG = 1_000_000_000
STEPS = 300


class CheckedModel(WatchedModel):
    """A model that checks each grant against all others that could have been made instead."""

    checked = 0

    def could_go(self, entry: Entry) -> bool:
        """True if nothing but others keeps a message from being leased."""
        open_keys = not any(key in self.paused for key in entry.keys)
        return (
            entry.state == QUEUED
            and open_keys
            and entry.set_aside is None
            and entry.slots is None
            and not any(self.refuses(name, entry) for name in entry.names)
        )

    def take_turn(self, entry: Entry, kind: str) -> None:
        self.check_turn(entry, kind)
        super().take_turn(entry, kind)

    def check_turn(self, entry: Entry, kind: str) -> None:
        """It is about to be granted: its state says so already."""
        CheckedModel.checked += 1
        # Its own slots are not taken yet.
        entry.state = QUEUED
        in_front = self.in_front()
        if entry.head is not None:
            # It is behind that one, and no other choice was made.
            for name in entry.names:
                assert not self.refuses(name, entry), "leased in a run beyond a limit"
            entry.state = "leased"
            return
        assert entry in in_front, "granted although something holds it up"
        fit = [e for e in in_front if kind == "any" or (kind == "keyed") == e.keyed]
        others = [one for one in fit if one is not entry and self.could_go(one)]
        for name in entry.names:
            assert len(self.leased_with(name)) < self.most(name), "granted beyond a limit"
            assert not self.is_shut(name, entry), "granted before a rate allows it"
        keeps = entry.slots is not None
        mine = [
            self.place(self.ring(each)).number
            for each in self.candidates(fit)
            if each.group == entry.group and each.priority == entry.priority
        ]
        has_groups = self.has_groups()
        for one in others:
            assert one.priority <= entry.priority, "granted before a higher priority"
            same = one.group == entry.group and one.keyed == entry.keyed
            earlier = one.priority == entry.priority and one.sequence < entry.sequence
            within = set(one.names) <= set(entry.names) and not keeps
            assert not (same and earlier and within), "granted before one of its own group"
            # One with names may have to stay behind another.
            equal = one.priority == entry.priority and not one.names and has_groups
            if equal and one.group != entry.group:
                assert min(mine) < self.place(self.ring(one)).number, "granted out of turn"
        entry.state = "leased"

    def grant(self, consumer: str, count: int, duration: int, kind: str) -> list[str]:
        reply = super().grant(consumer, count, duration, kind)
        kind = kind.removesuffix("+")
        if reply[0] == "":
            # Nothing was left out.
            for one in [] if self.halted else self.in_front():
                fits = kind == "any" or (kind == "keyed") == one.keyed
                assert not (fits and self.could_go(one)), "nothing was granted, though one could go"
        self.check_leases()
        return reply

    def check_leases(self) -> None:
        leased = [e for e in self.line if e.state == "leased" and e.head is None]
        for entry in leased:
            for other in self.line:
                if other.sequence < entry.sequence:
                    assert not conflict(other, entry), "leased while an earlier one conflicts"


def check_schedule(seed: int) -> Counter[str]:
    """Run one random schedule to its end. Return what it counted."""
    rng = random.Random(seed)
    model = CheckedModel(START)
    director = Director(model)
    for step in random_steps(rng, STEPS):
        director.take(step)
    director.drain()
    ended = ("acks", "cancelled", "skipped", "dead_lettered", "messages_expired")
    assert not model.unsettled()
    if "drop" not in {call.name for call in director.calls}:
        put = model.counts["puts"]
        assert put == sum(model.counts[name] for name in ended), "not every message ended once"
    return model.counts


class Field:
    """A queue in which groups compete, and consumers that hold for a while what they get."""

    def __init__(self, seed: int, limits: str = "", weights: str = "") -> None:
        self.rng = random.Random(seed)
        self.model = CheckedModel(START)
        self.model.configure(["LIMITS", limits, "WEIGHTS", weights])
        self.granted: list[Entry] = []
        self.out: list[Entry] = []

    def put(self, group: str, count: int = 1, **options: object) -> None:
        keys = options.pop("keys", ())
        assert isinstance(keys, tuple)
        named = {"GROUP": group, **options} if group else options
        pairs = tuple((name, str(value)) for name, value in named.items())
        self.model.put([Spec("", keys, (), pairs)] * count)

    def lease(self, count: int = 1, kind: str = "any") -> list[Entry]:
        self.model.now += 1
        before = {id(one) for one in self.out}
        self.model.lease("", count, LONG, kind)
        leased = [e for e in self.model.line if e.state == "leased" and id(e) not in before]
        self.out += leased
        self.granted += sorted(leased, key=lambda e: (e.token, e.sequence))
        return leased

    def settle(self, one: Entry, verb: str = "ACK") -> None:
        self.out.remove(one)
        rest = {"NACK": ["0", "broken"]}.get(verb, [])
        self.model.settle([[verb, str(one.token), str(one.id), *rest]])

    def run(self, grants: int, consumers: int, kinds: Iterable[str] = ("any",)) -> None:
        """Grant this many messages to consumers, which settle them in a random order."""
        kinds = list(kinds)
        idle = 0
        while len(self.granted) < grants and idle < 200:
            if len(self.out) < consumers and self.lease(1, self.rng.choice(kinds)):
                idle = 0
                continue
            idle += 1
            if self.out:
                verb = self.rng.choices(["ACK", "RELEASE", "NACK"], [8, 1, 1])[0]
                self.settle(self.rng.choice(self.out), verb)
            self.model.now += 7

    def shares(self, first: int = 0) -> Counter[str]:
        return Counter(one.group for one in self.granted[first:])


def jain(shares: Iterable[float]) -> float:
    """Jain's index of fairness: 1 if all are equal, 1/n if one has everything."""
    found = list(shares)
    return sum(found) ** 2 / (len(found) * sum(one * one for one in found))


LOUD, QUIET = "loud", ["a", "b", "c", "d", "e", "f", "g"]


def check_shares(seed: int, limits: str = "", **options: object) -> float:
    """Groups beside one that puts 100 times as much, 20 times at a limit, get the same as it.

    They are within one turn, at a limit within one more, for what never waited for it.
    """
    field = Field(seed, limits)
    each = field.rng.randrange(4, 7) if limits else field.rng.randrange(5, 12)
    field.put(LOUD, (20 if limits else 100) * each, **options)
    for group in field.rng.sample(QUIET, len(QUIET)):
        field.put(group, each, **options)
    # While all have something: what is returned is granted again.
    field.run(8 * (each - 2), field.rng.choice([1, 3, 20]))
    shares = field.shares()
    assert max(shares.values()) - min(shares[group] for group in [LOUD, *QUIET]) <= 1 + bool(limits)
    index = jain(shares[group] for group in [LOUD, *QUIET])
    assert index >= (0.96 if limits else 0.99), f"{shares}"
    return index


def check_weights(seed: int) -> None:
    """At any time each group is within one turn of its share of what was granted."""
    field = Field(seed, weights="a=3\x1fb*=2\x1f*=1")
    weights = {"a": 3, "b1": 2, "c": 1, "": 1}
    for group in field.rng.sample(list(weights), 4):
        field.put(group, 40)
    field.run(70, field.rng.choice([1, 4]))
    for count in range(len(field.granted)):
        shares = Counter(one.group for one in field.granted[:count])
        for one, of in weights.items():
            for other, other_of in weights.items():
                assert shares[one] / of - shares[other] / other_of <= 1.0001, "more than a turn"


def check_waits(seed: int) -> None:
    """A message of a quiet group waits at most one turn of each other group."""
    field = Field(seed, limits="bank=2" if seed % 2 else "")
    rng = field.rng
    named: dict[str, Any] = {"LIMIT": "bank"} if seed % 2 else {}
    field.put(LOUD, 30, **named)
    waited: dict[str, int] = {}
    worst = 0
    for _ in range(150):
        group = rng.choice(QUIET)
        if group not in waited and rng.random() < 0.6:
            field.put(group, **named)
            waited[group] = 0
        if len(field.out) < 4:
            for one in field.lease():
                waited.pop(one.group, None)
                waited = {name: count + 1 for name, count in waited.items()}
                worst = max([worst, *waited.values()])
        if field.out and rng.random() < 0.6:
            field.settle(rng.choice(field.out))
    # Groups ahead of it in turn, and at a limit also those ahead in its line.
    assert worst <= (len(QUIET) + 1) * (1 + seed % 2), f"{worst} were granted before it"


def check_kinds(seed: int) -> None:
    """No kind of consumer starves the messages of a group that another kind serves too."""
    field = Field(seed)
    for n in range(40):
        field.put("both", keys=(f"k{n}",))
        field.put("both")
        field.put("keyed", keys=(f"l{n}",))
        field.put("plain")
    kinds = field.rng.choice([["any"], ["keyed", "unkeyed"], ["any", "unkeyed"], ["any", "keyed"]])
    field.run(70, field.rng.choice([1, 6]), kinds)
    shares = field.shares()
    if kinds == ["any"]:
        assert max(shares.values()) - min(shares.values()) <= 1, shares
    halves = Counter((one.group, one.keyed) for one in field.granted)
    for group, keyed in [("both", True), ("both", False), ("keyed", True), ("plain", False)]:
        served = kinds != ["any", "unkeyed" if keyed else "keyed"]
        assert halves[group, keyed] >= (5 if served else 1), halves


def check_keepers(seed: int) -> int:
    """A message with two busy names starts at last, although others wait for them."""
    field = Field(seed, limits="x=1\x1fy=1")
    rng = field.rng
    groups = ["a", "b", ""]
    for name in "xy":
        field.put("c", LIMIT=name)
        field.lease()
    field.put("d", LIMIT="x\x1fy")
    both = field.model.line[-1]
    for count in range(700):
        for group in groups:
            for name in "xy":
                if not any(
                    e.group == group and e.names == [name] and e.state == QUEUED
                    for e in field.model.line
                ):
                    field.put(group, LIMIT=name)
        while field.lease():
            pass
        if both.state != QUEUED:
            return count
        field.settle(rng.choice(field.out))
    raise AssertionError("a message of two names never started")


def check_serial_keys(seed: int) -> None:
    """A group whose messages share one key gets its turn each time it has a ready message."""
    field = Field(seed)
    field.put(LOUD, 80)
    for group in QUIET[:3]:
        for _ in range(12):
            field.put(group, keys=(group,))
    field.run(40, 2)
    shares = field.shares()
    # Each could use half of the consumers, and there are four groups.
    assert min(shares[group] for group in QUIET[:3]) >= 8, shares


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.engine.naive.turns")
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    first = random.randrange(2**31) if given.seed is None else given.seed
    tally = Counter[str]()
    worst = {"plain": 1.0, "limit": 1.0}
    passed = 0
    for seed in range(first, first + given.schedules):
        try:
            tally += check_schedule(seed)
            if seed % 25 == 0:
                worst["plain"] = min(worst["plain"], check_shares(seed))
                worst["limit"] = min(worst["limit"], check_shares(seed, "bank=3", LIMIT="bank"))
                check_weights(seed)
                check_waits(seed)
                check_kinds(seed)
                check_serial_keys(seed)
            if seed % 100 == 0:
                passed = max(passed, check_keepers(seed))
        except Exception:
            print(
                f"python -m tests.engine.naive.turns --schedules 1 --seed {seed}", file=sys.stderr
            )
            raise
    print(
        f"seeds {first} to {seed}: {tally['puts']:,} messages, {CheckedModel.checked:,} grants "
        f"checked; Jain's index at least {worst['plain']:.4f}, at a limit {worst['limit']:.4f}; "
        f"a message of two names started after {passed} others at most"
    )


if __name__ == "__main__":
    main()
