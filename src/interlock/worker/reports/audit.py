"""Checks from outside, while a worker runs, that the engine keeps its promises.

Each message is noted when it is leased, before its handler begins, and again when the handler has
ended, before it is settled. If two messages conflict (they share a key, and one of them holds it
alone), one must have ended before the other begins: the one with the lower sequence first, with the
lower token; or the same one, if they were leased as a run. A redelivered message must have a higher
attempt number, unless it was returned before a handler began it, its handler asked for the
redelivery with ``RetryAfter``, or its handler is not known to have ended: its process died or its
lease was lost.

All workers of a machine that share an engine's queue write to one file (``AuditJournal``), under
its lock, and read there what the others noted. So the checks hold across processes, in one order.
Workers on other machines are not seen.

Two handlers that seem to overlap may be one whose lease was lost: it kept running, or its process
was killed. The engine is not to blame for that. So before an overlap is reported, the engine is
asked whether the other message is leased at this moment too.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from interlock.worker.message.execution import TaskLease, details
from interlock.worker.reports.audit_journal import AuditJournal

__all__ = ["Audit", "Event", "Finding", "Table"]

_log = logging.getLogger("interlock.worker")


class Event(msgspec.Struct, array_like=True, frozen=True):
    """An event of a message."""

    what: Literal["begun", "ended", "withdrawn"]
    worker: str
    id: int
    sequence: int
    attempt: int
    token: int
    keys: tuple[bytes, ...]
    shared: tuple[bytes, ...]
    rides: bool = False
    """It was leased with the message before it in its run, under the same token."""

    def __str__(self) -> str:
        return (
            f"message {self.id} (sequence {self.sequence}, attempt {self.attempt}, token "
            f"{self.token}, handled by {self.worker})"
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """A message that began although it should not have."""

    kind: Literal["order", "overlap", "token", "attempt"]
    event: Event
    other: Event
    """The message it conflicts with; for token and attempt this may be the same message,
    earlier."""
    key: bytes | None

    def __str__(self) -> str:
        key = "" if self.key is None else f" on key {self.key.decode(errors='backslashreplace')!r}"
        return f"{self.event} {SAID[self.kind]}{key}: {self.other}"


class _Lane:
    __slots__ = ("alone", "running", "together")

    def __init__(self) -> None:
        self.alone: Event | None = None
        """The highest sequence that began and holds the key alone."""
        self.together: Event | None = None
        self.running: dict[int, Event] = {}


class Table:
    """Record of the messages that began and ended on one queue, and the violations found. Pure."""

    def __init__(self, most: int = 100_000) -> None:
        self._most = most
        self._lanes: collections.OrderedDict[bytes, _Lane] = collections.OrderedDict()
        self._attempts: collections.OrderedDict[int, tuple[Event, bool]] = collections.OrderedDict()

    def note(self, event: Event) -> list[Finding]:
        """Take one event, in the order in which they happened; return the violations. An overlap is
        only a suspicion; see the module."""
        if event.what == "begun":
            return [*self._begin_attempt(event), *self._begin(event)]
        before, _ = self._attempts.get(event.id, (None, True))
        if before is not None and before.token == event.token:
            self._attempts[event.id] = (before, event.what == "withdrawn")
        for key in (*event.keys, *event.shared):
            lane = self._lanes.get(key)
            if lane is None:
                continue
            found = lane.running.get(event.id)
            if found is not None and found.token <= event.token:
                del lane.running[event.id]
        return []

    def forget(self, event: Event) -> None:
        """Note that the message no longer runs, although its end was not reported."""
        for lane in (self._lanes.get(key) for key in (*event.keys, *event.shared)):
            if lane is not None and lane.running.get(event.id) is event:
                del lane.running[event.id]

    def _begin_attempt(self, event: Event) -> Iterable[Finding]:
        # Until its handler has ended, its lease may expire without the attempt being counted.
        before, withdrawn = self._attempts.pop(event.id, (None, False))
        self._attempts[event.id] = (event, True)
        if len(self._attempts) > self._most:
            self._attempts.popitem(last=False)
        if before is None:
            return
        if event.token <= before.token:
            yield Finding("token", event, before, None)
        least = before.attempt if withdrawn else before.attempt + 1
        if event.attempt < least:
            yield Finding("attempt", event, before, None)

    def _begin(self, event: Event) -> Iterable[Finding]:
        found = []
        alone = set(event.keys)
        for key in (*event.keys, *event.shared):
            lane = self._lane(key)
            before = [lane.alone, lane.together] if key in alone else [lane.alone]
            for other in before:
                if other is None or other.id == event.id:
                    continue
                if other.sequence > event.sequence:
                    found.append(Finding("order", event, other, key))
                elif other.token >= event.token + event.rides:
                    found.append(Finding("token", event, other, key))
            found += [
                Finding("overlap", event, other, key)
                for other in lane.running.values()
                if other.id != event.id and (key in alone or key in other.keys)
            ]
            lane.running[event.id] = event
            kind = "alone" if key in alone else "together"
            last = getattr(lane, kind)
            if last is None or last.sequence <= event.sequence:
                setattr(lane, kind, event)
        return found

    def _lane(self, key: bytes) -> _Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
            if len(self._lanes) > self._most:
                oldest, old = next(iter(self._lanes.items()))
                if not old.running:
                    del self._lanes[oldest]
        else:
            self._lanes.move_to_end(key)
        return lane


class Audit:
    """The auditor of one worker."""

    def __init__(self, worker: str) -> None:
        self.violations = 0
        self._worker = worker
        self._lock = threading.Lock()
        self._queues: dict[str, tuple[Any, Table, AuditJournal]] = {}

    def follow(self, name: str, queue: Any, journal: AuditJournal) -> None:
        """Prepare a queue, before its first message."""
        self._queues[name] = (queue, Table(), journal)

    def begun(self, held: TaskLease) -> None:
        """Note that a message is leased; its handler has not begun."""
        self._note("begun", held)

    def ended(self, held: TaskLease) -> None:
        """Note that its handler has ended; the message is not settled yet."""
        self._note("ended", held)

    def withdrawn(self, held: TaskLease) -> None:
        """Note that it may be redelivered at this attempt: no handler began it, or its handler
        asked for that. It is not returned yet."""
        self._note("withdrawn", held)

    def close(self) -> None:
        """Close the journals."""
        for _, _, journal in self._queues.values():
            journal.close()

    def _note(self, what: Literal["begun", "ended", "withdrawn"], held: TaskLease) -> None:
        try:
            self._write(what, held)
        except Exception:
            # The disk may be full; the message is handled and settled all the same.
            _log.exception("the auditor failed; continuing")

    def _write(self, what: Literal["begun", "ended", "withdrawn"], held: TaskLease) -> None:
        keys, shared = tuple(sorted(held.keys)), tuple(sorted(held.shared))
        event = Event(
            what, self._worker, held.id, held.sequence, held.attempt, held.token, keys, shared,
            held.rides,
        )  # fmt: skip
        queue, table, journal = self._queues[held.queue]
        found = []
        try:
            with self._lock, journal.exchange(_encode(event)) as others:
                for line in others:
                    with contextlib.suppress(msgspec.MsgspecError):
                        # Otherwise a process died while writing this line.
                        table.note(_decode(line))
                found = table.note(event)
        except OSError as error:
            # Messages are still handled, but must not be believed to be checked.
            self.violations += 1
            _log.error(
                ("the auditor cannot send its events to other workers: %s"),
                error,
                extra=details(held),
            )
        for finding in found:
            if finding.kind != "overlap" or self._both_leased(queue, table, finding):
                self.violations += 1
                _log.error("the auditor: %s", finding, extra=details(held))

    def _both_leased(self, queue: Any, table: Table, finding: Finding) -> bool:
        try:
            leased = queue.explain(finding.other.id, limit=1).nodes[0].state == "leased"
        except KeyError:
            leased = False
        except Exception as error:
            _log.warning("the auditor could not ask about %s: %s", finding, error)
            return False
        if not leased:
            with self._lock:
                table.forget(finding.other)
        return bool(leased)


SAID = {
    "order": "started after a message that is behind it",
    "overlap": "started while another was leased",
    "token": "has no higher token than a message that started before it",
    "attempt": "was redelivered without a higher attempt",
}
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Event).decode
