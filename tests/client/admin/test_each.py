"""One call on many queues, in few round trips: `Operator.each`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
import redis

from interlock.client.admin.operator import Operator
from interlock.client.admin.server import MANY, Server
from interlock.client.faces.client import Client, connect
from interlock.client.request import Refused
from interlock.client.transport import thread_link as threads
from interlock.client.wire import admin as wire_queue
from interlock.errors import EngineUnavailable
from tests.hub.servers import refusing


@pytest.fixture(params=["redis", "hub", "memory"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    url = (
        "memory://"
        if request.param == "memory"
        else request.getfixturevalue(f"{request.param}_url")
    )
    with connect(url) as opened:
        yield opened


def counted(found: list[list[bytes] | Refused]) -> list[int | None]:
    """Return how much is in each; None where it was refused."""
    return [
        None if isinstance(one, Refused) else wire_queue.numbers(one)["unsettled"] for one in found
    ]


def test_a_call_on_many_queues_returns_results_in_their_order(client: Client) -> None:
    operator, head = Operator(Server(client)), uuid.uuid4().hex
    names = [f"{head}-{number}" for number in range(2 * MANY + 3)]
    for number in (0, 5, MANY, 2 * MANY + 2):
        client.queue(names[number]).put_many([1] * (number % 7 + 1))
    found = counted(operator.each("stats", names))
    assert {number: count for number, count in enumerate(found) if count} == {
        number: number % 7 + 1 for number in (0, 5, MANY, 2 * MANY + 2)
    }
    assert operator.each("stats", []) == []


@pytest.mark.parametrize("parser", ["hiredis", "redis-py"])
def test_a_refused_queue_has_its_error_among_the_other_results(
    redis_url: str, connection: redis.Redis, parser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if parser == "redis-py":
        monkeypatch.setattr(threads, "hiredis", None)
    head = uuid.uuid4().hex
    connection.set(f"il:{{{head}-b}}:c", "none of ours")
    with connect(redis_url) as client:
        operator = Operator(Server(client))
        client.queue(f"{head}-a").put(1)
        client.queue(f"{head}-c").put(1)
        names = [f"{head}-{letter}" for letter in "abc"]
        for _ in range(2):
            assert counted(operator.each("stats", names)) == [1, None, 1]
        # The connection has no reply left over.
        assert operator.stats(f"{head}-c")["unsettled"] == 1


def test_a_lost_library_is_loaded_again(redis_url: str, connection: redis.Redis) -> None:
    head = uuid.uuid4().hex
    with connect(redis_url) as client:
        operator = Operator(Server(client))
        client.queue(f"{head}-a").put(1)
        connection.function_flush()
        assert counted(operator.each("stats", [f"{head}-a", f"{head}-b"])) == [1, 0]


def test_a_closed_connection_is_reopened(redis_url: str, connection: redis.Redis) -> None:
    with connect(redis_url) as client:
        operator = Operator(Server(client))
        name = uuid.uuid4().hex
        client.queue(name).put(1)
        assert counted(operator.each("stats", [name])) == [1]
        connection.client_kill_filter(_type="normal", skipme=True)
        assert counted(operator.each("stats", [name])) == [1]
        connection.client_kill_filter(_type="normal", skipme=True)
        assert name in operator.queues()


def test_a_call_on_many_queues_raises_if_no_server_answers() -> None:
    with (
        refusing() as port,
        connect(f"redis://127.0.0.1:{port}") as client,
        pytest.raises(EngineUnavailable, match=str(port)),
    ):
        Operator(Server(client)).each("stats", ["a", "b"])
