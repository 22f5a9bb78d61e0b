"""The auditor finds each fault that an engine could make, and reports none otherwise."""

from __future__ import annotations

import logging
import multiprocessing
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from interlock.worker.message.execution import TaskLease
from interlock.worker.reports.audit import Audit, Event, Table
from interlock.worker.reports.audit_journal import LONGEST, AuditJournal

What = Literal["begun", "ended", "withdrawn"]


def event(
    what: What,
    id: int,
    keys: str = "",
    shared: str = "",
    *,
    sequence: int = 0,
    attempt: int = 1,
    token: int = 0,
) -> Event:
    """Keys are single letters; token and sequence are the id unless given."""
    return Event(
        what, "w", id, sequence or id, attempt, token or id,
        tuple(key.encode() for key in keys), tuple(key.encode() for key in shared),
    )  # fmt: skip


def found(*events: Event) -> list[tuple[str, int, int]]:
    table = Table()
    return [
        (finding.kind, finding.event.id, finding.other.id)
        for one in events
        for finding in table.note(one)
    ]


def test_conflicting_messages_in_sequence_are_no_violation() -> None:
    assert not found(
        event("begun", 1, "ab"),
        event("ended", 1, "ab"),
        event("begun", 2, "b", "r"),
        event("begun", 3, "c", "r"),
        event("ended", 3, "c", "r"),
        event("ended", 2, "b", "r"),
        event("begun", 4, "r"),
    )


def test_readers_of_one_lease_may_run_at_the_same_time_in_any_order() -> None:
    assert not found(
        event("begun", 2, "", "r", token=9),
        event("begun", 1, "", "r", token=9),
        event("ended", 1, "", "r", token=9),
        event("ended", 2, "", "r", token=9),
    )


def test_an_overlap_is_reported() -> None:
    both = (event("begun", 1, "a"), event("begun", 2, "a"))
    assert found(*both) == [("overlap", 2, 1)]
    assert found(event("begun", 1, "", "a"), event("begun", 2, "a")) == [("overlap", 2, 1)]
    assert found(event("begun", 1, "a"), event("begun", 2, "", "a")) == [("overlap", 2, 1)]


def test_an_overtaking_is_reported() -> None:
    assert found(
        event("begun", 5, "a", token=1),
        event("ended", 5, "a", token=1),
        event("begun", 3, "a", token=2),
    ) == [("order", 3, 5)]


def test_order_is_judged_by_sequence_and_not_by_id() -> None:
    assert not found(
        event("begun", 5, "a", token=1),
        event("ended", 5, "a", token=1),
        event("begun", 3, "a", token=2, sequence=9),
    )


def test_a_token_that_does_not_rise_is_reported() -> None:
    assert found(
        event("begun", 1, "a", token=7), event("ended", 1, "a", token=7), event("begun", 2, "a")
    ) == [("token", 2, 1)]
    assert found(
        event("begun", 1, token=7), event("ended", 1, token=7), event("begun", 1, attempt=2)
    ) == [("token", 1, 1)]


def test_an_attempt_that_does_not_rise_is_reported() -> None:
    first = (event("begun", 1, "a", token=7), event("ended", 1, "a", token=7))
    assert found(*first, event("begun", 1, "a", token=8)) == [("attempt", 1, 1)]
    assert not found(*first, event("begun", 1, "a", token=8, attempt=2))


def test_a_message_returned_before_its_handler_began_keeps_its_attempt() -> None:
    back = (event("begun", 1, "a", token=7), event("withdrawn", 1, "a", token=7))
    assert not found(*back, event("begun", 1, "a", token=8))


def test_the_end_of_a_stale_handler_does_not_end_its_successor() -> None:
    assert found(
        event("begun", 1, "a", token=7),
        event("begun", 1, "a", token=8, attempt=2),
        event("ended", 1, "a", token=7),
        event("begun", 2, "a", token=9),
    ) == [("overlap", 2, 1)]


def test_the_auditor_drops_keys_and_messages_beyond_its_bound() -> None:
    table = Table(most=10)
    for number in range(1, 1000):
        key = (str(number).encode(),)
        table.note(Event("begun", "w", number, number, 1, number, key, ()))
        table.note(Event("ended", "w", number, number, 1, number, key, ()))
    assert len(table._lanes) <= 11 and len(table._attempts) <= 11


@dataclass
class Node:
    state: str


