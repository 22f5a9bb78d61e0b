"""Writes that other machines are to have, on each engine of a log; test_acks has all of Redis."""

from __future__ import annotations

import shutil

import pytest
from redis import RedisError, ResponseError

from tests.cluster.nodes import NodeProcess
from tests.cluster.streams.engines.redis import Redis as EngineRedis
from tests.cluster.streams.engines.server import Engine, eventually
from tests.cluster.streams.test_nodes import Start, client, dc, start, status

__all__ = ["dc", "start"]

IN_TIME = "NOACK it was done, and 0 of 1 other machines have acknowledged it in time"


def increased(node: NodeProcess) -> int:
    with client(node) as asked:
        return int(asked.hincrby("presence:n", "unread", 1))


def acked(node: NodeProcess) -> int:
    """Write until another machine has acknowledged it."""
    found: list[int] = []

    def is_acked() -> bool:
        try:
            found.append(increased(node))
        except RedisError as error:
            if not any(word in str(error) for word in ("NOACK", "it was not done", "UNANSWERED")):
                raise
        return bool(found)

    eventually(is_acked, lambda: node.log)
    return found[0]


def unacked(node: NodeProcess) -> None:
    """Write until it is answered that it is done, and that no other machine has acknowledged it."""

    def is_done() -> bool:
        with pytest.raises(ResponseError) as error:
            increased(node)
        assert IN_TIME in str(error.value) or "it was not done" in str(error.value)
        return IN_TIME in str(error.value)

    eventually(is_done, lambda: node.log)


@pytest.mark.watchdog(180)
def test_an_acknowledged_write_survives_the_loss_of_log_and_machine(
    engine: Engine, start: Start, dc: str
) -> None:
    if isinstance(engine, EngineRedis):
        pytest.skip("tests/cluster/test_acks.py has this engine")
    a = start("a", "--machine", "m-a", "--ack", "1", "--timeout", "2")
    unacked(a)
    b = start("b", "--machine", "m-b")
    acked(a)
    with client(a) as asked:
        barrier = ("TABLE", "BARRIER", "presence", "ACKS")
        assert asked.execute_command(*barrier, "1") == "OK"
        with pytest.raises(ResponseError, match="NOACK it was done, and 1 of 2 other"):
            asked.execute_command(*barrier, "2")
    b.freeze()
    unacked(a)
    b.thaw()
    acked(a)
    # Stored entries are acknowledged as before, and so are new ones.
    engine.kill()
    engine.start()
    last = acked(a)
    a.kill()
    shutil.rmtree(a.data)
    engine.delete_log("presence", dc)
    a = start("a", "--machine", "m-a", "--ack", "1", "--timeout", "2")
    # It may be answered before the node that kept the rows has put them back.
    acked(a)
    with client(a) as asked:
        eventually(lambda: int(asked.hget("presence:n", "unread") or 0) > last, lambda: b.log)
    eventually(lambda: status(a)["rows_checksum"] == status(b)["rows_checksum"])
