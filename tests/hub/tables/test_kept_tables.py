"""The keeper of a node's table, which answers NODE and says how long rows are read: with real
connections and threads."""

from __future__ import annotations

import gc
import select
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import redis

import interlock
from interlock import SharedTable, _core
from interlock.hub import passwords
from interlock.hub.config.configuration import ConfigError
from tests.hub.servers import needs_hub
from tests.hub.tables.tables import Presence, entry, new_name
from tests.support import until

HASH = passwords.hashed("secret")
LONG = 20.0
"""Seconds after which something will not happen any more."""


@pytest.fixture
def names() -> Iterator[list[str]]:
    """Of two tables: the first is kept, the other is not."""
    needs_hub()
    chosen = [new_name(), new_name()]
    yield chosen
    for name in chosen:
        SharedTable.remove(name)


@pytest.fixture
def keeper() -> _core.TableKeeper:
    return _core.TableKeeper()


@pytest.fixture
def serving(names: list[str], keeper: _core.TableKeeper) -> Iterator[interlock.Hub]:
    tables = [entry(name) for name in names]
    with interlock.Hub(port=0, workers=2, table=tables, keepers={names[0]: keeper}) as running:
        yield running


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as opened:
        yield opened


def client(hub: interlock.Hub, protocol: int = 2) -> redis.Redis:
    return redis.Redis(port=hub.port, protocol=protocol, socket_timeout=LONG, decode_responses=True)


def taken(keeper: _core.TableKeeper, count: int) -> list[tuple[int, bytes, bool, list[bytes]]]:
    """Take this number of calls, once they have arrived."""
    found: list[tuple[int, bytes, bool, list[bytes]]] = []
    end = time.monotonic() + LONG
    while len(found) < count:
        left = end - time.monotonic()
        assert left > 0, f"{len(found)} calls of {count} came"
        if select.select([keeper], [], [], left)[0]:
            found += keeper.take(count - len(found))
    return found


def told(future: Future[Any]) -> str:
    """Return the error that a call got."""
    error = future.exception(LONG)
    assert isinstance(error, redis.ResponseError), error
    return str(error)


@pytest.mark.parametrize("protocol", [2, 3])
def test_who_asks_waits_for_the_keepers_reply_and_who_reads_does_not(
    serving: interlock.Hub,
    keeper: _core.TableKeeper,
    names: list[str],
    pool: ThreadPoolExecutor,
    protocol: int,
) -> None:
    row = f"{names[0]}:k"
    with client(serving, protocol) as asks, client(serving, protocol) as reader:
        asked = pool.submit(asks.execute_command, "NODE", "STATUS", "x")
        ((asker, user, resp3, arguments),) = taken(keeper, 1)
        assert (user, resp3) == (b"default", protocol == 3)
        assert arguments == [b"NODE", b"STATUS", b"x"]
        assert not select.select([keeper], [], [], 0)[0]
        assert reader.hgetall(row) == {}, "nobody has written it"
        node = SharedTable.open(names[0], Presence, capacity=1000, keeper=True)
        node["k"] = Presence(app_id=1, unread=5)
        assert reader.hget(row, "unread") == "5"
        assert not asked.done()
        keeper.answer([(asker, b"_\r\n" if resp3 else b"$-1\r\n")])
        assert asked.result(LONG) is None
        assert reader.hset(f"{names[1]}:k", "unread", 1) == 1, "no node writes the other table"


def test_many_clients_are_answered_each_with_its_own(
    serving: interlock.Hub, keeper: _core.TableKeeper, names: list[str], pool: ThreadPoolExecutor
) -> None:
    each, clients = 200, 8
    stop = threading.Event()

    def keep() -> None:
        while not stop.is_set():
            if select.select([keeper], [], [], 0.05)[0]:
                calls = keeper.take(1000)
                # Backward: whose reply it is does not depend on the order.
                keeper.answer(
                    [(asker, b":%b\r\n" % words[3]) for asker, _, _, words in reversed(calls)]
                )

    def ask(number: int) -> list[int]:
        with client(serving) as asks, asks.pipeline(transaction=False) as pipeline:
            for turn in range(each):
                pipeline.execute_command("NODE", "NUMBER", "x", number * each + turn)
            return list(pipeline.execute())

    keeping = pool.submit(keep)
    try:
        results = list(pool.map(ask, range(clients)))
    finally:
        stop.set()
    keeping.result(LONG)
    assert results == [list(range(n * each, (n + 1) * each)) for n in range(clients)]


