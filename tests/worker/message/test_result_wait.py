"""Handlers that wait for results which cannot come get WouldDeadlock (clause 25)."""

from __future__ import annotations

import importlib
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock import JobFailed, Retry
from interlock.app import App
from interlock.client.requests import queue_admin
from interlock.client.requests.result_wait import ResultWait
from tests.worker.workers import PATIENCE, wait_for

POOLS = ["thread", "asyncio", "process"]
ENGINES = pytest.mark.parametrize("engine", ["memory", "redis", "hub"], indirect=True)

MODULE = """
from interlock import App, Retry
from interlock.client.requests import queue_admin

# Here for the processes of a pool.
queue_admin.LONGEST_LOOK = 0.5

app = App(retry=Retry(1))

@app.task(keys="child:{k}", result_ttl=600)
def child(k: int) -> int:
    return k + 1

@app.task(keys="parent:{k}", result_ttl=600)
def parent(k: int) -> int:
    return child.send(k).result()

@app.task(keys="parent:{k}", result_ttl=600)
async def parent_async(k: int) -> int:
    return await (await child.asend(k)).aresult()

@app.task(keys="grandparent:{k}", result_ttl=600)
def grandparent(k: int) -> int:
    return parent.send(k).result()

@app.task(keys="same:{k}", result_ttl=600)
def under_same_key(k: int) -> int:
    return 0 if k < 0 else inner.send(k).result()

@app.task(keys="same:{k}", result_ttl=600)
def inner(k: int) -> int:
    return k

@app.task(keys="patient:{k}", result_ttl=600)
def patient(k: int) -> str:
    try:
        child.send(k).result(timeout=1)
    except TimeoutError:
        return "in time"
    return "done"

@app.task(queue="others", keys="o:{k}", result_ttl=600)
def elsewhere(k: int) -> int:
    return k

@app.task(keys="p:{k}", result_ttl=600)
def waits_elsewhere(k: int) -> int:
    return elsewhere.send(k).result()
"""


@pytest.fixture
def program(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Any]:
    name = f"waiting_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    # Handlers that wait for long need not wait for the check that finds them.
    monkeypatch.setattr(queue_admin, "LONGEST_LOOK", 0.5)
    found = importlib.import_module(name)
    found.app.url = url
    yield found
    found.app.close()


def failure_of(job: Any) -> str:
    with pytest.raises(JobFailed) as caught:
        job.result(timeout=PATIENCE)
    assert "WouldDeadlock: result(): " in str(caught.value)
    return str(caught.value)


@ENGINES
@pytest.mark.parametrize("pool", ["thread", "asyncio"])
@pytest.mark.parametrize("name", ["parent", "parent_async"])
def test_a_result_that_needs_the_only_handler(program: Any, pool: str, name: str) -> None:
    with program.app.worker(pool=pool, threads=1):
        job = getattr(program, name).send(1)
        said = failure_of(job)
        assert f"the handler of message {job.id} in queue 'default' waits for the result" in said
        assert "all 1 here that could run it wait for results themselves" in said
        # Its place was free again for the other.
        queue = program.app._queue("default")
        queue.join(PATIENCE)
        assert queue.stats().dead == 1


def test_a_result_that_needs_the_only_process_of_a_pool(program: Any) -> None:
    with program.app.worker(pool="process", threads=1) as worker:
        assert worker.wait_until_ready(PATIENCE)
        job = program.parent.send(1)
        assert f"the handler of message {job.id} " in failure_of(job)


