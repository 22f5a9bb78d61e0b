"""A trace through a queue on an engine."""

from __future__ import annotations

import json

import pytest

from interlock.cli import main
from interlock.client.admin.operator import Operator
from interlock.client.admin.server import Server
from interlock.client.faces.client import connect
from interlock.errors import InterlockError
from interlock.replay.measure import measure
from interlock.replay.trace import Message, Trace
from interlock.replay.watch import serial_digest
from interlock.replay.ways import Pool, remote
from interlock.replay.workload import Workload, parse
from tests.hub.servers import refusing
from tests.replay.traces import random_trace


@pytest.fixture(params=["redis", "hub", "memory"])
def url(request: pytest.FixtureRequest) -> str:
    found = request.getfixturevalue(f"{request.param}_url")
    assert isinstance(found, str)
    return found


def left_in(url: str) -> int:
    """The number of messages and dead letters there are. Only Redis forgets the queue's name."""
    with connect(url) as client:
        operator = Operator(Server(client))
        stats = [operator.stats(queue) for queue in operator.queues()]
        assert not stats or not url.startswith("redis:")
        return sum(one["unsettled"] + one["dead"] for one in stats)


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_a_run_on_an_engine_keeps_order_and_leaves_no_queue(url: str, pool: Pool) -> None:
    trace = random_trace(3)
    way = remote.way(url)
    outcome = measure(way, trace, parse("sleep:10us"), workers=4, pool=pool)
    assert (outcome.verdict.violations, outcome.verdict.repeated) == (0, 0)
    assert outcome.digest == serial_digest(trace.messages)
    assert left_in(url) == 0


def test_a_handler_that_raises_is_counted_and_the_run_continues(url: str) -> None:
    trace = random_trace(4)
    seventh = trace.messages[7].id

    def fails(message: Message) -> None:
        if message.id == seventh:
            raise ValueError("not this one")

    outcome = measure(remote.way(url), trace, Workload("a test's", fails), workers=4)
    assert outcome.failures == ((seventh, "ValueError: not this one"),)
    assert outcome.verdict.violations == 0


def test_an_error_that_breaks_a_run_is_raised_and_leaves_no_queue(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.replay.watch import Watch

    def breaks(watch: Watch, index: int, worker: int) -> None:
        raise RuntimeError("the watch broke")

    monkeypatch.setattr(Watch, "handle", breaks)
    with pytest.raises(RuntimeError, match="the watch broke"):
        measure(remote.way(url), random_trace(5), parse("sleep:0s"), workers=2)
    assert left_in(url) == 0


def test_a_call_takes_no_more_keys_than_an_engine_does() -> None:
    messages = [Message(str(at), tuple(map(str, range(300)))) for at in range(10)]
    some = list(remote.batches(messages))
    assert [index for batch in some for index in batch] == list(range(10))
    assert all(len(batch) * 300 <= 1024 for batch in some)
    assert list(remote.batches([])) == []


def test_an_unreachable_engine_is_reported_before_the_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    trace = "examples/data/redis-commits.jsonl.gz"
    with refusing() as port:
        url = f"redis://127.0.0.1:{port}?timeout=0.2"
        with pytest.raises(InterlockError):
            remote.way(url)
        assert main(["replay", trace, "--limit", "5", "--url", url]) == 1
    assert "did not answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--way", "executor"], "--url with --way executor; allowed: --way queue"),
        (["--pool", "asyncio"], "--pool asyncio; allowed with --url: thread, process"),
    ],
)
def test_options_an_engine_cannot_run_exit_with_2(
    flags: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["replay", "x", "--url", "redis://127.0.0.1:1", *flags])
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_several_engines_are_compared_with_the_other_ways(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = "examples/data/redis-commits.jsonl.gz"
    words = ["--limit", "30", "--work", "sleep:0s", "--json", "--compare"]
    assert main(["replay", trace, *words, "--url", url, "--url", url]) == 0
    rows = json.loads(capsys.readouterr().out)["compared"]
    name = url.partition(":")[0]
    ways = [name, name, "queue", "serial", "hash", "per-key", "rendezvous", "registry"]
    assert [row["way"] for row in rows] == ways
    assert [row["violations"] for row in rows[:3]] == [0, 0, 0]


def test_an_invalid_url_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "examples/data/redis-commits.jsonl.gz", "--url", "kafka://x"]) == 2
    assert "kafka://x" in capsys.readouterr().err


def test_the_recorded_trace_of_a_run_on_an_engine_is_complete(url: str) -> None:
    trace = Trace("none", [])
    assert measure(remote.way(url), trace, parse("sleep:0s"), workers=2).verdict.messages == 0
