"""A replica of a Redis that is promoted, and lacks the tail that a reader has read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from interlock.cluster.streams import ChangeStream, PositionLost, StreamUnavailable, open_stream
from tests.cluster.streams.engines import PATIENCE, Redis, eventually
from tests.engine.proxy import Proxy

KEY = "il:stream:{s}"


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Redis, Redis]]:
    """A primary and its replica, in step."""
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
            appender.append([b"one", b"two"])
        other.replicaof("127.0.0.1", str(primary.port))
        eventually(lambda: other.xlen(KEY) == client.xlen(KEY) == 2)
        # Promoted before it has the rest.
        other.replicaof("NO", "ONE")
        client.close()
        yield primary, replica


class at:
    def __init__(self, engine: Redis) -> None:
        self.stream = open_stream(engine.url, "s")

    def __enter__(self) -> ChangeStream:
        return self.stream

    def __exit__(self, *_: object) -> None:
        self.stream.close()


def test_a_tail_that_is_not_there_is_lost(pair: tuple[Redis, Redis]) -> None:
    primary, replica = pair
    with at(primary) as old, at(replica) as new:
        shared = old.last()
        old.append([b"three"])
        lost = old.last()
        assert new.read(shared, 10, 0) == []
        with pytest.raises(PositionLost):
            new.read(lost, 10, 0)
        new.append([b"other"])
        with pytest.raises(PositionLost) as found:
            new.read(lost, 10, 0)
        assert [entry for _, entry in new.read(shared, 10, 0)] == [b"other"]
        assert found.value.last == new.last()


def test_an_id_that_was_given_again_is_another_position(pair: tuple[Redis, Redis]) -> None:
    primary, replica = pair
    with at(primary) as old, at(replica) as new:
        old.append([b"three"])
        lost = old.last()
        with redis.Redis(port=replica.port) as client:
            client.xadd(KEY, {"e": b"other"}, id=lost.partition(".")[0])
        assert new.last().partition(".")[0] == lost.partition(".")[0]
        with pytest.raises(PositionLost):
            new.read(lost, 10, 0)


def test_a_reader_that_is_connected_notices_that_the_log_is_another(
    pair: tuple[Redis, Redis],
) -> None:
    primary, _ = pair
    with at(primary) as reader:
        found = reader.read("", 10, 0)
        assert reader.read(found[-1][0], 10, 0) == []
        with redis.Redis(port=primary.port) as client:
            client.delete(KEY)
            client.xadd(KEY, {"e": b"other"})
        with pytest.raises(PositionLost):
            reader.read(found[-1][0], 10, 0)


def test_what_is_on_its_way_still_is_not_written_behind_its_retry(
    pair: tuple[Redis, Redis],
) -> None:
    primary, _ = pair
    proxy, held, sent = Proxy("127.0.0.1", primary.port), threading.Event(), threading.Event()

    def hold(data: bytes) -> bytes:
        if b"late" in data and not sent.is_set():
            sent.set()
            held.wait(PATIENCE)
        return data

    proxy.requests = hold
    stream = open_stream(f"redis://127.0.0.1:{proxy.port}", "s", timeout=1.0)
    with redis.Redis(port=primary.port) as client:
        stream.append([b"three"])
        with pytest.raises(StreamUnavailable):
            stream.append([b"late"])
        stream.append([b"late"])
        stream.append([b"last"])
        held.set()
        stream.close()
        # It lets go of what it held; then its connections end, and all is written or refused.
        eventually(lambda: client.info("clients")["connected_clients"] == 1)
        found = [fields[b"e"] for _, fields in client.xrange(KEY)]
    assert found == [b"one", b"two", b"three", b"late", b"last"]
    proxy.close()


def test_a_refused_batch_is_written_as_a_whole_or_not_at_all(pair: tuple[Redis, Redis]) -> None:
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
