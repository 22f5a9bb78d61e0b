"""Workers that tell the engine of themselves, and are asked by way of it, from any machine."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from interlock import EngineUnavailable, InterlockError, connect
from interlock.app import App
from interlock.cli import main
from interlock.cli.worker import directory as worker_directory
from interlock.client.admin.operator import Operator
from interlock.client.admin.server import Server
from interlock.client.faces.queue import RemoteQueue
from interlock.metrics.exporter import Exporter
from interlock.worker.reports import announcement, announcing
from tests.metrics.prometheus import samples
from tests.worker.apps import shop
from tests.worker.loop.test_worker import drained
from tests.worker.workers import Workers, wait_for

SERVERS = pytest.mark.parametrize("engine", ["redis", "hub"], indirect=True)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process; that of a worker of its own does it as often as it does."""
    monkeypatch.setattr(announcing, "PERIOD", 0.02)
    monkeypatch.setattr(announcing, "QUICK_PERIOD", 0.02)


@pytest.fixture
def operator(url: str) -> Iterator[Operator]:
    with connect(url) as client:
        yield Operator(Server(client))


def known(operator: Operator) -> list[dict[str, Any]]:
    return [one.said for one in worker_directory.workers(operator, ["default"])]


def answered(operator: Operator, worker: str, request: str) -> Any:
    number = operator.ask("default", worker, request)
    assert number is not None
    found: list[Any] = []

    def told() -> bool:
        (said,) = [one for one in known(operator) if one["id"] == worker]
        found[:] = [said["answers"].get(str(number))]
        return found[0] is not None

    wait_for(told, "it does not answer")
    return found[0]