def test_who_has_closed_is_forgotten_and_who_is_gone_is_passed_over(
    serving: interlock.Hub, keeper: _core.TableKeeper, names: list[str], pool: ThreadPoolExecutor
) -> None:
    def connected() -> int:
        found = serving.info()["connected_clients"]
        assert isinstance(found, int)
        return found

    def said(number: int) -> socket.socket:
        opened = socket.create_connection(("127.0.0.1", serving.port), LONG)
        opened.sendall(f"NODE {number}\r\n".encode())
        return opened

    first = said(1)
    select.select([keeper], [], [], LONG)
    first.close()
    until(lambda: connected() == 0)
    assert keeper.take(10) == [], "nobody waits for it"
    second = said(2)
    ((asker, _, _, _),) = taken(keeper, 1)
    second.close()
    until(lambda: connected() == 0)
    third = said(3)
    ((other, _, _, _),) = taken(keeper, 1)
    keeper.answer([(asker, b":2\r\n"), (other, b":3\r\n"), (other, b":4\r\n")])
    third.sendall(b"PING\r\n")
    with third.makefile("rb") as answers:
        assert [answers.readline(), answers.readline()] == [b":3\r\n", b"+PONG\r\n"]
    third.close()


def test_reads_are_refused_when_their_time_is_over(
    serving: interlock.Hub, keeper: _core.TableKeeper, names: list[str]
) -> None:
    def refusal(*words: object) -> str:
        with client(serving) as reader, pytest.raises(redis.ResponseError) as caught:
            reader.execute_command(*words)
        return str(caught.value)

    def is_refused(*words: object) -> bool:
        with client(serving) as reader:
            try:
                reader.execute_command(*words)
            except redis.ResponseError as error:
                return str(error).startswith("STALE ")
        return False

    row = f"{names[0]}:k"
    assert not is_refused("HGETALL", row)
    keeper.set_fresh(0.05)
    until(lambda: is_refused("HGETALL", row))
    assert "ask another" in refusal("TABLE", "MGET", names[0], "k")
    for words in (
        ("TABLE", "SCAN", names[0], 0), ("TABLE", "COUNT", names[0], 0), ("EXISTS", row),
        ("PTTL", row), ("SCAN", 0),
    ):  # fmt: skip
        assert refusal(*words).startswith("STALE "), words
    for told_all in (("TABLE", "INFO", names[0]), ("TABLE", "LIST"), ("HGETALL", f"{names[1]}:k")):
        assert not is_refused(*told_all)
    keeper.set_fresh(3600)
    assert not is_refused("HGETALL", row)
    keeper.set_fresh(0)
    assert is_refused("HGETALL", row)
    keeper.set_fresh(None)
    assert not is_refused("HGETALL", row)


def test_a_keeper_that_is_closed_or_dropped_leaves_nobody_waiting(
    names: list[str], pool: ThreadPoolExecutor
) -> None:
    for drops in (False, True):
        keepers = {names[0]: _core.TableKeeper()}
        with (
            interlock.Hub(port=0, table=[entry(names[0])], keepers=keepers) as hub,
            client(hub) as first,
            client(hub) as second,
        ):
            one = pool.submit(first.execute_command, "NODE", "ONE")
            taken(keepers[names[0]], 1)
            two = pool.submit(second.execute_command, "NODE", "STATUS")
            assert select.select([keepers[names[0]]], [], [], LONG)[0]
            if drops:
                hub._keepers.clear()
                del keepers[names[0]]
                gc.collect()
            else:
                keepers[names[0]].close()
            assert told(one).startswith("UNANSWERED "), "it may have been done"
            assert told(two).startswith("NODE "), "nobody has taken it"
            refused = told(pool.submit(first.delete, f"{names[0]}:k"))
            assert refused.startswith("the node that writes this table has ended"), refused


def test_a_hub_that_stops_waits_for_the_keeper_and_then_refuses(
    names: list[str], keeper: _core.TableKeeper, pool: ThreadPoolExecutor
) -> None:
    hub = interlock.Hub(port=0, workers=2, table=[entry(names[0])], keepers={names[0]: keeper})
    hub.start()
    with client(hub) as first, client(hub) as second:
        one = pool.submit(first.execute_command, "NODE", "ONE")
        ((asker, *_),) = taken(keeper, 1)
        two = pool.submit(second.execute_command, "NODE", "TWO")
        ((other, *_),) = taken(keeper, 1)
        with socket.create_connection(("127.0.0.1", hub.port), LONG) as idle:
            idle.sendall(b"PING\r\n")
            assert idle.recv(100) == b"+PONG\r\n"
            stopping = pool.submit(hub.stop, LONG)
            # The hub closes it when it has begun to stop.
            assert idle.recv(1) == b""
        assert not stopping.done()
        keeper.answer([(asker, b":1\r\n"), (other, b":2\r\n")])
        assert (one.result(LONG), two.result(LONG)) == (1, 2)
        assert stopping.result(LONG) == 0
    hub.start()
    with client(hub) as first:
        one = pool.submit(first.execute_command, "NODE", "ONE")
        ((asker, *_),) = taken(keeper, 1)
        assert hub.stop(0) == 1
        assert told(one).startswith("UNANSWERED ")
    keeper.answer([(asker, b":1\r\n")])
    assert keeper.take(9) == []


