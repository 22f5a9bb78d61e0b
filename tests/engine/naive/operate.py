"""The naive model of a queue: what an operator does to it."""

from __future__ import annotations

from tests.engine.naive.groups import checked_weights
from tests.engine.naive.limits import checked_limits
from tests.engine.naive.model import (
    BACKING_OFF,
    DEFAULTS,
    HELD,
    LEASED,
    POLICY,
    QUEUED,
    Entry,
    Refused,
    Spec,
)
from tests.engine.naive.runs import RunsModel

NAMES = ("LIMIT", "GROUP", "RUN")
"""Options that a requeue may replace."""


class OperatedModel(RunsModel):
    def configure(self, arguments: list[str]) -> list[str]:
        self.apply_due()
        mode = arguments[0] if arguments[:1] in (["CHANGE"], ["REPLACE"]) else None
        given = arguments[mode is not None :]
        named = dict(zip(given[::2], given[1::2], strict=True))
        if "LIMITS" in named:
            named["LIMITS"] = checked_limits(named["LIMITS"])
        if "WEIGHTS" in named:
            named["WEIGHTS"] = checked_weights(named["WEIGHTS"])
        if arguments and self.declared and mode is None:
            if self.options != self.options | named:
                raise Refused("OPTIONSMISMATCH")
        elif arguments:
            before = self.options
            self.options = (before if mode == "CHANGE" else DEFAULTS) | named
            self.declared = True
            if self.options["LIMITS"] != before["LIMITS"]:
                self.limits_changed()
            if self.options["BEHIND"] != before["BEHIND"]:
                self.resweep = ""
                self.move()
        return [part for pair in self.options.items() for part in pair]

    def cancel(self, id: str) -> list[str]:
        self.apply_due()
        done = self._cancel(self.find(id))
        self.move()
        return [str(int(done))]

    def _cancel(self, entry: Entry | None, error: str = "") -> bool:
        if entry is None or entry.state == LEASED:
            return False
        self.counts["cancelled"] += 1
        self.happened("cancel", entry, error=error)
        self.keep(entry, "cancelled")
        self.end(entry)
        self.named.pop(entry.options.get("DEDUP", ""), None)
        return True

    def revoke(self, id: str, then: str, token: str | None = None) -> list[str]:
        self.apply_due()
        entry = self.find(id)
        if entry is None or entry.state != LEASED or token not in (None, str(entry.token)):
            return ["0"]
        if entry.head:
            return ["0"]
        self.counts["revoked"] += 1
        self.part(entry)
        if then == "retry":
            self.fail(entry, None, "revoked")
        elif then == "skip":
            self._skip(entry, entry.token)
        else:
            self.give_up(entry, "revoked", then)
        self.advance()
        self.move()
        return ["1"]

    def _skip(self, entry: Entry, token: int = 0) -> None:
        self.counts["skipped"] += 1
        self.happened("skip", entry, token)
        self.keep(entry, "skipped")
        self.end(entry)

    def _stopped(self, id: str) -> Entry | None:
        self.apply_due()
        entry = self.find(id)
        return entry if entry and entry.state in (HELD, BACKING_OFF) else None

    def retry(self, id: str) -> list[str]:
        if entry := self._stopped(id):
            entry.attempt += entry.state == HELD
            entry.state, entry.dying = QUEUED, None
            self.happened("readied", entry)
            self.move()
        return [str(int(entry is not None))]

    def skip(self, id: str) -> list[str]:
        if entry := self._stopped(id):
            self._skip(entry)
            self.move()
        return [str(int(entry is not None))]

    def bury(self, id: str) -> list[str]:
        entry = self._stopped(id)
        if entry is None or entry.dying is not None or not self.has_dead_room():
            return ["0"]
        if not self.begins_to_die(entry, 0, ""):
            self.happened("dead", entry)
            self.bury_entry(entry)
        self.move()
        return ["1"]

    def requeue(
        self, id: str, edited: str | None = None, exclusive: str = "", *rest: str
    ) -> list[str]:
        self.apply_due()
        entry = next((entry for entry in self.dead if str(entry.id) == id), None)
        if entry is None:
            return []
        keys, shared, kept = tuple(entry.exclusive), tuple(entry.shared), dict(entry.options)
        if exclusive:
            middle = 1 + int(exclusive)
            end = middle + int(rest[0])
            keys, shared, names = rest[1:middle], rest[middle:end], rest[end:]
            for name, text in zip(NAMES, names, strict=False):
                kept[name] = text
            if (keys or shared) and entry.options.get("BARRIER") == "1":
                raise Refused("BADARG")
        if self.sealed:
            raise Refused("SEALED")
        payload = entry.payload if edited is None else edited
        stays = (
            "PRIORITY",
            "BARRIER",
            "RESULT",
            "QUIET",
            "BEHIND",
            *NAMES,
            *POLICY,
        )
        options = tuple((name, text) for name, text in kept.items() if text and name in stays)
        spec = Spec(payload, keys, shared, options)
        self.room(1, len(payload), len(payload), [spec])
        self.dead.remove(entry)
        self.counts["requeued"] += 1
        return [str(self.enter(spec))]

    def discard(self, id: str) -> list[str]:
        self.apply_due()
        before = len(self.dead)
        self.dead = [entry for entry in self.dead if str(entry.id) != id]
        return [str(int(len(self.dead) < before))]

    def forget(self, id: str) -> list[str]:
        self.apply_due()
        return [str(int(self.kept.pop(int(id), None) is not None))]

    def join(self, _: str, id: str | None = None) -> list[str]:
        self.apply_due()
        left = len(self.unsettled()) if id is None else int(self.find(id) is not None)
        return [str(left), self.next_due() if left else ""]

    def purge(self, what: str) -> list[str]:
        self.apply_due()
        if what == "dead":
            count = len(self.dead)
            self.dead = []
        else:
            before = self.last_event
            count = sum(self._cancel(entry) for entry in self.unsettled())
            new = self.last_event - before
            # Told by id, for the servers come to them in no order.
            self.events[len(self.events) - new :] = sorted(
                self.events[len(self.events) - new :], key=lambda event: event[2]
            )
            self.move()
        return [str(count)]

    def pause(self, keys: list[str]) -> list[str]:
        self.apply_due()
        if not keys:
            before, self.halted = self.halted, True
            return [str(int(not before))]
        reply = []
        for key in keys:
            reply.append(str(int(key not in self.paused)))
            if key not in self.paused:
                self.paused.append(key)
                self.release_keepers(key)
                self.sweep([key])
        self.move()
        return reply

    def resume(self, keys: list[str]) -> list[str]:
        self.apply_due()
        if not keys:
            before, self.halted = self.halted, False
            return [str(int(before))]
        reply = []
        for key in keys:
            reply.append(str(int(key in self.paused)))
            self.paused = [one for one in self.paused if one != key]
            for entry in self.line:
                entry.set_aside = None if entry.set_aside == key else entry.set_aside
        self.move()
        return reply

    def seal(self) -> list[str]:
        self.apply_due()
        before, self.sealed = self.sealed, True
        return [str(int(not before))]

    def reopen(self) -> list[str]:
        self.apply_due()
        before, self.sealed = self.sealed, False
        return [str(int(before))]
