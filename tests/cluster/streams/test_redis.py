"""A replica of a Redis that is promoted, and lacks the tail that a reader has read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from interlock.cluster.streams import ChangeStream, PositionLost, StreamUnavailable, open_log
from interlock.cluster.streams.redis import log_key
from tests.cluster.streams.engines.redis import Redis
from tests.cluster.streams.engines.server import eventually
from tests.cluster.streams.test_logs import position, read_all

KEY = log_key("t", "dc")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Redis, Redis]]:
    """A primary with a log of two entries, and a replica that was promoted when it had these."""
    with ExitStack() as stack:
        made = []
        for name in ("primary", "replica"):
            (tmp_path / name).mkdir()
            made.append(Redis(tmp_path / name))
            stack.callback(made[-1].close)
            made[-1].start()
        primary, replica = made
        client = stack.enter_context(redis.Redis(port=primary.port))
        other = stack.enter_context(redis.Redis(port=replica.port))
        with at(primary) as appender:
            appender.begin(b"one")
            appender.append([b"two"])
        other.replicaof("127.0.0.1", str(primary.port))
        eventually(lambda: other.xlen(KEY) == client.xlen(KEY) == 2)
        other.replicaof("NO", "ONE")
        yield primary, replica


class at:
    def __init__(self, engine: Redis) -> None:
        self.stream = open_log(engine.url, "t", "dc")

    def __enter__(self) -> ChangeStream:
        return self.stream

    def __exit__(self, *_: object) -> None:
        self.stream.close()


def test_a_position_missing_on_the_promoted_replica_raises_position_lost(
    pair: tuple[Redis, Redis],
) -> None:
    primary, replica = pair
    with at(primary) as old, at(replica) as new:
        shared = position(read_all(old, "", 2)[-1])
        old.append([b"three"])
        lost = old.last()
        assert new.entries(shared, 10, 0).entries == []
        with pytest.raises(PositionLost):
            new.entries(lost, 10, 0)
        new.append([b"other"])
        with pytest.raises(PositionLost) as found:
            new.entries(lost, 10, 0)
        assert [one.data for one in new.entries(shared, 10, 0).entries] == [b"other"]
        assert found.value.last == new.last()


def test_a_reused_stream_id_is_another_position(pair: tuple[Redis, Redis]) -> None:
    primary, replica = pair
    with at(primary) as old, at(replica) as new:
        old.append([b"three"])
        lost = old.last()
        with redis.Redis(port=replica.port) as client:
            client.xadd(KEY, {"e": b"other"}, id=lost.partition(".")[0])
        assert new.last().partition(".")[0] == lost.partition(".")[0]
        with pytest.raises(PositionLost):
            new.entries(lost, 10, 0)


def test_a_connected_reader_notices_that_the_log_was_replaced(
    pair: tuple[Redis, Redis],
) -> None:
    primary, _ = pair
    with at(primary) as reader:
        last = position(read_all(reader, "", 2)[-1])
        with redis.Redis(port=primary.port) as client:
            client.delete(KEY)
            client.xadd(KEY, {"e": b"other"})
        with pytest.raises(PositionLost):
            reader.entries(last, 10, 0)


def test_a_batch_is_written_as_a_whole_or_not_at_all(pair: tuple[Redis, Redis]) -> None:
    primary, _ = pair
    with at(primary) as stream, redis.Redis(port=primary.port) as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"] + 3_000_000)

        def fill() -> None:
            for _ in range(20):
                stream.append([b"x" * 500_000] * 3)

        with pytest.raises(StreamUnavailable, match=r"OOM"):
            fill()
        assert (client.xlen(KEY) - 2) % 3 == 0
        client.config_set("maxmemory", 0)
        stream.append([b"last"])