def test_what_waits_is_bounded(names: list[str], pool: ThreadPoolExecutor) -> None:
    keeper = _core.TableKeeper(calls=2)
    tables = [entry(names[0])]
    with (
        interlock.Hub(port=0, workers=2, table=tables, keepers={names[0]: keeper}) as hub,
        client(hub) as first,
        client(hub) as second,
        client(hub) as third,
    ):
        waiting = [pool.submit(one.execute_command, "NODE", "ONE") for one in (first, second)]
        calls = taken(keeper, 2)
        refused = told(pool.submit(third.execute_command, "NODE", "ONE"))
        assert refused.startswith("the node has 2 calls "), "redis-py takes the code away"
        keeper.answer([(asker, b":1\r\n") for asker, *_ in calls])
        assert [one.result(LONG) for one in waiting] == [1, 1]
    refused_at_once: list[dict[str, Any]] = [{"calls": 0}, {"size": 0}]
    for wrong in refused_at_once:
        with pytest.raises(ValueError, match="allowed: 1 and more"):
            _core.TableKeeper(**wrong)


def test_rights_are_looked_at_before_the_keeper(
    names: list[str], keeper: _core.TableKeeper, pool: ThreadPoolExecutor
) -> None:
    users: list[dict[str, Any]] = [
        {"name": "writes", "tables": [names[0]]},
        {"name": "reads", "tables": [names[0]], "commands": ["@table", "-@write", "hello"]},
        {"name": "other", "tables": [names[1]]},
        {"name": "operates", "topics": ["*"], "commands": ["@admin", "hello"]},
    ]
    users = [{**user, "passwords": [HASH]} for user in users]
    tables = [entry(names[0])]
    with interlock.Hub(port=0, table=tables, user=users, keepers={names[0]: keeper}) as hub:

        def says(user: str, *words: object) -> Any:
            with redis.Redis(
                port=hub.port, username=user, password="secret", socket_timeout=LONG
            ) as opened:
                return opened.execute_command(*words)

        for user in ("reads", "other", "operates"):
            with pytest.raises(redis.exceptions.NoPermissionError):
                says(user, "HSET", f"{names[0]}:k", "unread", 1)
        for user in ("writes", "reads", "other"):
            with pytest.raises(redis.exceptions.NoPermissionError):
                says(user, "NODE", "STATUS")
        with pytest.raises(redis.ResponseError, match="wrong number of arguments"):
            says("writes", "HSET", f"{names[0]}:k", "unread")
        assert keeper.take(9) == []
        said = pool.submit(says, "operates", "NODE", "STATUS", "a", "b")
        ((asker, name, _, arguments),) = taken(keeper, 1)
        assert (name, arguments) == (b"operates", [b"NODE", b"STATUS", b"a", b"b"])
        keeper.answer([(asker, b"+fine\r\n")])
        assert said.result(LONG) == b"fine"


def test_a_keeper_stays_across_a_reload(
    serving: interlock.Hub, keeper: _core.TableKeeper, names: list[str], pool: ThreadPoolExecutor
) -> None:
    with client(serving) as writer:

        def is_kept() -> None:
            asked = pool.submit(writer.execute_command, "NODE", "ONE")
            ((asker, *_),) = taken(keeper, 1)
            keeper.answer([(asker, b":7\r\n")])
            assert asked.result(LONG) == 7

        serving.set({"table": [entry(names[0])]})
        is_kept()
        serving.set({"table": [entry(names[1]), entry(names[0], capacity=500)]})
        is_kept()
        before = pool.submit(writer.execute_command, "NODE", "ONE")
        ((asker, *_),) = taken(keeper, 1)
        with pytest.raises(ConfigError, match=f"keepers: '{names[0]}' is not a table"):
            serving.set({"table": [entry(names[1])]})
        keeper.answer([(asker, b":8\r\n")])
        assert before.result(LONG) == 8
        is_kept()


def test_a_keeper_of_a_table_that_is_not_declared_is_refused(keeper: _core.TableKeeper) -> None:
    with pytest.raises(ConfigError, match=r"keepers: 'none' is not a table .*; declared: 'a'"):
        interlock.Hub(port=0, table=[entry("a")], keepers={"none": keeper})
    with pytest.raises(ConfigError, match="declared: none"):
        interlock.Hub(port=0, keepers={"none": keeper})


def test_a_malformed_reply_is_refused_and_answers_nobody(
    serving: interlock.Hub, keeper: _core.TableKeeper, names: list[str], pool: ThreadPoolExecutor
) -> None:
    with client(serving) as writer:
        written = pool.submit(writer.execute_command, "NODE", "ONE")
        ((asker, *_),) = taken(keeper, 1)
        for wrong in (b"", b"\r\n", b":1"):
            with pytest.raises(ValueError, match="allowed: one whole reply"):
                keeper.answer([(asker, b":9\r\n"), (asker, wrong)])
        for seconds in (-1, float("nan")):
            with pytest.raises(ValueError, match="allowed: 0 and more, None"):
                keeper.set_fresh(seconds)
        keeper.answer([(asker, b":1\r\n")])
        assert written.result(LONG) == 1


def test_a_hub_without_a_keeper_is_no_node() -> None:
    needs_hub()
    with (
        interlock.Hub(port=0) as hub,
        client(hub) as asking,
        pytest.raises(redis.ResponseError, match="this hub is not a node of a cluster"),
    ):
        asking.execute_command("NODE", "STATUS")