@dataclass
class Answering:
    """In the place of a queue: what it says to `explain`."""

    state: str | None
    asked: list[int] = field(default_factory=list)

    def explain(self, id: int, limit: int) -> Any:
        self.asked.append(id)
        if self.state is None:
            raise KeyError(id)
        return type("Explanation", (), {"nodes": (Node(self.state),)})()


def held(id: int, token: int, keys: str = "a", attempt: int = 1) -> TaskLease:
    return TaskLease(
        queue="q", id=id, sequence=id, attempt=attempt, token=token, payload=b"", task="f",
        keys=frozenset(key.encode() for key in keys), shared=frozenset(),
    )  # fmt: skip


@pytest.mark.parametrize(("state", "violations"), [("leased", 1), ("backing_off", 0), (None, 0)])
def test_an_overlap_counts_only_if_the_engine_confirms_both_leases(
    state: str | None, violations: int, caplog: pytest.LogCaptureFixture
) -> None:
    queue, audit = Answering(state), Audit("w")
    audit.follow("q", queue, AuditJournal(None))
    audit.begun(held(1, 1))
    audit.begun(held(2, 2))
    assert (queue.asked, audit.violations) == ([1], violations)
    if violations:
        (record,) = caplog.records
        assert record.levelno == logging.ERROR and record.name == "interlock.worker"
        text = record.getMessage()
        assert "message 2 (sequence 2, attempt 1, token 2, handled by w) started while" in text
        assert "on key 'a': message 1 (sequence 1, attempt 1, token 1, handled by w)" in text


def test_auditors_of_several_workers_see_each_other_s_messages(tmp_path: Path) -> None:
    queue = Answering("leased")
    audits = [Audit("w1"), Audit("w2")]
    for audit in audits:
        audit.follow("q", queue, AuditJournal(tmp_path / "journal"))
    audits[0].begun(held(1, 1))
    audits[1].begun(held(2, 2))
    audits[0].ended(held(1, 1))
    audits[1].ended(held(2, 2))
    assert [audit.violations for audit in audits] == [0, 1]
    audits[0].begun(held(3, 3))
    audits[0].ended(held(3, 3))
    audits[1].begun(held(4, 4))
    assert [audit.violations for audit in audits] == [0, 1]
    for audit in audits:
        audit.close()


def test_a_line_cut_by_a_crash_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    audit = Audit("w")
    audit.follow("q", Answering("leased"), AuditJournal(path))
    audit.begun(held(1, 1))
    with path.open("ab") as file:
        file.write(b'\n["begun","w2",')
    audit.ended(held(1, 1))
    audit.begun(held(2, 2))
    assert audit.violations == 0
    audit.close()


def test_a_long_audit_file_is_truncated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert LONGEST > 10**6
    monkeypatch.setattr("interlock.worker.reports.audit_journal.LONGEST", 2000)
    path = tmp_path / "journal"
    audits = [Audit("w1"), Audit("w2")]
    for audit in audits:
        audit.follow("q", Answering("leased"), AuditJournal(path))
    for number in range(1, 200, 2):
        for place, audit in enumerate(audits):
            audit.begun(held(number + place, number + place))
            audit.ended(held(number + place, number + place))
        assert path.stat().st_size < 4000
    assert [audit.violations for audit in audits] == [0, 0]
    for audit in audits:
        audit.close()


def test_an_audit_file_that_cannot_be_written_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    audit, journal = Audit("w"), AuditJournal(tmp_path / "journal")
    audit.follow("q", Answering("leased"), journal)
    with open("/dev/full", "wb") as full:
        os.dup2(full.fileno(), journal._descriptor)
    audit.begun(held(1, 1))
    assert audit.violations == 1
    assert "the auditor cannot send its events to other workers" in caplog.text
    audit.close()


def _append(path: Path, name: str, count: int) -> None:
    journal = AuditJournal(path)
    for number in range(count):
        with journal.exchange(f"{name}{number}".encode()):
            pass


def test_every_process_reads_every_line_once(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    mine = AuditJournal(path)
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=_append, args=(path, name, 200)) for name in "ab"]
    for process in others:
        process.start()
    seen: list[bytes] = []
    while any(process.is_alive() for process in others):
        with mine.exchange(b"mine") as lines:
            seen += lines
    with mine.exchange(b"mine") as lines:
        seen += lines
    assert sorted(seen) == sorted(f"{name}{n}".encode() for name in "ab" for n in range(200))
    mine.close()
