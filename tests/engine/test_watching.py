"""Watching a queue: events, workers that announce themselves, histories of errors."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from interlock import Retry, connect
from interlock.client.admin.operator import Operator
from interlock.client.admin.server import Server
from interlock.client.faces.client import Client
from interlock.client.faces.queue import RemoteQueue
from interlock.client.wire.events import KINDS, Event
from interlock.client.wire.failures import Failure, Failures
from interlock.client.wire.messages import closing, deferring
from interlock.errors import InterlockError
from interlock.runtime.limits import MAX_ERROR, MAX_EVENTS, MAX_HISTORY, MAX_REQUESTS, MAX_WORKERS
from tests.client.connection.stub import array, is_version, stub, version
from tests.engine.calls import Queue, message
from tests.engine.naive.model import Spec
from tests.engine.naive.watch import WatchedModel
from tests.engine.schedules.compare import difference
from tests.engine.schedules.director import Director
from tests.engine.schedules.servers import Servers, both

AT_ONCE = Retry(attempts=3, first=0)


@pytest.fixture(params=["redis", "hub", "memory"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    url = "memory://" + uuid.uuid4().hex
    if request.param != "memory":
        url = request.getfixturevalue(f"{request.param}_url")
    with connect(url) as opened:
        yield opened


@pytest.fixture(scope="module")
def servers(engine_port: int) -> Iterator[Servers]:
    with both(engine_port) as servers:
        yield servers


@pytest.fixture
def raw(connection: redis.Redis) -> Queue:
    return Queue(connection, uuid.uuid4().hex)


@pytest.fixture
def queue(client: Client) -> RemoteQueue[bytes]:
    return client.queue(uuid.uuid4().hex, bytes, retry=AT_ONCE)


@pytest.fixture
def operator(client: Client) -> Operator:
    return Operator(Server(client))


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


def test_a_watcher_receives_every_event_of_a_queue(
    queue: RemoteQueue[bytes], operator: Operator
) -> None:
    queue.put(b"nobody watches")
    began = operator.events(queue.name, None, seconds=60)
    assert (began.missed, began.events) == (0, [])
    queue.get().ack()
    id = queue.put(b"p", keys=["k", "l"], shared="s")
    lease = queue.get()
    lease.nack(0, error="no route")
    queue.get().reject("bad")
    told = operator.events(queue.name, began.last)
    assert (told.missed, told.last) == (0, began.last + 7)
    assert [event.number for event in told.events] == list(range(began.last + 1, told.last + 1))
    assert kinds(told.events) == ["lease", "ack", "put", "lease", "retry", "lease", "dead"]
    assert set(kinds(told.events)) <= set(KINDS)
    put, leased, failed, _, dead = told.events[2:]
    assert {event.id for event in (put, leased, failed, dead)} == {id}
    assert (put.token, leased.token, failed.token) == (None, lease.token, lease.token)
    # The number of a consumer is found in the announcements of workers.
    assert leased.consumer and not put.consumer and not failed.consumer
    assert [(one.attempt, one.error) for one in (failed, dead)] == [(1, "no route"), (2, "bad")]
    assert len(put.keys) == 2 and len(put.shared) == 1
    page = operator.events(queue.name, began.last, count=2)
    assert kinds(page.events) == ["lease", "ack"] and page.last == told.last
    assert operator.events(queue.name, told.last).events == []


def test_watching_a_missing_queue_does_not_create_it(client: Client, operator: Operator) -> None:
    name = uuid.uuid4().hex
    last = operator.events(name, None, seconds=60).last
    assert name not in operator.queues()
    client.queue(name, bytes).put(b"first")
    assert kinds(operator.events(name, last).events) == ["put"]
    operator.drop(name, force=True)
    again = operator.events(name, last)
    assert again.missed and again.events == []


def test_older_events_are_dropped_and_reported_as_missed(
    queue: RemoteQueue[bytes], operator: Operator
) -> None:
    began = operator.events(queue.name, None, seconds=60).last
    for _ in range(5):
        queue.put_many([b"p"] * 1000)
    told = operator.events(queue.name, began)
    assert (told.last, told.missed) == (began + 5000, 5000 - MAX_EVENTS)
    assert told.events[0].number == began + 5001 - MAX_EVENTS
    found = len(told.events)
    while told.events:
        told = operator.events(queue.name, told.events[-1].number)
        found += len(told.events)
        assert told.missed == 0
    assert found == MAX_EVENTS


def test_a_queue_without_watchers_stores_no_events_on_redis(raw: Queue) -> None:
    connection = raw.connection
    raw.put(message("p"))
    raw.call("events", "", 1, 1)
    raw.put(message("q"))
    assert not connection.exists(f"{raw.key}:ev")
    counters: Any = connection.hkeys(f"{raw.key}:c")
    assert b"d" not in counters


def test_the_documented_rights_are_enough_to_watch(connection: redis.Redis, redis_url: str) -> None:
    page = (Path(__file__).parents[2] / "docs/howto/connect.md").read_text(encoding="utf-8")
    (rights,) = re.findall(r"ACL SETUSER shop on >PASSWORD (.*) ~il:\{shop", page)
    name = f"shop.{uuid.uuid4().hex}"
    user = f"u{uuid.uuid4().hex}"
    said: Any = connection
    said.execute_command("ACL", "SETUSER", user, "on", ">p", *rights.split(), "~il:{shop.*")
    with connect(redis_url.replace("//", f"//{user}:p@")) as client:
        queue, operator = client.queue(name, bytes), Operator(Server(client))
        last = operator.events(name, None, seconds=60).last
        queue.put(b"p", result_ttl=60)
        queue.get().ack(1)
        assert kinds(operator.events(name, last).events) == ["put", "lease", "ack"]
        queue._announce("w", 60, "")
        assert operator.ask(name, "w", "x") and operator.workers(name)
        assert queue._announce("w", 0, "")
        operator.drop(name, force=True)


def test_an_event_has_the_first_keys_and_a_call_a_bounded_size(servers: Servers) -> None:
    director = Director(WatchedModel(servers.now))
    director.take(("events", (0, 1, "60000000")))
    many = tuple(f"k{n:02}" for n in range(40))
    long = tuple(f"{n}" * 400 for n in range(6))
    director.take(
        ("put", ("", "0", [Spec("p", many[:20], many[20:]), Spec("p", long, ("s" * 1024, "t"))]))
    )
    director.take(("put", ("", "0", [Spec("p", ("k" * 1024,), ("l" * 1024, "m"))] * 200)))
    consumer = "c" * 1024
    director.take(("lease", (consumer, ["0", "300", "1000", "any"])))
    told = director.model.watch(str(director.model.last_event - 204), 1024, 1)
    director._call("events", [str(director.model.last_event - 204), "1024", "1"], told)
    # Fewer than there are: it has told its bytes.
    assert 200_000 < sum(map(len, told)) < 300_000
    page = str(director.model.last_event - 10)
    director._call("events", [page, "1024", "1"], director.model.watch(page, 1024, 1))
    must_agree(servers, director)


def test_a_call_lists_workers_up_to_a_number_of_bytes(servers: Servers) -> None:
    director = Director(WatchedModel(servers.now))
    for n in range(20):
        director.take(("workers", ("announce", [f"w{n:02}", "10000000", f"{n % 10}" * 65_536])))
    director.take(("workers", ("workers", ["", "1024"])))
    assert len(director.calls[-1].expected) == 4 * 16
    director.take(("workers", ("workers", ["w15", "1024"])))
    must_agree(servers, director)


@pytest.mark.parametrize("first", [4_017, 4_018], ids=["fits", "is too long"])
def test_a_history_of_errors_may_reach_its_limit_exactly(servers: Servers, first: int) -> None:
    director = Director(WatchedModel(servers.now))
    director.take(("put", ("", "0", [Spec("p", options=(("ATTEMPTS", "0"),))])))
    for size in (1, first, 4_096, 4_096, 4_096):
        director.take(("lease", ("", ["0", "1", "1000", "any"])))
        director.take(("settle", ("", [("NACK", 4, ["0", "x" * size])])))
    (entry,) = director.model.line
    assert len(entry.error) == (MAX_HISTORY if first == 4_017 else 12_347)
    director._call("peek", [str(entry.id)], director.model.peek(str(entry.id)))
    must_agree(servers, director)


def test_request_numbers_rise_even_within_one_microsecond(servers: Servers) -> None:
    director = Director(WatchedModel(servers.now))
    for arguments in (["w", "10", ""], ["v", "10", ""]):
        director.take(("workers", ("announce", arguments)))
    for worker in "wvw":
        director.take(("workers", ("ask", [worker, "x"])))
    for worker in "wv":
        director.take(("workers", ("announce", [worker, "0", ""])))
    director.take(("workers", ("announce", ["w", "10", ""])))
    director.take(("workers", ("ask", ["w", "x"])))
    told = [int(call.expected[0]) for call in director.calls if call.name == "ask"]
    assert told == list(range(servers.now, servers.now + 4))
    must_agree(servers, director)


def test_a_delayed_message_s_age_counts_from_its_due_time(servers: Servers) -> None:
    director = Director(WatchedModel(servers.now))
    director.take(("put", ("", "0", [Spec("p", options=(("DELAY", "5"),)), Spec("q", ("k",))])))
    director.take(("lease", ("", ["0", "1", "1000", "any"])))
    director.take(("tick", 9))
    director.take(("extend", (0, "1", [])))
    (delayed,) = [entry for entry in director.model.line if entry.id != entry.sequence]
    director._call("stats", [], director.model.stats())
    told = director.calls[-1].expected
    assert told[told.index("oldest_ready") + 1] == str(delayed.sequence)
    director._ask("pause", [], lambda: director.model.pause([]))
    director._call("stats", [], director.model.stats())
    told = director.calls[-1].expected
    assert told[told.index("oldest_ready") + 1] == "0"
    must_agree(servers, director)


def must_agree(servers: Servers, director: Director) -> None:
    asked = servers.ask(director.calls)
    wrong = difference(asked, servers.answered())
    assert wrong is None or wrong.startswith("left over"), wrong[-2_000:]


def test_workers_are_listed_until_their_announcement_expires_and_receive_requests(
    queue: RemoteQueue[bytes], operator: Operator
) -> None:
    assert queue._announce("host/1/a", 60, '{"state": "running"}') == []
    assert queue._announce("host/1/b", 60, "") == []
    first, second = operator.workers(queue.name)
    assert (first.worker, first.text) == ("host/1/a", '{"state": "running"}')
    assert 0 <= first.age < 60 and 0 < first.left <= 60 and second.worker == "host/1/b"
    # To announce a worker makes no queue.
    assert queue.name not in operator.queues()
    numbers = [operator.ask(queue.name, "host/1/a", f"ask {n}") for n in range(MAX_REQUESTS + 1)]
    assert operator.ask(queue.name, "nobody", "x") is None
    assert numbers == sorted(set(numbers), key=lambda number: number or 0)
    taken = queue._announce("host/1/a", 60, "")
    assert taken == [(number, f"ask {n}") for n, number in enumerate(numbers) if n]
    assert queue._announce("host/1/a", 0, "") == []
    assert [one.worker for one in operator.workers(queue.name)] == ["host/1/b"]
    queue.put(b"p")
    operator.drop(queue.name, force=True)
    assert operator.workers(queue.name) == []


def test_a_queue_lists_a_bounded_number_of_workers(
    queue: RemoteQueue[bytes], operator: Operator
) -> None:
    if queue._client.url.startswith("redis"):
        name = f"il:{{{queue.name}}}"
        with redis.Redis.from_url(queue._client.url) as connection:
            queue._announce("first", 60, "")
            pipe = connection.pipeline(transaction=False)
            for n in range(MAX_WORKERS - 1):
                pipe.fcall("il1_announce", 1, name, f"w{n}", 60_000_000, "")
            pipe.execute()
    else:
        for n in range(MAX_WORKERS):
            queue._announce(f"w{n}", 60, "")
    with pytest.raises((ValueError, InterlockError), match="10000 workers"):
        queue._announce("one more", 60, "")
    queue._announce("w7", 60, "again")
    assert len(operator.workers(queue.name)) == MAX_WORKERS
    queue._announce("w7", 0, "")
    queue._announce("one more", 60, "")


def test_the_errors_of_all_attempts_are_stored(
    queue: RemoteQueue[bytes], operator: Operator
) -> None:
    id = queue.put(b"p")
    for n in (1, 2, 3):
        queue.get().nack(0, error=f"error {n}\nat line {n}")
    dead = operator.peek(queue.name, id)
    assert dead is not None and dead.state == "dead" and dead.error == "error 3"
    assert [(one.text, one.attempt) for one in dead.failures] == [
        ("error 3\nat line 3", 3),
        ("error 2\nat line 2", 2),
        ("error 1\nat line 1", 1),
    ]
    assert dead.failures[0].traceback == "at line 3"
    times = [one.time or 0 for one in dead.failures]
    assert times == sorted(times, reverse=True) and times[-1] >= id
    (letter,) = queue.dead_letters()
    assert letter.error == "error 3"


def test_a_full_history_drops_whole_errors(client: Client, operator: Operator) -> None:
    queue = client.queue(uuid.uuid4().hex, bytes, retry=Retry(attempts=None, first=0))
    id = queue.put(b"p")
    for n in range(9):
        queue.get().nack(0, error=f"{n}" * 5000)
    found = operator.peek(queue.name, id)
    assert found is not None and len(found.history) <= MAX_HISTORY
    assert [one.text for one in found.failures] == [f"{n}" * MAX_ERROR for n in (8, 7, 6)]


def test_a_deferred_message_keeps_its_keys_until_it_is_redelivered(
    queue: RemoteQueue[bytes], operator: Operator
) -> None:
    id = queue.put(b"first", keys="k")
    queue.put(b"second", keys="k")
    token = operator.lease(queue.name, 60, "any").token
    assert operator.settle(queue.name, deferring(token, id, 600))
    waiting = operator.peek(queue.name, id)
    assert waiting is not None and (waiting.state, waiting.attempt) == ("backing_off", 1)
    counted = operator.stats(queue.name)
    assert (counted["releases"], counted["retries"], counted["ready"]) == (1, 0, 0)
    assert operator.change("retry", queue.name, id)
    again = queue.get()
    assert (again.id, again.attempt) == (id, 1)
    again.ack()
    queue.get().ack()


def test_a_result_expires(queue: RemoteQueue[bytes], operator: Operator) -> None:
    id = queue.put(b"p", result_ttl=60)
    assert not operator.forget(queue.name, id)
    queue.get().ack(5)
    assert queue.result(id, timeout=0) == 5
    assert operator.forget(queue.name, id) and not operator.forget(queue.name, id)
    assert operator.stats(queue.name)["results"] == 0


def test_the_oldest_ready_message_is_reported_behind_others_of_higher_priority(
    queue: RemoteQueue[bytes], operator: Operator
) -> None:
    def oldest() -> int:
        return operator.stats(queue.name)["oldest_ready"]

    assert oldest() == 0
    first, second = queue.put(b"1", keys="k"), queue.put(b"2")
    assert oldest() == first
    urgent, late = queue.put(b"3", priority=9), queue.put(b"4", priority=-9)
    assert oldest() == first
    queue.cancel(first)
    assert oldest() == second
    queue.get(timeout=0).ack()
    assert oldest() == second, f"{urgent} is leased first"
    queue.put(b"5", keys="k", priority=-3)
    queue.get(timeout=0).ack()
    assert oldest() == late
    queue.pause()
    assert oldest() == 0
    queue.resume()
    queue.put(b"6", priority=5)
    for _ in range(3):
        queue.get(timeout=0).ack()
    assert oldest() == 0


def test_the_single_error_of_older_releases_is_read_as_a_history() -> None:
    assert Failures.parse(b"") == ()
    assert Failures.parse(b"old\nmore") == (Failure("old\nmore", None, None),)
    history = b"new\x1f2\x1f7\x1eold \xff\x1fx"
    new, old = Failures.parse(history)
    assert (new.text, new.attempt, new.time) == ("new", 2, 7)
    assert old.attempt is None and old.text.startswith("old \\xff")
    assert Failures.of([new]).as_bytes() == b"new\x1f2\x1f7"


@pytest.mark.parametrize("features", [(), ("events",)], ids=["older", "this"])
def test_an_older_server_receives_only_arguments_it_knows(features: tuple[str, ...]) -> None:
    def answer(command: list[bytes]) -> bytes:
        if is_version(command):
            return version("release=99.0.0", *features)
        if command[1] == b"il1_settle":
            return array("RETRIED")
        return array("7", "9", "", "1", "5", "", "1", "p", "0", "0")

    with stub(answer) as server, connect(f"redis://127.0.0.1:{server.port}") as client:
        queue = client.queue("q", bytes)
        queue.get().nack(error="x" * 5000)
        operator = Operator(Server(client))
        operator.settle("q", deferring(7, 5, 2))
        operator.settle("q", closing(7, 5, 2, "late", "api", False))
        sent = [command for command in server.commands if command[1] == b"il1_settle"]
    if features:
        assert sent[0][-1] == b"x" * MAX_ERROR
        assert sent[1][-4:] == [b"DEFER", b"7", b"5", b"2000000"]
        assert sent[2][-7:] == [b"CLOSE", b"7", b"5", b"2000000", b"late", b"api", b"0"]
    else:
        assert sent[0][-1] == b"x" * 1024
        assert sent[1][-5:] == [b"NACK", b"7", b"5", b"2000000", b"deferred"]
        assert sent[2][-5:] == [b"NACK", b"7", b"5", b"2000000", b"late"]
