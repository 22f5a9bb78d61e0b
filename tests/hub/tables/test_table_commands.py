"""Rows of a table over the Redis protocol: redis-py, unchanged, next to programs that have it open
here."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

import interlock
from interlock import SharedTable
from tests import seeds
from tests.hub.servers import needs_hub
from tests.hub.tables.tables import Presence, entry, new_name


@pytest.fixture(scope="module")
def name() -> Iterator[str]:
    chosen = new_name()
    yield chosen
    SharedTable.remove(chosen)


@pytest.fixture(scope="module")
def serving(name: str) -> Iterator[interlock.Hub]:
    needs_hub()
    with interlock.Hub(port=0, workers=2, table=[entry(name)]) as running:
        yield running


@pytest.fixture
def table(serving: interlock.Hub, name: str) -> SharedTable[Presence]:
    """The same table, as a process of this machine has it."""
    found = SharedTable.attach(name, Presence)
    found.clear()
    return found


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def client(request: pytest.FixtureRequest, serving: interlock.Hub) -> Iterator[Any]:
    with redis.Redis(
        port=serving.port, protocol=request.param, socket_timeout=20, decode_responses=True
    ) as opened:
        yield opened


def test_a_local_process_and_a_client_see_the_same_row(
    client: Any, table: SharedTable[Presence], name: str
) -> None:
    given = {"app_id": 666, "background": 1, "score": 0.1, "token": "tök", "small": -128}
    assert client.hset(f"{name}:888", mapping=given) == 5
    assert table[888] == Presence(app_id=666, background=True, score=0.1, token="tök", small=-128)
    table.incr(888, "unread", 98)
    assert client.hincrby(f"{name}:888", "unread") == 99
    assert table.get_column("888", "unread") == 99
    table["b"] = Presence(app_id=1, raw=b"\0\xff:", narrow=0.1, large=2**64 - 1)
    assert client.hget(f"{name}:b", "large") == str(2**64 - 1)
    assert float(client.hget(f"{name}:b", "narrow")) == table["b"].narrow
    client.hset(f"{name}:b", "unread", 7)
    assert table["b"].raw == b"\0\xff:", "the others are as they were"
    assert client.delete(f"{name}:b", f"{name}:b", f"{name}:888", f"{name}:none") == 2
    assert len(table) == 0


def test_redis_py_reads_all_columns(client: Any, table: SharedTable[Presence], name: str) -> None:
    row = {
        "app_id": "3", "background": "0", "unread": "0", "small": "-1", "large": "0",
        "score": "1.5", "narrow": "0", "token": "abc", "raw": "",
    }  # fmt: skip
    key = f"{name}:k"
    assert client.hgetall(key) == {}
    assert (client.hkeys(key), client.hvals(key), client.hlen(key)) == ([], [], 0)
    assert client.hmget(key, "unread", "token") == [None, None]
    assert (client.hget(key, "unread"), client.hexists(key, "unread")) == (None, False)
    table["k"] = Presence(app_id=3, small=-1, score=1.5, token="abc")
    assert client.hgetall(key) == row
    assert client.hkeys(key) == list(row)
    assert client.hvals(key) == list(row.values())
    assert client.hlen(key) == len(row)
    assert client.hmget(key, "token", "small", "token") == ["abc", "-1", "abc"]
    assert (client.hexists(key, "unread"), client.hexists(key, "none")) == (True, False)
    assert client.hstrlen(key, "token") == 3
    assert client.hscan(key) == (0, row)
    assert client.hscan(key, match="s*") == (0, {"small": "-1", "score": "1.5"})


def test_a_row_is_made_with_zeroes_and_changed_in_part(
    client: Any, table: SharedTable[Presence], name: str
) -> None:
    assert client.hincrby(f"{name}:a", "small", -5) == -5
    assert table["a"] == Presence(app_id=0, small=-5)
    assert client.hincrbyfloat(f"{name}:b", "score", 0.5) == 0.5
    assert client.hincrbyfloat(f"{name}:b", "score", 1) == 1.5
    assert client.hsetnx(f"{name}:c", "token", "x") == 1
    assert client.hsetnx(f"{name}:c", "unread", 1) == 0
    assert table["c"] == Presence(app_id=0, token="x")
    assert client.hset(f"{name}:c", "token", "y") == 0
    assert client.execute_command("HMSET", f"{name}:d", "token", "y", "unread", 1) is True
    assert client.hset(f"{name}:e", items=["unread", 1, "unread", 2]) == 1, "one column, twice"
    assert table["e"].unread == 2
    assert client.hincrby(f"{name}:f", "large", 2**63 - 1) == 2**63 - 1
    assert int(client.hincrby(f"{name}:f", "large", 2**62)) == 2**63 - 1 + 2**62


def test_a_row_expires_as_keys_do(client: Any, table: SharedTable[Presence], name: str) -> None:
    key = f"{name}:k"
    assert (client.ttl(key), client.pttl(key), client.expire(key, 10)) == (-2, -2, False)
    client.hset(key, "unread", 1)
    assert (client.ttl(key), client.persist(key)) == (-1, False)
    assert client.expire(key, 100) is True
    assert client.ttl(key) in {99, 100}
    client.hset(key, "unread", 2)
    left = table.ttl("k")
    assert left is not None, "a change in part leaves the time to live"
    assert 90 < left <= 100
    assert client.expire(key, 50, nx=True) is False
    assert client.expire(key, 50, gt=True) is False
    assert client.expire(key, 200, lt=True) is False
    assert client.pexpire(key, 200_000, gt=True) is True
    assert client.persist(key) is True
    assert client.expire(key, 50, xx=True) is False
    assert client.expire(key, 50, gt=True) is False, "for ever is longer"
    assert client.expire(key, 50, lt=True) is True
    assert client.expireat(key, int(time.time()) + 1000) is True
    assert 900 < client.ttl(key) <= 1000
    assert client.pexpireat(key, int(time.time() * 1000) - 1) is True
    assert client.exists(key) == 0
    client.hset(key, "unread", 1)
    assert client.expire(key, -1) is True
    assert (client.hgetall(key), client.type(key)) == ({}, "none")


def test_keys_are_counted_and_gone_over(
    client: Any, table: SharedTable[Presence], name: str
) -> None:
    for number in range(300):
        table[number] = Presence(app_id=number)
    assert client.dbsize() == 300
    assert client.exists(f"{name}:1", f"{name}:1", f"{name}:x") == 2
    assert client.touch(f"{name}:1", f"{name}:x") == 1
    assert client.type(f"{name}:1") == "hash"
    everything = sorted(f"{name}:{number}" for number in range(300))
    for count in (1, 7, 10, 1000, 2**40):
        assert sorted(client.scan_iter(count=count)) == everything
    assert sorted(client.scan_iter(f"{name}:1?")) == sorted(f"{name}:{n}" for n in range(10, 20))
    assert list(client.scan_iter("other:*")) == list(client.scan_iter(_type="string")) == []
    assert client.unlink(*everything) == 300
    assert client.scan(0) == (0, [])


def test_wrong_calls_are_told_why_and_change_nothing(
    client: Any, table: SharedTable[Presence], name: str
) -> None:
    table["k"] = before = Presence(app_id=1, token="t")
    key = f"{name}:k"
    wrong: tuple[tuple[tuple[object, ...], str], ...] = (
        (("HSET", key, "unread", "x"), "WRONGTYPE column unread is U32"),
        (("HSET", key, "unread", "-1"), "WRONGTYPE column unread"),
        (("HSET", key, "unread", 2**32), "WRONGTYPE column unread"),
        (("HSET", key, "unread", "1", "large", 2**64), "WRONGTYPE column large"),
        (("HSET", key, "background", "true"), "WRONGTYPE column background is bool; allowed: 0 or"),
        (("HSET", key, "score", "1 "), "WRONGTYPE column score"),
        (("HSET", key, "narrow", "1e300"), "WRONGTYPE column narrow"),
        (("HSET", key, "token", "123456789"), "WRONGTYPE column token: 9 bytes; its size is 8"),
        (("HSET", key, "token", b"\xff"), "WRONGTYPE column token is str"),
        (("HSET", key, "unread", "1", "nope", "1"), "NOCOLUMN there is no column 'nope'; there "),
        (("HSET", key, "unread"), "wrong number of arguments for 'hset' command"),
        (("HSET", key, "unread", "1", "small"), "wrong number of arguments for 'hset' command"),
        (("HGET", key, "nope"), "NOCOLUMN"),
        (("HMGET", key, "unread", "nope"), "NOCOLUMN"),
        (("HGET", "none:k", "unread"), "NOTABLE this hub has no table 'none'"),
        (("HGET", "k", "unread"), "a row is named by TABLE:KEY"),
        (("DEL", key, "k"), "a row is named by TABLE:KEY"),
        (("HGET", f"{name}:", "unread"), "a key must have at least one byte"),
        (("HGET", f"{name}:{'k' * 33}", "unread"), "a key of 33 bytes; the table takes up to 32"),
        (("HSET", f"{name}:{'k' * 33}", "unread", 1), "a key of 33 bytes"),
        (("HINCRBY", key, "token", 1), "hash value is not an integer"),
        (("HINCRBY", key, "background", 1), "hash value is not an integer"),
        (("HINCRBY", key, "unread", "x"), "value is not an integer or out of range"),
        (("HINCRBY", key, "unread", -1), "increment or decrement would overflow"),
        (("HINCRBY", f"{name}:new", "unread", -1), "increment or decrement would overflow"),
        (("HINCRBYFLOAT", key, "unread", 1), "hash value is not a float"),
        (("HINCRBYFLOAT", key, "score", "nan"), "value is not a valid float"),
        (("HDEL", key, "nope", "token"), "column token cannot be deleted: a row has all its"),
        (("EXPIRE", key, "x"), "value is not an integer or out of range"),
        (("EXPIRE", key, 2**62), "invalid expire time in 'expire' command"),
        (("EXPIRE", key, 1, "YY"), "Unsupported option YY"),
        (("EXPIRE", key, 1, "NX", "GT"), "NX and XX, GT or LT options"),
        (("EXPIRE", key, 1, "LT", "GT"), "GT and LT options at the same time"),
        (("SCAN", "x"), "invalid cursor"),
        (("SCAN", "-1"), "invalid cursor"),
        (("SCAN", 0, "COUNT", 0), "syntax error"),
        (("SCAN", 0, "NONE", 0), "syntax error"),
        (("SCAN", 0, "MATCH", "x" * 2000), "a pattern may have up to"),
        (("TABLE", "SET", key, "ANY", "DEFAULT", "nope", "1"), "NOCOLUMN"),
        (("TABLE", "SET", key, "MAYBE", "DEFAULT"), "syntax error"),
        (("TABLE", "SET", key, "ANY", "-1"), "syntax error"),
        (("TABLE", "MGET", name, *range(1001)), "more than 1000 rows in one call"),
        (("TABLE", "MSET", name, 1, "unread", "k"), "wrong number of arguments for 'table|mset'"),
        (("TABLE", "MSET", name, 99, "unread", "k", 1), "value is not an integer or out of range"),
        (("TABLE", "INFO", "none"), "NOTABLE"),
    )
    for words, told in wrong:
        with pytest.raises(redis.ResponseError) as refused:
            client.execute_command(*words)
        assert told in str(refused.value), words
    assert dict(table) == {"k": before}
    assert client.hdel(key, "nope") == client.hdel(f"{name}:new", "token") == 0


def test_hash_commands_answer_as_redis_does(
    client: Any, redis_port: int, table: SharedTable[Presence], name: str
) -> None:
    """The same bytes for a row with one column as for a hash with one field, and for none."""
    seed = seeds.seed()
    chance = random.Random(seed)
    calls: list[tuple[object, ...]] = [
        *(("HSET", "unread", 5), ("HINCRBY", "unread", 3), ("HGET", "unread"), ("EXISTS",)),
        *(("HMGET", "unread", "unread"), ("HEXISTS", "unread"), ("HSETNX", "unread", 9)),
        *(("HINCRBY", "unread", "x"), ("HINCRBY", "unread"), ("HSTRLEN", "unread"), ("DEL",)),
        *(("TTL",), ("EXPIRE", 100), ("PERSIST",), ("TYPE",), ("TOUCH",), ("EXPIRE", "x")),
        *(("EXPIRE", 50, "NX"), ("EXPIRE", "GT"), ("EXPIRE", "LT"), ("EXPIRE", -1)),
        *(("HMSET", "unread", 1), ("UNLINK",), ("EXPIRE", 80, "XX"), ("PEXPIRE", 10_000_000)),
    ]
    with redis.Redis(port=redis_port, protocol=2, decode_responses=True) as theirs:
        theirs.delete(f"{name}:k")
        for _ in range(600):
            command, *arguments = chance.choice(calls)
            if arguments and arguments[0] in {"GT", "LT"}:
                # Never the same twice: then it depends on how fine a clock is.
                arguments.insert(0, chance.randrange(10, 1_000_000))
            answers = []
            for server in (theirs, client):
                try:
                    answers.append(server.execute_command(command, f"{name}:k", *arguments))
                except redis.ResponseError as error:
                    answers.append(str(error))
            assert answers[0] == answers[1], (command, arguments)


def test_increments_of_clients_and_of_this_process_are_all_there(
    serving: interlock.Hub, table: SharedTable[Presence], name: str
) -> None:
    def remote() -> None:
        with redis.Redis(port=serving.port) as own, own.pipeline(transaction=False) as pipeline:
            for _ in range(10):
                for _ in range(100):
                    pipeline.hincrby(f"{name}:k", "unread", 1)
                pipeline.execute()

    def local() -> None:
        for _ in range(1000):
            if not table.set("k", Presence(app_id=0, unread=1), only="absent"):
                table.incr("k", "unread")

    threads = [threading.Thread(target=target) for target in (remote, remote, local)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert table["k"].unread == 3000


def test_what_a_typed_row_can_beyond_a_hash(
    client: Any, table: SharedTable[Presence], name: str
) -> None:
    key, call = f"{name}:k", client.execute_command
    assert call("TABLE", "SET", key, "XX", "DEFAULT", "app_id", 1) is None
    assert call("TABLE", "SET", key, "NX", 60_000, "app_id", 1) == 1
    left = table.ttl("k")
    assert left is not None
    assert 50 < left <= 60
    assert call("TABLE", "SET", key, "NX", "NEVER", "app_id", 1) is None
    assert call("TABLE", "SET", key, "ANY", "NEVER", "app_id", 2, "score", "nan") == 0
    assert table.ttl("k") is None
    assert math.isnan(table["k"].score)
    assert call("TABLE", "PATCH", key, "unread", 5, "token", "x") == 1
    assert call("TABLE", "PATCH", f"{name}:none", "unread", 5) == 0
    assert call("TABLE", "INCR", key, "unread", 2) == 7
    assert call("TABLE", "INCR", key, "unread", -8, "WRAP") == 2**32 - 1
    assert call("TABLE", "INCR", key, "unread", 2**70, "SATURATE") == 2**32 - 1
    assert call("TABLE", "INCR", f"{name}:none", "unread", 1) is None
    assert call("TABLE", "CAS", key, "token", "x", "y") == 1
    assert call("TABLE", "CAS", key, "token", "x", "z") == 0
    assert call("TABLE", "CAS", f"{name}:none", "token", "x", "z") is None
    assert call("TABLE", "IDLE", key) >= 0
    assert call("TABLE", "MSET", name, 2, "unread", "token", "a", 1, "A", "b", 2, "B") == 2
    assert table["b"] == Presence(app_id=0, unread=2, token="B")
    found = call("TABLE", "MGET", name, "a", "none", "b")
    assert [row and row[2] for row in found] == ["1", None, "2"]
    cursor, rows = call("TABLE", "SCAN", name, 0, "COUNT", 1000)
    assert (cursor, sorted(rows[::2])) == ("0", ["a", "b", "k"])
    assert call("TABLE", "COUNT", name, 0) == ["0", 3]
    assert call("TABLE", "POP", f"{name}:a")[7] == "A"
    assert call("TABLE", "POP", f"{name}:a") is None
    assert call("TABLE", "LIST") == [name]
    told = call("TABLE", "INFO", name)
    if isinstance(told, list):
        told = dict(zip(told[::2], told[1::2], strict=True))
    assert (told["columns"], told["capacity"], told["ttl"]) == (table.schema, 1000, 0)


def test_a_transaction_is_refused_in_words(
    client: Any, table: SharedTable[Presence], name: str
) -> None:
    refused = "a hub has no transactions, each command runs on its own"
    with pytest.raises(redis.ResponseError, match=refused):
        client.pipeline(transaction=True).hset(f"{name}:k", "unread", 1).execute()
    with pytest.raises(redis.ResponseError, match=refused):
        client.execute_command("WATCH", f"{name}:k")
    assert client.pipeline(transaction=False).hincrby(f"{name}:k", "unread").execute() == [2]
