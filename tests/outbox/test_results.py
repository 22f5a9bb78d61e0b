"""Results of calls that were sent through an outbox, in each kind of database."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from interlock import JobFailed, Reject, ResultGone, WouldDeadlock
from interlock.app import App, envelope
from interlock.app.row import ROW
from interlock.outbox import Outbox, RowJob
from interlock.outbox.postgres import schema
from interlock.outbox.rows import Reference
from interlock.outbox.sqlite import schema as sqlite_schema
from interlock.retry import Retry
from tests.outbox.conftest import Side
from tests.worker.workers import wait_for

LONG = 60


class Place:
    """An app with an outbox; its handlers return what they got, or raise."""

    def __init__(self, side: Side, **options: Any) -> None:
        self.side = side
        self.app = App("memory://", retry=Retry(attempts=2, first=0.01))
        self.outbox = Outbox(self.app, side.url, **options)
        self.go = threading.Event()
        self.go.set()
        self.begun = threading.Event()
        self.calls = 0

        @self.app.task(keys="key", transaction=self.outbox, result_ttl=LONG)
        def double(db: Any, n: int) -> dict[str, int]:
            self.begun.set()
            assert self.go.wait(30)
            self.calls += 1
            if n < 0:
                raise ValueError("below zero")
            return {"twice": 2 * n}

        @self.app.task(keys="key", result_ttl=LONG)
        def plain(n: int) -> tuple[int, str]:
            if n < 0:
                raise Reject("below zero")
            return n, "plain"

        @self.app.task(keys="key", transaction=self.outbox, result_ttl=LONG)
        async def later(db: Any, n: int) -> int:
            return n

        @self.app.task(transaction=self.outbox)
        def silent(db: Any) -> int:
            return 1

        self.double, self.plain, self.later, self.silent = double, plain, later, silent

    def kept(self) -> list[Any]:
        return self.side.ask("select id, state from @_results order by id")


@pytest.fixture
def place(side: Side) -> Place:
    return Place(side)


@pytest.fixture
def running(place: Place) -> Iterator[Place]:
    with place.app.worker(threads=3):
        yield place
        place.go.set()


def send(place: Place, task: Any, *args: Any) -> Any:
    return place.outbox.send(place.side.db, task, *args)


def test_a_job_has_the_result_of_its_handler_as_annotated(running: Place) -> None:
    pytest.importorskip("aiosqlite")
    jobs = [send(running, task, 4) for task in (running.double, running.plain, running.later)]
    assert [job.result(20) for job in jobs] == [{"twice": 8}, (4, "plain"), 4]
    assert [job.state() for job in jobs] == ["acked"] * 3
    # Again, and by the id alone.
    assert running.outbox.job(running.plain, jobs[1].id).result(0) == (4, "plain")


def test_a_job_is_awaited_by_coroutines_at_once(running: Place) -> None:
    jobs = running.outbox.send_many(running.side.db, running.double, [[n] for n in range(600)])

    async def all_of_them() -> list[dict[str, int]]:
        return list(await asyncio.gather(*(job.aresult(60) for job in jobs)))

    assert asyncio.run(all_of_them()) == [{"twice": 2 * n} for n in range(600)]
    assert asyncio.run(jobs[0].astate()) == "acked"


def test_rows_of_the_version_without_results_are_kept_and_have_results_after_the_upgrade(
    place: Place,
) -> None:
    kept, dead = (send(place, place.double, n) for n in (4, 5))
    place.side.ask(f"update @ set state = 'dead', attempts = 2 where id = {dead.id}")
    place.side.ask("drop table @_results")
    version = (sqlite_schema if place.side.is_file else schema).VERSION
    place.side.ask(f"update @_meta set version = {version - 1}")
    place.outbox.migrate()
    assert place.side.ask("select version from @_meta") == [(version,)]
    with place.app.worker(threads=1):
        assert kept.result(20) == {"twice": 8}
    assert place.side.ask("select id, attempts from @ where state = 'dead'") == [(dead.id, 2)]


def test_before_the_commit_and_after_a_rollback_there_is_no_result(running: Place) -> None:
    db = running.side.other()
    job = running.outbox.send(db, running.double, 1)
    (listed,) = running.outbox.send_many(db, running.double, [[1]])
    assert len(job._identity) == len(listed._identity) == 2
    assert job.state() == "gone"
    with pytest.raises(ResultGone, match="has not committed"):
        job.result()
    db.rollback()
    # SQLite gives its id to the next one.
    other = running.outbox.send(db, running.double, 2)
    db.commit()
    db.close()
    assert other.result(20) == {"twice": 4}
    with pytest.raises(ResultGone):
        job.result(20)


def test_a_result_is_written_with_the_effect_or_not_at_all(place: Place) -> None:
    place.side.ask("create table effect (n int)")
    fail = [True]

    @place.app.task(transaction=place.outbox, result_ttl=LONG, retry=Retry(2, first=0.01))
    def effect(db: Any) -> int:
        db.execute("insert into effect values (1)")
        if fail.pop():
            # The transaction of the first attempt cannot commit.
            fail.append(False)
            raise RuntimeError("later")
        return 7

    job = send(place, effect)
    with place.app.worker(threads=1):
        assert job.result(20) == 7
    assert place.side.ask("select n from effect") == [(1,)]
    assert place.kept() == [(job.id, "acked")]


def test_a_dead_call_raises_its_last_error_and_the_reason(running: Place) -> None:
    failed, rejected = send(running, running.double, -1), send(running, running.plain, -1)
    with pytest.raises(JobFailed) as caught:
        failed.result(20)
    assert (caught.value.error, caught.value.reason) == ("ValueError: below zero", "exhausted")
    assert "in double" in caught.value.traceback and caught.value.id == failed.id
    with pytest.raises(JobFailed) as caught:
        rejected.result(20)
    assert (caught.value.error, caught.value.reason) == ("below zero", "rejected")
    assert failed.state() == rejected.state() == "dead"
    assert running.kept() == []


def test_a_call_that_expired_says_so(place: Place) -> None:
    jobs = [send(place, task.options(expires=5), 1) for task in (place.double, place.plain)]
    place.side.ask(
        "update @ set created = created - 60"
        if place.side.is_file
        else "update @ set created = created - interval '1 min'"
    )
    jobs = [place.outbox.job(place.double, job.id) for job in jobs]
    with place.app.worker(threads=1):
        for job in jobs:
            with pytest.raises(JobFailed, match="had to start within 5 s") as caught:
                job.result(20)
            assert (caught.value.reason, job.state()) == ("expired", "expired")
    assert place.calls == 0


def test_a_job_that_waits_times_out_and_is_done_later(running: Place) -> None:
    running.go.clear()
    job = send(running, running.double, 1)
    with pytest.raises(TimeoutError, match=f"interlock outbox explain {job.id}"):
        job.result(0.02)
    with pytest.raises(TimeoutError):
        asyncio.run(job.aresult(0))
    assert job.state() == "waiting"
    running.go.set()
    assert job.result(20) == {"twice": 2}


def test_a_task_without_result_ttl_keeps_nothing(running: Place) -> None:
    job = send(running, running.silent)
    with pytest.raises(ResultGone, match="result_ttl"):
        job.result()
    wait_for(lambda: job.state() == "gone", "not handled")
    assert running.kept() == []


def test_a_redelivered_call_keeps_its_first_result(running: Place) -> None:
    job = send(running, running.plain, 1)
    assert job.result(20) == (1, "plain")
    # As if the worker had ended before it told the engine.
    row = Reference(job.id, 0, 0.0, False, job._identity[1], "")
    again = envelope.write("plain", running.plain.signature, (2,), {}, None, {ROW: row.text})
    queue = running.app._queue("default")
    queue.put(again, keys="key")
    queue.join(20)
    assert job.result(20) == (1, "plain")


def test_the_relay_deletes_results_that_have_expired(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.outbox.relay.SWEEP", 2)
    monkeypatch.setattr("interlock.outbox.relay.SWEEP_PAUSE", 0.05)
    jobs = place.outbox.send_many(place.side.db, place.double, [[n] for n in range(6)])
    with place.app.worker(threads=1):
        for job in jobs:
            job.result(20)
        past = "0" if place.side.is_file else "now() - interval '1 s'"
        place.side.ask(f"update @_results set expires = {past} where id <= {jobs[4].id}")
        assert jobs[0].state() == "gone"
        wait_for(lambda: place.kept() == [(jobs[5].id, "acked")], "not deleted")


def test_a_handler_that_waits_without_a_timeout_is_refused(place: Place) -> None:
    refused: list[str] = []

    @place.app.task(transaction=place.outbox)
    def waits(db: Any) -> None:
        job = place.outbox.send(db, place.double, 1)
        try:
            job.result()
        except WouldDeadlock as error:
            refused.append(str(error))
        with pytest.raises(ResultGone):
            job.result(20)

    send(place, waits)
    with place.app.worker(threads=2):
        wait_for(lambda: len(refused) == 1, "not refused")
        wait_for(lambda: len(place.kept()) == 1, "not handled")
    assert "give a timeout" in refused[0]


def test_a_cancelled_call_is_not_handled_and_one_in_a_handler_is_not_cancelled(
    place: Place,
) -> None:
    job, other = send(place, place.double, 1), send(place, place.double, 2)
    assert job.cancel() and not job.cancel()
    with pytest.raises(JobFailed) as caught:
        job.result(20)
    assert (caught.value.reason, job.state()) == ("cancelled", "cancelled")
    assert job.forget() and not job.forget() and job.state() == "gone"
    with place.app.worker(threads=2):
        assert other.result(20) == {"twice": 4}
        assert not other.cancel()
        dead = send(place, place.double, -1)
        wait_for(lambda: dead.state() == "dead", "not dead")
        assert not dead.cancel()
    assert asyncio.run(other.aforget()) if not place.side.is_file else other.forget()
    assert place.calls == 3


def test_a_message_whose_row_was_cancelled_is_settled_without_its_handler(running: Place) -> None:
    running.go.clear()
    first, second = send(running, running.double, 1), send(running, running.double, 2)
    queue = running.app._queue("default")
    wait_for(lambda: queue.stats().unsettled == 2, "not put")
    assert running.begun.wait(20)
    if running.side.is_file:
        # The handler of the first has the right to write.
        running.go.set()
        first.result(20)
    else:
        assert not first.cancel() and second.cancel()
        running.go.set()
        with pytest.raises(JobFailed):
            second.result(20)
    assert first.result(20) == {"twice": 2}
    queue.join(20)


def test_waiting_survives_a_database_that_closes_the_connection(running: Place) -> None:
    if running.side.is_file:
        pytest.skip("a file has no server")
    running.go.clear()
    job = send(running, running.double, 1)
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(job.result(30)))
    waiting.start()
    query = "select pid from pg_stat_activity where application_name = 'interlock results'"
    wait_for(lambda: len(running.side.ask(query)) == 1, "no connection")
    running.side.ask(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where application_name = 'interlock results'"
    )
    running.go.set()
    waiting.join(30)
    assert found == [{"twice": 2}]


def test_a_database_that_cannot_be_reached_raises_its_error(side: Side) -> None:
    place = Place(side)
    job = send(place, place.double, 1)
    place.outbox.database = Outbox(App("memory://"), side.url + "-none").database
    place.outbox.results._database = place.outbox.database
    with pytest.raises(Exception, match="does not exist"):
        job.result()


# -- Pickling -------------------------------------------------------------------------------------

app = App("memory://")
outbox = Outbox(app, "sqlite:///nowhere.db")


@app.task(result_ttl=60)
def sample(n: int) -> int:
    return n


def test_a_job_can_be_pickled() -> None:
    job: RowJob[int] = outbox.job(sample, 7)
    again = pickle.loads(pickle.dumps(job))
    assert again == job and type(again) is RowJob and again.id == 7
    assert repr(again) == "<RowJob 7 of 'sample'>"
