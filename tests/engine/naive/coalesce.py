"""The naive model of a queue: puts that replace the payload of an earlier message (clause 29)."""

from __future__ import annotations

from collections.abc import Iterable

from tests.engine.naive.behind import BehindModel
from tests.engine.naive.model import DELAYED, LEASED, Entry, Refused, Spec


class CoalescedModel(BehindModel):
    def replaceable(self, spec: Spec) -> Entry | None:
        """The message whose payload a put replaces."""
        name = spec.option("COALESCE")
        entry = None if name is None else self.find(str(self.newest.get(name)))
        return entry if entry and entry.state != LEASED else None

    def need(self, specs: list[Spec]) -> tuple[int, int, int]:
        """Messages and bytes that a put adds, and the bytes of all payloads that stay of it."""
        count = size = whole = 0
        stays: dict[str | int, tuple[Entry, str]] = {}
        for at, spec in enumerate(specs):
            name = spec.option("COALESCE")
            new = Entry(0, "", *spec.canonical_keys(), dict(spec.options), 0)
            key = at if name is None else name
            before = stays[key][0] if key in stays else self.replaceable(spec) or new
            if _place(before) != _place(new):
                raise Refused("DIFFERS")
            stays[key] = before, spec.payload
        for entry, payload in stays.values():
            count += entry.id == 0
            size += max(0, len(payload) - len(entry.payload))
            whole += len(payload)
        return count, size, whole

    def entering(self, specs: Iterable[Spec]) -> list[Spec]:
        """The specs of a put that replace no payload."""
        found: list[Spec] = []
        names: set[str] = set()
        for spec in specs:
            name = spec.option("COALESCE")
            if name is None:
                found.append(spec)
            elif name not in names and not self.replaceable(spec):
                names.add(name)
                found.append(spec)
        return found

    def replace(self, entry: Entry, spec: Spec) -> None:
        """It keeps all that decides when it is leased, but for a debounce."""
        entry.payload, entry.error = spec.payload, ""
        entry.attempt, entry.suspect, entry.silent = 1, 0, 0
        entry.revision += 1
        longer = max(int(entry.options.get("RESULT", 0)), int(spec.option("RESULT") or 0))
        entry.options["RESULT"] = str(longer)
        if entry.state == DELAYED and (debounce := int(spec.option("DEBOUNCE") or 0)):
            due = self.now + debounce
            entry.due = min(due, entry.latest) if entry.latest else due
        self.counts["coalesced"] += 1
        self.happened("replaced", entry)


def _place(entry: Entry) -> tuple[object, ...]:
    """Return the part of a message that a put which replaces its payload may not change."""
    return set(entry.exclusive), set(entry.shared), entry.priority, entry.names, entry.group
