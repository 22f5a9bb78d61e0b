"""The naive model of a queue: concurrency limits and rates (clauses 26 and 27).

What is leased and kept is counted anew at each question; what rates have granted is remembered.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass

from tests.engine.naive.model import BETWEEN, LEASED, QUEUED, WIRE, Entry, Model, Refused

PASSES = 64
"""Refusals after the first that make a message with several names a keeper."""

NEVER = float("inf")
MOST_SPAN = WIRE.limits["MAX_SPAN"].of("redis")
AWAITED = WIRE.limits["MAX_AWAITED"].of("redis")


@dataclass(frozen=True)
class Rate:
    """Times in µs."""

    interval: int
    burst: int

    @classmethod
    def read(cls, text: str) -> Rate | None:
        count, _, rest = text.partition("/")
        per, _, burst = rest.partition(":")
        return cls(-(-int(per) // int(count)), int(burst)) if burst else None


@functools.cache
def declared_for(limits: str, name: str) -> str:
    """The number or the rate of a name, as text; empty: it has none."""
    found: list[tuple[int, str]] = []
    for entry in filter(None, limits.split(BETWEEN)):
        declared, _, value = entry.rpartition("=")
        if declared.endswith("*"):
            if name.startswith(declared[:-1]):
                found.append((len(declared) - 1, value))
        elif declared == name:
            return value
    return max(found)[1] if found else ""


class LimitedModel(Model):
    def most(self, name: str) -> float:
        """Number of messages with a name that may be leased at once."""
        value = declared_for(self.options["LIMITS"], name)
        return int(value) if value and "/" not in value else float("inf")

    def rate(self, name: str) -> Rate | None:
        return Rate.read(declared_for(self.options["LIMITS"], name))

    def rates_last(self, entry: Entry) -> list[str]:
        """Its names in the order in which a keeper takes them."""
        return sorted(entry.names, key=lambda name: (self.rate(name) is not None, name))

    def keeps(self, entry: Entry) -> list[str]:
        return self.rates_last(entry)[: entry.slots] if entry.slots else []

    def leased_with(self, name: str) -> list[Entry]:
        leased = [entry for entry in self.line if entry.state == LEASED and name in entry.names]
        return sorted(leased, key=lambda entry: entry.id)

    def keeper(self, name: str) -> Entry | None:
        return next((e for e in self.line if e.slots is not None and name in e.names), None)

    def slot_kept(self, name: str) -> Entry | None:
        return next((entry for entry in self.line if name in self.keeps(entry)), None)

    def free_slots(self, name: str) -> float:
        return self.most(name) - len(self.leased_with(name)) - bool(self.slot_kept(name))

    def shut_until(self, name: str, entry: Entry) -> float:
        """The time before which a rate, or a closing, refuses a message."""
        closed, rate = self.closed.get(name, 0), self.rate(name)
        if rate is None:
            return closed
        # With as many intervals used as are granted at once, the next grant is an interval away.
        free = rate.burst - 1 - (self.slot_kept(name) not in (None, entry))
        return NEVER if free < 0 else max(closed, self.used.get(name, 0) - free * rate.interval)

    def is_shut(self, name: str, entry: Entry) -> bool:
        return self.shut_until(name, entry) > self.now

    def refuses(self, name: str, entry: Entry) -> bool:
        return self.free_slots(name) < 1 or self.is_shut(name, entry)

    def charge(self, entry: Entry) -> None:
        """It is granted."""
        for name in entry.names:
            if rate := self.rate(name):
                self.used[name] = max(self.used.get(name, 0), self.now) + rate.interval

    def opens(self) -> list[float]:
        """The times at which time alone lets a message pass that waits for a name."""
        times: list[float] = []
        for entry in self.line:
            if entry.slots is not None:
                if entry.slots == len(entry.names):
                    times.append(max(self.shut_until(name, entry) for name in entry.names))
            elif entry.waits_for is not None and self.free_slots(entry.waits_for) >= 1:
                times.append(self.shut_until(entry.waits_for, entry))
        return [time for time in times if self.now < time < NEVER]

    def limits_changed(self) -> None:
        """Keepers keep nothing any more; a rate is used up for no longer than it could be now."""
        for entry in self.line:
            if entry.slots is not None:
                entry.forget_wait()
        for name in self.used:
            rate = self.rate(name)
            latest = self.now + rate.burst * rate.interval if rate else 0
            self.used[name] = min(self.used[name], latest)

    def advance(self) -> None:
        """Keepers take what is free, one name after another; of rates what will be."""
        for entry in self.line:
            while entry.slots is not None and entry.slots < len(entry.names):
                name = self.rates_last(entry)[entry.slots]
                if self.rate(name) is None and self.free_slots(name) < 1:
                    break
                entry.slots += 1

    def candidates(self, front: list[Entry]) -> list[Entry]:
        """Messages that wait for no name, the next of each line with room, and keepers that have
        all they need."""
        lines: dict[tuple[str, bool], list[Entry]] = {}
        found = []
        for entry in front:
            if entry.slots is not None:
                shut = any(self.is_shut(name, entry) for name in entry.names)
                found += [entry] if entry.slots == len(entry.names) and not shut else []
            elif entry.waits_for is None:
                found.append(entry)
            else:
                lines.setdefault((entry.waits_for, entry.keyed), []).append(entry)
        for (name, _), line in lines.items():
            first = self.next_one(line, name)
            if first is not None and not self.refuses(name, first):
                found.append(first)
        return found

    def line_of(self, name: str) -> list[Entry]:
        """The messages that wait for a name, without its keeper."""
        return [e for e in self.line if e.waits_for == name and e.slots is None]

    def own_before(self, entry: Entry) -> list[str]:
        """The names for which an earlier message of its own group and priority waits."""

        def is_before(other: Entry) -> bool:
            same = (other.group, other.keyed, other.priority)
            return (
                same == (entry.group, entry.keyed, entry.priority)
                and other.sequence < entry.sequence
            )

        return [n for n in self.rates_last(entry) if any(map(is_before, self.line_of(n)))]

    def enter_line(self, entry: Entry, name: str) -> None:
        raise NotImplementedError

    def admit(self, entry: Entry) -> bool:
        """A message comes up, as the next in the order of choice: may it be leased?"""
        if entry.slots is not None:
            return True
        if paused := [key for key in entry.keys if key in self.paused]:
            entry.set_aside = paused[0]
            entry.forget_wait()
            return False
        full = [name for name in self.rates_last(entry) if self.refuses(name, entry)]
        entry.passes += bool(full) and entry.waits_for is not None
        full = full or self.own_before(entry)
        if not full:
            return True
        self.enter_line(entry, full[0])
        entry.waits_for = full[0]
        if entry.passes >= PASSES and not any(self.keeper(name) for name in entry.names):
            entry.slots = 0
            self.advance()
        return False

    def release_keepers(self, key: str) -> None:
        """A key was paused: the keepers that have it keep nothing any more."""
        for entry in self.line:
            if entry.slots is not None and key in entry.keys:
                entry.forget_wait()

    def full_names(self, entry: Entry) -> list[str]:
        """The names that refuse a message."""
        if entry.state != QUEUED or self.blocked(entry):
            return []
        return [n for n in entry.names if self.lacks_slot(n, entry) or self.is_shut(n, entry)]

    def limits_used(self, count: int) -> list[str]:
        waiting = Counter(e.waits_for for e in self.line if e.waits_for and e.slots is None)
        kept = {name for e in self.line if e.slots is not None for name in e.names}
        awaited = sorted({*waiting, *kept})
        entries = filter(None, self.options["LIMITS"].split(BETWEEN))
        declared = {entry.rpartition("=")[0] for entry in entries}
        names = {*awaited[:AWAITED], *(name for name in declared if not name.endswith("*"))}
        reply = [str(len(awaited))]
        for name in sorted(names, key=lambda name: (-waiting[name], name))[:count]:
            most, rate, keeper = self.most(name), self.rate(name), self.keeper(name)
            reply += [name, "" if most == NEVER else str(most)]
            reply += [str(rate.interval), str(rate.burst)] if rate else ["", ""]
            reply += [str(len(self.leased_with(name))), str(waiting[name])]
            reply.append(str(keeper.id) if keeper else "")
            reply.append(self.next_grant(name, rate) if rate else "")
            closed = self.closed.get(name, 0) - self.now
            reply.append(str(closed) if closed > 0 else "")
        return reply

    def next_grant(self, name: str, rate: Rate) -> str:
        free = rate.burst - 1 - (self.slot_kept(name) is not None)
        opens = self.used.get(name, 0) - free * rate.interval
        return "" if free < 0 else str(max(opens - self.now, 0))

    def lacks_slot(self, name: str, entry: Entry) -> bool:
        return self.free_slots(name) < 1 and self.slot_kept(name) is not entry


def checked_limits(text: str) -> str:
    """The declaration in its canonical form."""
    if len(text) > WIRE.limits["MAX_LIMITS"].of("redis"):
        raise Refused("BADARG")
    found: dict[str, str] = {}
    for entry in text.split(BETWEEN) if text else ():
        name, _, value = entry.rpartition("=")
        if not name or name in found:
            raise Refused("BADARG")
        found[name] = _checked_rate(value) if "/" in value else str(counted(value))
    return BETWEEN.join(f"{name}={found[name]}" for name in sorted(found))


def counted(text: str, most: int = 10**9) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= most):
        raise Refused("BADARG")
    return int(text)


def _checked_rate(text: str) -> str:
    count, _, rest = text.partition("/")
    per, _, burst = rest.partition(":")
    numbers = counted(count), counted(per, MOST_SPAN), counted(burst)
    rate = Rate.read(text)
    if rate is None or numbers[0] > numbers[1] or rate.interval * rate.burst > MOST_SPAN:
        raise Refused("BADARG")
    return "{}/{}:{}".format(*numbers)
