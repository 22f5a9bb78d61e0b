"""Tasks that are given lists: what follows on the same keys comes together, in every pool."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock import Retry, Run
from interlock.app import App
from interlock.client.faces.batch import LeasedBatch
from interlock.worker.message.execution import RunProgress, TaskLease, judge
from interlock.worker.worker import Worker
from tests.worker.apps import listed
from tests.worker.workers import wait_for

POOLS = pytest.mark.parametrize("pool", ["thread", "asyncio", "process"])
ENGINES = pytest.mark.parametrize("engine", ["memory", "hub", "redis"], indirect=True)


@pytest.fixture
def app(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    monkeypatch.setenv("LISTED_FOLDER", str(tmp_path))
    listed.app.close()
    listed.app.url = url
    yield listed.app
    listed.app.close()


def lists(folder: Path) -> list[tuple[list[int], list[int]]]:
    """Returns the numbers that each handler was given, and their attempts."""
    file = folder / "lists"
    lines = file.read_text().splitlines() if file.exists() else []
    found = []
    for line in lines:
        numbers, _, attempts = line.partition("|")
        found.append((list(map(int, numbers.split())), list(map(int, attempts.split()))))
    return found


def handled(app: App, folder: Path, pool: str, task: Any, *numbers: int) -> Any:
    """Sends the numbers, of which the first is handled while the others gather; returns the queue
    once it is empty."""
    queue = app._queue("default")
    with app.worker(threads=3, pool=pool, audit=True) as worker:
        task.send(0)
        wait_for(lambda: bool(lists(folder)), "the first handler begins")
        for number in numbers:
            task.send(number)
        (folder / "gate").touch()
        wait_for(lambda: queue.stats().unsettled == 0, "all are handled")
        assert violations(worker) == 0
    return queue


def violations(worker: Worker) -> int:
    audit: Any = worker._audit
    return 0 if audit is None else audit.violations


@ENGINES
@POOLS
def test_what_gathers_behind_a_handler_is_the_next_list(
    app: App, tmp_path: Path, engine: str, pool: str
) -> None:
    task = listed.ahandle if pool == "asyncio" else listed.handle
    queue = handled(app, tmp_path, pool, task, 1, 2, 3, 4)
    assert lists(tmp_path) == [([0], [1]), ([1, 2, 3, 4], [1, 1, 1, 1])]
    assert queue.stats().acks == 5


@ENGINES
@POOLS
def test_the_first_call_that_is_not_reported_fails_and_the_rest_comes_again(
    app: App, tmp_path: Path, engine: str, pool: str
) -> None:
    task = listed.ahandle if pool == "asyncio" else listed.handle
    queue = handled(app, tmp_path, pool, task, 1, 2, 100, 3, 4)
    assert lists(tmp_path) == [
        ([0], [1]),
        ([1, 2, 100, 3, 4], [1] * 5),
        ([100], [2]),
        ([100], [3]),
        ([3, 4], [1, 1]),
    ]
    (dead,) = queue.dead_letters()
    assert dead.attempts == 3 and "not 100" in dead.error
    assert queue.stats().acks == 5


@POOLS
@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_other_outcomes_are_those_of_the_first_call_that_is_not_reported(
    app: App, tmp_path: Path, engine: str, pool: str
) -> None:
    task = listed.ahandle if pool == "asyncio" else listed.handle
    queue = handled(app, tmp_path, pool, task, 1, 200, 2, 300, 3)
    assert [numbers for numbers, _ in lists(tmp_path)] == [
        [0],
        [1, 200, 2, 300, 3],
        [2, 300, 3],
        [300],
        [3],
    ]
    assert [letter.error for letter in queue.dead_letters()] == ["not 200"]


@POOLS
@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_an_error_after_all_were_reported_fails_none(
    app: App, tmp_path: Path, engine: str, pool: str
) -> None:
    task = listed.ahandle if pool == "asyncio" else listed.handle
    queue = handled(app, tmp_path, pool, task, 1, 2, 400)
    assert [numbers for numbers, _ in lists(tmp_path)] == [[0], [1, 2, 400]]
    assert (queue.stats().acks, queue.stats().dead) == (4, 0)


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_a_task_that_reports_nothing_finds_the_call_that_fails(
    app: App, tmp_path: Path, engine: str
) -> None:
    queue = handled(app, tmp_path, "thread", listed.silent, 1, 2, 100, 3)
    assert [numbers for numbers, _ in lists(tmp_path)] == [
        [0],
        [1, 2, 100, 3],
        [1],
        [2, 100, 3],
        [2],
        [100, 3],
        [100],
        [100],
        [100],
        [3],
    ]
    assert [attempts for numbers, attempts in lists(tmp_path) if numbers == [100]] == [
        [1],
        [2],
        [3],
    ]
    assert len(queue.dead_letters()) == 1


LIST_POOLS = pytest.mark.parametrize("pool", ["thread", "process"])
"""Pools that end a handler in different ways."""


@LIST_POOLS
@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_only_the_call_that_fails_dies_of_it_however_few_its_attempts(
    app: App, tmp_path: Path, engine: str, pool: str
) -> None:
    queue = handled(app, tmp_path, pool, listed.once, 1, 2, 100, 3)
    assert [b"\x64" in letter.payload for letter in queue.dead_letters()] == [True]
    assert (queue.stats().acks, queue.stats().retries) == (4, 0)


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_a_process_that_dies_with_a_list_blames_no_other_call(
    app: App, tmp_path: Path, engine: str
) -> None:
    queue = handled(app, tmp_path, "process", listed.once, 1, 2, 500, 3)
    (letter,) = queue.dead_letters()
    assert "was ended by SIGKILL" in letter.error and letter.attempts == 1
    assert (queue.stats().acks, queue.stats().retries) == (4, 0)


@ENGINES
def test_what_a_process_has_reported_is_acknowledged_when_it_dies(
    app: App, tmp_path: Path, engine: str
) -> None:
    queue = handled(app, tmp_path, "process", listed.handle, 1, 2, 500, 3)
    assert lists(tmp_path) == [
        ([0], [1]),
        ([1, 2, 500, 3], [1] * 4),
        ([500], [2]),
        ([500], [3]),
        ([3], [1]),
    ]
    assert (queue.stats().acks, queue.stats().dead) == (4, 1)


@LIST_POOLS
@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_after_a_timeout_the_first_call_that_is_not_reported_failed(
    app: App, tmp_path: Path, engine: str, pool: str
) -> None:
    queue = app._queue("default")
    (tmp_path / "gate").touch()
    for number in (1, 2, 100):
        listed.hangs.send(number)
    with app.worker(threads=2, pool=pool, audit=True) as worker:
        worker.measure()
        wait_for(lambda: queue.stats().dead == 1, "the handler is stopped")
        (letter,) = queue.dead_letters()
        assert b"\x02" in letter.payload and "handled for more than" in letter.error
        (tmp_path / "late").touch()
        wait_for(lambda: queue.stats().unsettled == 0, "all are handled")
        assert violations(worker) == 0
        counted = [one[2] for one in worker.reading().counters if one[0] == "handled"]
    assert queue.stats().acks + queue.stats().dead == sum(counted) == 3


@LIST_POOLS
@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_a_list_that_takes_too_long_without_a_report_is_handled_one_by_one(
    app: App, tmp_path: Path, engine: str, pool: str
) -> None:
    queue = app._queue("default")
    (tmp_path / "gate").touch()
    for number in (1, 2):
        listed.hangs_silently.send(number)
    with app.worker(threads=2, pool=pool):
        wait_for(lambda: queue.stats().releases == 1, "the handler is stopped")
        (tmp_path / "late").touch()
        wait_for(lambda: queue.stats().unsettled == 0, "all are handled")
    assert lists(tmp_path) == [([1, 2], [1, 1]), ([1], [1]), ([2], [1])]
    assert (queue.stats().acks, queue.stats().dead) == (2, 0)


def test_a_report_after_the_handlers_end_changes_nothing() -> None:
    def lease(id: int) -> TaskLease:
        return TaskLease("q", id, id, 1, 9, frozenset(), frozenset(), b"")

    first, *riders = map(lease, range(1, 5))
    first.run = progress = RunProgress(riders)
    run = Run._of("abcd", [first, *riders], range(4), progress)
    run.done(1)
    outcome = judge(Retry(), first, ValueError("left behind"))
    run.done(4)
    assert [(one.id, how.how) for one, how in progress.outcomes(first, outcome)] == [
        (1, "ack"),
        (2, "nack"),
    ]


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_the_log_of_a_list_looks_at_each_message_a_few_times(
    app: App, tmp_path: Path, engine: str, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    looked: list[int] = []
    message = LeasedBatch.message

    def look(batch: LeasedBatch, at: int) -> Any:
        looked.append(at)
        return message(batch, at)

    monkeypatch.setattr(LeasedBatch, "message", look)
    (tmp_path / "gate").touch()
    queue = app._queue("default")
    with caplog.at_level(logging.DEBUG, "interlock"):
        for number in range(80):
            listed.silent.send(number)
        with app.worker(threads=2):
            wait_for(lambda: queue.stats().unsettled == 0, "all are handled")
    assert [len(numbers) for numbers, _ in lists(tmp_path)] == [80]
    assert len(looked) <= 3 * 80
    assert sum("handled" in one.message for one in caplog.records) >= 80


@LIST_POOLS
@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_calls_of_a_list_that_is_revoked_come_again_and_the_auditor_finds_nothing(
    app: App, tmp_path: Path, engine: str, pool: str
) -> None:
    queue = app._queue("default")
    ids = [listed.silent.send(number).id for number in (1, 2, 3)]
    with app.worker(threads=2, pool=pool, audit=True) as worker:
        wait_for(lambda: bool(lists(tmp_path)), "the handler begins")
        assert queue.revoke(ids[0])
        (tmp_path / "gate").touch()
        wait_for(lambda: queue.stats().unsettled == 0, "all are handled")
        assert violations(worker) == 0
    assert lists(tmp_path) == [([1, 2, 3], [1] * 3), ([1], [2]), ([2, 3], [1, 1])]


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_expired_calls_are_left_out_of_the_list(app: App, tmp_path: Path, engine: str) -> None:
    queue = app._queue("default")
    (tmp_path / "gate").touch()
    for number in (1, 2, 3):
        listed.handle.send(number)
        listed.handle.options(expires=0.001).send(number + 10)
    until = time.monotonic() + 0.01
    wait_for(lambda: time.monotonic() > until, "they have expired")
    with app.worker(threads=2):
        wait_for(lambda: queue.stats().unsettled == 0, "all are handled")
    assert [numbers for numbers, _ in lists(tmp_path)] == [[1, 2, 3]]
    assert (queue.stats().acks, queue.stats().messages_expired) == (3, 3)


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_another_task_with_the_key_is_handled_in_its_place(
    app: App, tmp_path: Path, engine: str
) -> None:
    queue = app._queue("default")
    (tmp_path / "gate").touch()
    for number in (1, 2):
        listed.handle.send(number)
    listed.plain.send(3)
    for number in (4, 5):
        listed.handle.send(number)
    with app.worker(threads=4):
        wait_for(lambda: queue.stats().unsettled == 0, "all are handled")
    assert [numbers for numbers, _ in lists(tmp_path)] == [[1, 2], [3], [4, 5]]


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_a_message_that_cannot_be_read_ends_the_list_and_is_a_dead_letter(
    app: App, tmp_path: Path, engine: str
) -> None:
    queue = app._queue("default")
    (tmp_path / "gate").touch()
    listed.handle.send(1)
    queue.put(b"no call", keys="k", run=100, label="handle")
    listed.handle.send(2)
    with app.worker(threads=2):
        wait_for(lambda: queue.stats().unsettled == 0, "all are handled")
    assert [numbers for numbers, _ in lists(tmp_path)] == [[1], [2]]
    assert len(queue.dead_letters()) == 1
    assert queue.stats().leases_expired == 0, "what was leased with it was returned at once"


def test_a_list_counts_each_call_in_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LISTED_FOLDER", str(tmp_path))
    (tmp_path / "gate").touch()
    listed.app.close()
    listed.app.url = "memory://"
    queue = listed.app._queue("default")
    for number in (1, 2, 100, 3):
        listed.handle.send(number)
    with listed.app.worker(threads=2) as worker:
        worker.measure()
        wait_for(lambda: queue.stats().unsettled == 0, "all are handled")
        told = worker.reading().counters
    outcomes = {labels[-1]: count for name, labels, count in told if name == "handled"}
    assert outcomes == {"acked": 3, "retried": 2, "dead": 1}
    listed.app.close()


def test_a_run_is_a_sequence_that_is_reported_in_order() -> None:
    run = Run("abc")
    assert (len(run), run[0], run[1:], list(run)) == (3, "a", ("b", "c"), ["a", "b", "c"])
    run.done(2)
    for wrong in (1, 4, -1):
        with pytest.raises(ValueError, match=rf"count is {wrong}; allowed: 2 to 3"):
            run.done(wrong)
    with pytest.raises(TypeError, match="done\\(\\): count is str"):
        run.done("1")  # type: ignore[arg-type]
    run.done(3)
