"""The naive model of a queue: concurrency limits (clause 26), counted anew at each question."""

from __future__ import annotations

from tests.engine.naive.model import BETWEEN, LEASED, QUEUED, WIRE, Entry, Model, Refused

PASSES = 64
"""Refusals after the first that make a message with several names a keeper."""


class LimitedModel(Model):
    def most(self, name: str) -> float:
        """Number of messages with a name that may be leased at once."""
        found: list[tuple[int, int]] = []
        for entry in filter(None, self.options["LIMITS"].split(BETWEEN)):
            declared, _, number = entry.rpartition("=")
            if declared.endswith("*"):
                if name.startswith(declared[:-1]):
                    found.append((len(declared) - 1, int(number)))
            elif declared == name:
                return int(number)
        return max(found)[1] if found else float("inf")

    def leased_with(self, name: str) -> list[Entry]:
        leased = [entry for entry in self.line if entry.state == LEASED and name in entry.names]
        return sorted(leased, key=lambda entry: entry.id)

    def keeper(self, name: str) -> Entry | None:
        return next((e for e in self.line if e.slots is not None and name in e.names), None)

    def slot_kept(self, name: str) -> Entry | None:
        return next((entry for entry in self.line if name in entry.kept()), None)

    def free_slots(self, name: str) -> float:
        return self.most(name) - len(self.leased_with(name)) - bool(self.slot_kept(name))

    def advance(self) -> None:
        """Keepers take what is free, one name after another."""
        for entry in self.line:
            while entry.slots is not None and entry.slots < len(entry.names):
                if self.free_slots(entry.names[entry.slots]) < 1:
                    break
                entry.slots += 1

    def admit(self, entry: Entry) -> bool:
        """A message is in front, and the next in the order of choice: may it be leased?"""
        if entry.slots is not None:
            return entry.slots == len(entry.names)
        if entry.waits_for is not None and self.free_slots(entry.waits_for) < 1:
            return False
        if paused := [key for key in entry.keys if key in self.paused]:
            entry.parked = paused[0]
            entry.forget_wait()
            return False
        full = [name for name in entry.names if self.free_slots(name) < 1]
        if not full:
            return True
        entry.passes += entry.waits_for is not None
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
        """The names that have no room for a message."""
        if entry.state != QUEUED or self.blocked(entry):
            return []
        return [n for n in entry.names if self.free_slots(n) < 1 and self.slot_kept(n) is not entry]


def checked_limits(text: str) -> str:
    """The declaration in its canonical form."""
    if len(text) > WIRE.limits["MAX_LIMITS"].of("redis"):
        raise Refused("BADARG")
    found: dict[str, int] = {}
    for entry in text.split(BETWEEN) if text else ():
        name, _, number = entry.rpartition("=")
        if not name or not number.isdecimal() or not 1 <= int(number) <= 10**9 or name in found:
            raise Refused("BADARG")
        found[name] = int(number)
    return BETWEEN.join(f"{name}={found[name]}" for name in sorted(found))
