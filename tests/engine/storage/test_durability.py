"""The state that outlives a killed server, and what a full server still does (clause 18)."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis
from redis.exceptions import OutOfMemoryError

from interlock.client.lua.library import Library, load
from tests.engine.calls import LONG, Argument, Queue, leased, message
from tests.hub.servers import redis_server

ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")


def test_a_queue_keeps_its_state_when_the_server_is_killed_and_restarted(tmp_path: Path) -> None:
    with redis_server(tmp_path, *ALWAYS) as (_, port), redis.Redis(port=port) as connection:
        load(connection)
        queue = Queue(connection)
        for n in range(4):
            queue.put(message(f"a{n}", ["a"]), message(f"r{n}", [], ["b"], priority=n))
        writer, _ = queue.put(message("b", ["b"], dedup="once"), message("later", delay=1))
        first = queue.lease(3).messages
        assert [one.payload for one in first] == ["r3", "r2", "r1"]
        queue.settle(first[0].ack(), first[1].nack(LONG))
        before = queue.stats()
        kept = queue.call("lease", "w", 1, 0, 1, LONG, "keyed")
    # redis_server() kills with SIGKILL.
    with redis_server(tmp_path, *ALWAYS) as (_, port), redis.Redis(port=port) as connection:
        assert Library().installed(connection) == Library().hash, "functions are stored as well"
        queue = Queue(connection)
        assert queue.call("lease", "w", 1, 0, 1, LONG, "keyed") == kept, "so is the kept reply"
        (a0,) = leased(kept).messages
        assert a0.payload == "a0"
        after = queue.stats()
        assert (after["unsettled"], after["leased"]) == (before["unsettled"], before["leased"] + 1)
        assert queue.put(message("again", dedup="once")) == [writer]
        assert queue.settle(a0.ack(), first[2].ack(), first[1].ack()) == [
            "ACKED",
            "ACKED",
            "LEASELOST",
        ]
        got = queue.lease().messages
        assert [one.payload for one in got] == ["r0", "a1", "later"]
        assert all(int(one.token) > int(first[0].token) for one in got)


def test_a_full_server_refuses_puts_and_can_be_drained(tmp_path: Path) -> None:
    with redis_server(tmp_path) as (_, port), redis.Redis(port=port) as connection:
        load(connection)
        queue = Queue(connection)
        queue.put(*[message(str(n), ["a"]) for n in range(3)])
        connection.config_set("maxmemory", 1)
        with pytest.raises(OutOfMemoryError):
            queue.put(message("more", ["a"]))
        handled = []
        for _ in range(3):
            (got,) = queue.lease(1).messages
            queue.call("extend", got.token, LONG)
            handled.append(got.payload)
            assert queue.settle(got.ack()) == ["ACKED"]
        assert handled == ["0", "1", "2"]
        assert queue.parts() == {"c"}


def test_a_full_server_refuses_puts_and_obeys_operators(tmp_path: Path) -> None:
    with redis_server(tmp_path) as (_, port), redis.Redis(port=port) as connection:
        load(connection)
        queue = Queue(connection)
        ids = queue.put(*[message(str(n), ["a"]) for n in range(5)])
        (first,) = queue.lease(1).messages
        assert queue.settle(first.reject()) == ["DEAD"]
        connection.config_set("maxmemory", 1)
        with pytest.raises(OutOfMemoryError):
            queue.call("requeue", ids[0])
        with pytest.raises(OutOfMemoryError):
            queue.put(message("more"))
        queue.lease(1)
        operated: list[list[Argument]] = [
            ["revoke", ids[1], "hold"],
            ["retry", ids[1]],
            ["pause", "a"],
            ["resume", "a"],
            ["seal"],
            ["reopen"],
            ["cancel", ids[1]],
        ]
        for name, *arguments in operated:
            assert queue.call(str(name), *arguments) == ["1"], name
        assert queue.stats()["unsettled"] == 3
        read: list[list[Argument]] = [
            ["peek", ids[2]],
            ["scan", 0, 9],
            ["explain", "key", "a", 9],
        ]
        for name, *arguments in read:
            assert len(queue.call(str(name), *arguments)) > 3
        assert queue.call("result", ids[0], 0) == ["dead", "bad"]
        assert queue.call("purge", "pending") == ["3"]
        assert queue.call("purge", "dead") == ["1"]
        assert queue.parts() == {"c"}
