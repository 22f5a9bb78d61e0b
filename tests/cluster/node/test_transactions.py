"""MULTI and EXEC at a node, which clients send around the commands of a pipeline by default."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

import pytest
from redis import Redis, ResponseError
from redis.exceptions import ExecAbortError

from tests.cluster.node.test_operating import client
from tests.cluster.nodes import NodeCluster


@pytest.fixture
def node(nodes: NodeCluster) -> Any:
    return nodes.nodes["a1"]


def test_writes_between_multi_and_exec_are_one_entry(node: Any, nodes: NodeCluster) -> None:
    with client(node) as asked, Redis.from_url(nodes.engine_url) as engine:
        pipeline = asked.pipeline()
        pipeline.hset("presence:whole-m", mapping={"app_id": 7, "token": "t"})
        for _ in range(6000):
            pipeline.hincrby("presence:whole-m", "unread", 1)
        pipeline.hset("presence:whole-n", "app_id", 9)
        assert pipeline.execute() == [2, *range(1, 6001), 1]
        # A node also appends entries without writes of clients, whenever it wants to.
        entries = [fields[b"e"] for _, fields in engine.xrange("il:log:{presence.main}")]
        # On a slow machine it may append this one again, which is done once.
        whole = [entry for entry in entries if b"presence:whole-" in entry]
        assert {entry.count(b"presence:whole-m") for entry in whole} == {6001}
        assert {entry.count(b"presence:whole-n") for entry in whole} == {1}
        row = asked.hgetall("presence:whole-m")
        assert row == {"app_id": "7", "unread": "6000", "token": "t"}


def test_reads_see_the_writes_before_them(node: Any) -> None:
    with client(node) as asked:
        asked.delete("presence:m", "presence:n")
        pipeline = asked.pipeline()
        pipeline.hget("presence:m", "unread").hincrby("presence:m", "unread", 2)
        pipeline.hincrby("presence:m", "unread", 3).hget("presence:m", "unread")
        pipeline.delete("presence:m").exists("presence:m")
        assert pipeline.execute() == [None, 2, 5, "5", 1, 0]
        assert asked.pipeline().exists("presence:m").exists("presence:n").execute() == [0, 0]
        asked.execute_command("MULTI")
        assert asked.execute_command("EXEC") == []


def test_what_is_refused_before_exec_has_nothing_done(node: Any, nodes: NodeCluster) -> None:
    with client(node) as asked, ExitStack() as stack:
        connection = asked.connection_pool.get_connection()
        stack.callback(connection.disconnect)

        def call(*words: Any) -> Any:
            connection.send_command(*words)
            return connection.read_response()

        def is_refused(text: str, *words: Any) -> None:
            with pytest.raises(ResponseError, match=text):
                call(*words)

        call("DEL", "presence:m")
        is_refused("EXEC without MULTI", "EXEC")
        is_refused("DISCARD without MULTI", "DISCARD")
        is_refused("a node has no WATCH: TABLE CAS compares and sets", "WATCH", "presence:m")
        for text, words in (
            ("wrong number of arguments", ("HSET", "presence:m")),
            ("unknown command", ("NONSENSE",)),
            ("a node has no WATCH", ("WATCH", "presence:m")),
            ("'table|client' is refused between MULTI and EXEC; allowed: commands on rows",
             ("TABLE", "CLIENT", "c", 1, 99, "HINCRBY", "presence:m", "unread", 1)),
            ("'publish' is refused between MULTI and EXEC", ("PUBLISH", "topic", "x")),
            ("this names another table", ("HSET", "none:m", "app_id", 1)),
        ):  # fmt: skip
            assert call("MULTI") == "OK"
            assert call("HINCRBY", "presence:m", "unread", 1) == "QUEUED"
            is_refused(text, *words)
            if words[0] == "WATCH":
                # As in Redis, that spoils nothing.
                assert call("DISCARD") == "OK"
                continue
            with pytest.raises(ExecAbortError, match="nothing was done: a command between MULTI"):
                call("EXEC")
        assert call("MULTI") == "OK"
        is_refused("MULTI calls can not be nested", "MULTI")
        assert call("HINCRBY", "presence:m", "unread", 1) == "QUEUED"
        assert call("DISCARD") == "OK"
        many = asked.pipeline()
        for _ in range(16_385):
            many.hincrby("presence:m", "unread", 1)
        with pytest.raises(ResponseError, match="16,384 commands and 16 MiB at most"):
            many.execute()
        assert call("MULTI") == call("RESET").replace("RESET", "OK") == "OK"
        assert call("EXISTS", "presence:m") == 0
        # A refusal by a row is one answer among the others, as in Redis.
        found = asked.pipeline().hset("presence:m", "none", 1).hset("presence:m", "app_id", 1)
        refused, done = found.execute(raise_on_error=False)
        assert isinstance(refused, ResponseError) and done == 1
        # A client that leaves before EXEC has done nothing.
        call("MULTI")
        call("HINCRBY", "presence:m", "unread", 50)
    with client(node) as asked:
        assert asked.hget("presence:m", "unread") == "0"


def test_transactions_of_two_clients_do_not_mix(node: Any, nodes: NodeCluster) -> None:
    def write(to: Any, first: int) -> None:
        with client(to) as asked:
            for number in range(first, first + 60):
                pipeline = asked.pipeline()
                for row in range(4):
                    pipeline.hset(f"presence:mixed{row}", "app_id", number)
                pipeline.execute()

    threads = [
        threading.Thread(target=write, args=(nodes.nodes[name], 1000 * at))
        for at, name in enumerate(("a1", "a2", "a1"))
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    with client(node) as asked:
        asked.execute_command("TABLE", "BARRIER", "presence")
        assert len({asked.hget(f"presence:mixed{row}", "app_id") for row in range(4)}) == 1