@pytest.mark.share(2)
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("engine", ["hub"], indirect=True)
def test_all_handlers_wait_for_results_that_need_one(program: Any, pool: str) -> None:
    """All four wait; the last one to wait fails, and its place makes the results of the others."""
    queue = program.app._queue("default")
    for k in range(4):
        queue.pause(f"child:{k}")
    jobs = [program.parent_async.send(k) for k in range(4)]
    with program.app.worker(pool=pool, threads=4):
        wait_for(lambda: queue.stats().waiting == 4, "not all have begun to wait")
        for k in range(4):
            queue.resume(f"child:{k}")
        queue.join(PATIENCE)
        failed = queue.dead_letters()
        assert len(failed) == 1
        assert "all 4 here that could run it wait" in failed[0].error
        left = [job for job in jobs if job.id != failed[0].id]
        assert sum(job.result(timeout=PATIENCE) - 1 for job in left) == 6 - jobs.index(
            program.parent_async.job(failed[0].id)
        )


@ENGINES
def test_a_chain_of_handlers_that_wait(program: Any) -> None:
    with program.app.worker(threads=2):
        outer = program.grandparent.send(1)
        said = failure_of(outer)
        # If the outer one began to wait last, the other still waits for a result, which needs this
        # worker.
        program.app._queue("default").join(PATIENCE)
    assert f"the handler of message {outer.id} " in said or "JobFailed" in said
    assert "all 2 here" in said


@ENGINES
@pytest.mark.parametrize("pool", ["thread", "asyncio"])
def test_a_result_behind_the_handlers_own_key(program: Any, pool: str) -> None:
    with program.app.worker(pool=pool, threads=4):
        job = program.under_same_key.send(1)
        assert f"which waits behind message {job.id}: it would never end" in failure_of(job)


def test_a_result_behind_the_own_key_of_a_handler_in_a_process(program: Any) -> None:
    with program.app.worker(pool="process", threads=2) as worker:
        assert worker.wait_until_ready(PATIENCE)
        job = program.under_same_key.send(1)
        assert f"which waits behind message {job.id}" in failure_of(job)


@ENGINES
@pytest.mark.parametrize("pool", ["thread", "asyncio"])
def test_a_result_that_comes_is_waited_for(program: Any, pool: str) -> None:
    with program.app.worker(pool=pool, threads=2):
        assert [program.parent.send(k).result(timeout=PATIENCE) for k in range(5)] == [*range(1, 6)]


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_a_wait_with_a_timeout_ends_by_that(program: Any) -> None:
    with program.app.worker(threads=1):
        assert program.patient.send(1).result(timeout=PATIENCE) == "in time"


@pytest.mark.parametrize("engine", ["redis", "hub"], indirect=True)
def test_a_result_of_another_workers_queue_is_waited_for(
    program: Any, caplog: pytest.LogCaptureFixture
) -> None:
    default, others = (program.app.worker(threads=1, queues=name) for name in ("default", "others"))
    with caplog.at_level(logging.WARNING, "interlock.worker"), default:
        job = program.waits_elsewhere.send(1)
        with others:
            assert job.result(timeout=PATIENCE) == 1
    assert not [record for record in caplog.records if "never" in record.getMessage()]


@pytest.mark.parametrize("engine", ["redis", "hub"], indirect=True)
def test_where_another_worker_serves_the_queue_the_chain_is_logged(
    program: Any, caplog: pytest.LogCaptureFixture
) -> None:
    other = program.app._queue("other")
    other.put(b"x")
    said = {"host": "elsewhere", "process": 1, "queues": ["other", "default"]}
    other._announce("elsewhere:1", 60, json.dumps(said))
    with caplog.at_level(logging.WARNING, "interlock.worker"), program.app.worker(threads=1):
        job = program.parent.send(1)
        wait_for(lambda: "needs a free handler" in caplog.text, "no warning")
        assert job.state() == "leased"
        # As the other worker would.
        with interlock.connect(program.app.url) as client:
            queue = client.queue("default", bytes)
            lease = queue.get(timeout=PATIENCE)
            assert lease.id != job.id
            queue.settle([lease.acking(b"\x07")])
            queue.join(PATIENCE)
    assert f"the handler of message {job.id} in queue 'default' waits for the result" in caplog.text
    assert "Unless another program handles messages of queue 'default'" in caplog.text