@SERVERS
def test_a_worker_announces_its_handlers_and_answers_requests_for_stacks(
    app: App, operator: Operator, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = threading.Event()

    @app.task(keys="a:{n}")
    def hang(n: int) -> None:
        gate.wait(30)

    with app.worker(threads=3):
        jobs = [hang.send(1), hang.send(1), hang.send(2)]
        wait_for(lambda: [len(one["running"]) for one in known(operator)] == [2], "not told")
        (said,) = known(operator)
        assert (said["state"], said["queues"], said["concurrency"]) == ("running", ["default"], 3)
        first = next(one for one in said["running"] if one["keys"] == ["a:1"])
        assert (first["id"], first["task"], first["attempt"]) == (str(jobs[0].id), "hang", 1)
        # The name of the holder at the engine begins with the name of the worker.
        explained = operator.explain("default", id=jobs[0].id)
        assert explained is not None and explained.nodes[0].consumer.startswith(said["id"])
        stacks = answered(operator, said["id"], '{"ask": "stacks"}')
        assert stacks["left_out"] == 0
        assert ["in hang" in one["stack"] for one in stacks["stacks"]] == [True, True]
        assert "allowed: stacks, drain, keys" in answered(operator, said["id"], "so?")["error"]

        assert main(["worker", "list", "--url", url]) == 0
        assert f"{said['id']}  running" in capsys.readouterr().out
        begin = said["id"].rpartition("/")[0]
        assert main(["worker", "stacks", begin, "--url", url]) == 0
        out = capsys.readouterr().out
        assert "2 of 3 handlers running" in out and out.count("in hang") == 2
        assert main(["worker", "stacks", begin, "--url", url, "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["stacks"]) == 2
        gate.set()
        drained(app)
    assert known(operator) == []
    assert main(["worker", "list", "--url", url, "--json"]) == 0
    assert main(["worker", "stacks", "nobody", "--url", url]) == 1
    assert "no worker 'nobody' has announced itself; announced: none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("engine", "pool"), [("redis", "process"), ("hub", "thread")], indirect=["engine"]
)
def test_a_worker_asked_to_drain_ends_as_after_term(
    workers: Workers, operator: Operator, url: str, pool: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.app.close()
    shop.app.url = url
    worker = workers.start("--pool", pool, "--concurrency", "2")
    worker.ready()
    shop.slow.send(1, 0.0)
    wait_for(lambda: len(known(operator)) == 1, "it does not announce itself")
    (said,) = known(operator)
    assert (said["process"], said["app"]) == (worker.process.pid, "tests.worker.apps.shop:app")
    assert main(["worker", "drain", said["id"], "--wait", "--url", url]) == 0
    assert capsys.readouterr().out == f"worker {said['id']} has ended\n"
    assert worker.ended() == 0, worker.output
    assert "this worker was asked to drain" in worker.output
    assert known(operator) == []
    shop.app.close()


def test_workers_of_one_program_have_names_of_their_own(app: App, operator: Operator) -> None:
    @app.task
    def nothing() -> None: ...

    with app.worker(threads=1) as one, app.worker(threads=1):
        wait_for(lambda: len(known(operator)) == 2, "both announce themselves")
        first, second = known(operator)
        assert second["id"] == f"{first['id']}/worker-2"
        # The program has not said what that is to do: it takes no more messages.
        answered(operator, first["id"], '{"ask": "drain"}')
        states = ["draining", "running"]
        wait_for(lambda: sorted(s["state"] for s in known(operator)) == states, "it drains")
        nothing.send()
        drained(app)
        assert sum(each["handled"] for each in known(operator)) <= 1
        assert one.wait(30)


# As an engine that has an older library, which its user may not replace.
@pytest.mark.parametrize("error", [InterlockError, EngineUnavailable])
def test_a_worker_without_the_right_to_announce_logs_it_once_and_continues(
    app: App,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: type[InterlockError],
) -> None:
    monkeypatch.setattr(announcing, "REFUSED_PERIOD", 0.01)
    tries: list[str] = []

    def refused(self: RemoteQueue[Any], worker: str, ttl: float, text: str) -> None:
        tries.append(text)
        raise error("NOPERM this user may not call il1_announce")

    monkeypatch.setattr(RemoteQueue, "_announce", refused)

    @app.task
    def nothing() -> None: ...

    with caplog.at_level(logging.WARNING, "interlock.worker"), app.worker(threads=1):
        nothing.send()
        drained(app)
        # One more than it has patience for: the log line comes behind the try.
        wait_for(lambda: len(tries) > announcing.PATIENCE + 2, "it tries again")
    (record,) = [one for one in caplog.records if "announce" in one.getMessage()]
    assert record.levelno == logging.WARNING and record.exc_info is None
    assert record.getMessage() == (
        "queue 'default': this worker cannot announce itself, so `interlock worker list` does "
        "not show it: NOPERM this user may not call il1_announce"
    )


def test_an_announcement_is_bounded(app: App, operator: Operator) -> None:
    gate = threading.Event()

    @app.task(keys=lambda n: [f"{n}:{k}:{'x' * 600}" for k in range(12)], shared="\N{SNOWMAN}")
    def hang(n: int) -> None:
        gate.wait(30)

    with app.worker(threads=100) as worker:
        for n in range(100):
            hang.send(n)
        wait_for(lambda: worker.figures().running == 100, "all run")
        wait_for(
            lambda: any(len(one["running"]) == 64 for one in known(operator)), "64 are reported"
        )
        found = announcement.stacks_answer(worker.stacks())
        assert found["left_out"] > 0 and len(json.dumps(found)) < 31_000
        (said,) = known(operator)
        answered(operator, said["id"], '{"ask": "stacks"}')
        answered(operator, said["id"], '{"ask": "stacks"}')
        gate.set()
        drained(app)


def test_a_long_stack_is_shortened_in_the_middle() -> None:
    stack = "begin " + "x" * 100_000 + " end"
    entry = {"id": 1, "keys": ["k" * 1000] * 20, "stack": stack}
    (told,) = announcement.stacks_answer([entry])["stacks"]
    assert told["stack"].startswith("begin ") and told["stack"].endswith(" end")
    assert len(told["stack"]) < 7_000
    assert len(told["keys"]) == 8 and len(told["keys"][0]) == 256


@pytest.mark.parametrize(
    "text",
    [
        "[" * 60_000,
        '{"state": 5, "queues": 5, "running": 7, "handled": [], "answers": [1]}',
        '{"state": "\\u001b[2J", "queues": [1, 2], "seconds": 1e999}',
        f'{{"seconds": 1{"0" * 400}, "handled": 1.5, "answers": {{"1": 5}}}}',
    ],
)
@pytest.mark.parametrize("engine", ["redis"], indirect=True)
def test_a_malformed_announcement_does_not_hide_other_workers(
    app: App, operator: Operator, url: str, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    with connect(url) as client:
        queue = client.queue("default")
        queue.put("x")
        queue._announce("a stranger", 600.0, text)
        queue._announce("another", 600.0, '{"state": "running", "queues": ["default"]}')
        told = samples(Exporter(operator).text())
        assert list(told["interlock_up"].values()) == [1]
        assert main(["worker", "list", "--url", url]) == 0
        printed = capsys.readouterr().out
        assert "a stranger" in printed and "another" in printed and "\x1b" not in printed


@SERVERS
def test_a_worker_announces_its_schedules(app: App, operator: Operator) -> None:
    @app.every("1h", name="here")
    @app.task(name="here")
    def here() -> None: ...

    @app.every("1h", name="elsewhere")
    @app.task(name="elsewhere", queue="elsewhere")
    def elsewhere() -> None: ...

    for timetable, told in ((True, ["here"]), (False, [])):
        with app.worker(threads=1, queues=["default"], timetable=timetable):
            wait_for(lambda: bool(known(operator)), "it does not announce itself")
            assert [one["schedules"] for one in known(operator)] == [told]
        wait_for(lambda: not known(operator), "it is still known")
