"""A trace through queues with limits: the names of its messages, and what the report says."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from interlock import Rate
from interlock.replay.limit_names import limited
from interlock.replay.measure import measure
from interlock.replay.trace import Message, Trace, TraceError
from interlock.replay.ways import Pool, Way, remote, way
from interlock.replay.workload import Workload

HOSTS = [Message(str(n), (), (f"host:{n % 2}", f"page:{n}")) for n in range(24)]


@pytest.fixture(params=["here", "memory", "hub", "redis"])
def queue(request: pytest.FixtureRequest) -> Way:
    if request.param == "here":
        return way("queue")
    return remote.way(request.getfixturevalue(f"{request.param}_url"))


def test_no_more_messages_of_a_name_are_handled_at_once_than_its_limit(queue: Way) -> None:
    lock, running, most = threading.Lock(), Counter[str](), Counter[str]()

    def work(message: Message) -> None:
        with lock:
            running.update(message.limit)
            most.update({name: 1 for name in message.limit if running[name] > most[name]})
        with lock:
            running.subtract(message.limit)

    limits = {"host:*": 1, "page": 3}
    trace = limited(Trace("t", HOSTS), limits)
    outcome = measure(queue, trace, Workload("a test's", work), workers=6, limits=limits)
    assert outcome.verdict.violations == 0 and outcome.failures == ()
    assert most["host:0"] == most["host:1"] == 1
    assert 1 <= most["page"] <= 3


@pytest.mark.parametrize("pool", ["thread", "asyncio"])
def test_a_rate_spreads_the_starts_of_its_messages(pool: Pool) -> None:
    limits = {"page": Rate(100, burst=4)}
    trace = limited(Trace("t", HOSTS), limits)
    work = Workload("a test's", lambda message: None)
    outcome = measure(way("queue"), trace, work, workers=4, pool=pool, limits=limits)
    assert outcome.run.seconds >= 0.01 * (len(HOSTS) - 4 - 1)


def test_a_message_has_the_names_of_its_line_and_those_that_its_keys_begin_with() -> None:
    message = Message("1", ("tenant:7", "bank/a"), ("tenant:8",), limit=("api",))
    (found,) = limited(Trace("t", [message]), {"bank": 4, "tenant:*": 2, "other": 1}).messages
    assert found.limit == ("api", "bank", "tenant:7", "tenant:8")
    many = Message("2", tuple(f"tenant:{n}" for n in range(9)))
    with pytest.raises(TraceError, match="message 2: limit has 9 names"):
        limited(Trace("t", [many]), {"tenant:*": 2})