@ENGINES
def test_a_handler_of_consume_that_waits_for_a_result_it_would_make_itself(url: str) -> None:
    seen: list[str] = []
    done = threading.Event()
    with interlock.connect(url) as client:
        queue = client.queue("consumed", retry=Retry(1))

        def handler(payload: Any) -> None:
            if payload != "outer":
                return
            inner = queue.put("inner", keys="inner", result_ttl=600)
            try:
                queue.result(inner)
            except interlock.WouldDeadlock as error:
                seen.append(str(error))
            done.set()

        queue.put("outer", keys="outer")
        consumer = queue.consume(handler, threads=1)
        assert done.wait(PATIENCE)
        queue.join(PATIENCE)
        consumer.stop(PATIENCE)
    assert len(seen) == 1
    assert "all 1 here that could run it wait for results themselves" in seen[0]


@ENGINES
def test_handlers_that_have_all_slots_of_a_limit_wait_for_results_that_need_one(url: str) -> None:
    """The last one to wait fails, and its slot makes the result of the other."""
    both = threading.Barrier(2)
    ended: list[Any] = []
    with interlock.connect(url) as client:
        queue = client.queue("limited", retry=Retry(1), limits={"bank": 2})

        def handler(payload: Any) -> None:
            if payload != "outer":
                return
            both.wait(PATIENCE)
            inner = queue.put("inner", limit="bank", result_ttl=600)
            try:
                ended.append(queue.result(inner))
            except interlock.WouldDeadlock as error:
                ended.append(str(error))

        outer = queue.put_many(["outer"] * 2, limit="bank")
        consumer = queue.consume(handler, threads=4)
        queue.join(PATIENCE)
        consumer.stop(PATIENCE)
    said, result = sorted(ended, key=lambda one: one is None)
    assert result is None
    assert "which waits for a limit: 2 of 2 on bank, all waiting for results" in said
    assert any(f"the handler of message {id} in queue 'limited'" in said for id in outer)


@ENGINES
def test_a_result_that_waits_for_a_slot_that_another_handler_frees_is_waited_for(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds, free = threading.Event(), threading.Event()
    looks = 0
    look = ResultWait.look

    def counted(wait: ResultWait, session: Any) -> Any:
        nonlocal looks
        looks += 1
        if looks > 2:
            # Two looks that find the same make an error.
            free.set()
        return look(wait, session)

    monkeypatch.setattr(ResultWait, "look", counted)
    ended: list[Any] = []
    with interlock.connect(url) as client:
        queue = client.queue("limited", retry=Retry(1), limits={"bank": 2})

        def handler(payload: Any) -> None:
            if payload == "holder":
                holds.set()
                assert free.wait(PATIENCE)
            elif payload == "outer":
                ended.append(queue.result(queue.put("inner", limit="bank", result_ttl=600)))

        queue.put("holder", limit="bank")
        consumer = queue.consume(handler, threads=3)
        assert holds.wait(PATIENCE)
        queue.put("outer", limit="bank")
        queue.join(PATIENCE)
        consumer.stop(PATIENCE)
    assert ended == [None] and looks > 2


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_a_worker_that_has_ended_takes_nothing(url: str) -> None:
    """Its places are not counted: a handler elsewhere may wait for one that is to come."""
    app = App(url, retry=Retry(1))

    @app.task(queue="a", result_ttl=600)
    def first() -> int:
        return second.send().result()

    @app.task(queue="b", result_ttl=600)
    def second() -> int:
        return 2

    app.worker(threads=1, queues="b").start().stop(PATIENCE)
    with app.worker(threads=1, queues="a"):
        job = first.send()
        wait_for(lambda: app._queue("b").stats().ready == 1, "it was not sent")
        with app.worker(threads=1, queues="b"):
            assert job.result(timeout=PATIENCE) == 2
    app.close()
