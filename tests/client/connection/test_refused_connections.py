"""Servers that have no place for one more connection, and others that have no queues at all."""

from __future__ import annotations

import logging
import queue as _queue
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

import interlock
from interlock import EngineUnavailable, InterlockError, connect
from interlock.cli import main
from tests.hub.servers import free_port, needs_hub, redis_program, redis_server

SHORT = 0.3
"""Seconds that a call has which is to fail."""


@contextmanager
def full_redis(folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    with redis_server(folder) as (_, port), redis.Redis(port=port) as admin:
        with connect(f"redis://127.0.0.1:{port}") as client:
            client.queue("q", int).put(1)
        admin.config_set("maxclients", 1)
        yield f"redis://127.0.0.1:{port}", lambda: admin.config_set("maxclients", 100)


@contextmanager
def full_hub(**settings: Any) -> Iterator[tuple[str, Callable[[], object]]]:
    needs_hub()
    with interlock.Hub(port=0, workers=1, **settings) as hub:
        url = f"interlock://{hub.addresses[0]}"
        first = connect(url)
        queue = first.queue("q", int)
        queue.put(1)
        # The connection that it has stays open.
        yield url, first.close


@contextmanager
def full(kind: str, folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    ways: dict[str, Any] = {
        "redis": lambda: full_redis(folder),
        "hub": lambda: full_hub(maxclients=1),
        "address": lambda: full_hub(max_per_address=1),
    }
    with ways[kind]() as (url, mend):
        yield url, mend


KINDS = ("redis", "hub", "address")


@pytest.mark.parametrize("kind", KINDS)
def test_a_put_waits_for_a_free_connection_and_names_the_limit(kind: str, tmp_path: Path) -> None:
    with full(kind, tmp_path) as (url, mend):
        with connect(f"{url}?timeout={SHORT}") as hasty, pytest.raises(EngineUnavailable) as caught:
            hasty.queue("q", int).put(2)
        # Where the server closes before it has read, the system may give the end and not the text.
        said = str(caught.value)
        assert "as many connections as its maxclients" in said or "lost" in said or "rese" in said
        with connect(f"{url}?timeout=20") as client:
            ids: list[int] = []
            sender = threading.Thread(target=lambda: ids.append(client.queue("q", int).put(3)))
            sender.start()
            mend()
            sender.join()
            assert len(ids) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_consumer_waits_for_a_free_connection(kind: str, tmp_path: Path) -> None:
    said: _queue.SimpleQueue[str] = _queue.SimpleQueue()
    heard = logging.Handler()
    heard.emit = lambda record: said.put(record.getMessage())  # type: ignore[method-assign]
    done: _queue.SimpleQueue[int] = _queue.SimpleQueue()
    log = logging.getLogger("interlock.worker")
    log.addHandler(heard)
    try:
        with (
            full(kind, tmp_path) as (url, mend),
            connect(f"{url}?timeout={SHORT}") as client,
            client.queue("q", int).consume(done.put, threads=1),
        ):
            said.get()
            said.get()
            mend()
            assert done.get() == 1
    finally:
        log.removeHandler(heard)


def test_a_sentinel_is_refused_as_an_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    settings = tmp_path / "sentinel.conf"
    settings.write_text(f"port {port}\ndir {tmp_path}\n")
    command = [redis_program(), str(settings), "--sentinel"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as sentinel:
        try:
            url = f"redis://127.0.0.1:{port}"
            with (
                connect(f"{url}?timeout=20") as client,
                pytest.raises(InterlockError, match="the URL must name the primary itself"),
            ):
                # Until it listens that is asked again.
                client.queue("q", int).put(1)
            assert main(["queue", "list", "--url", url]) == 1
            assert "the URL must name the primary itself" in capsys.readouterr().err
        finally:
            sentinel.kill()


def test_a_wait_ended_by_client_unblock_is_repeated(tmp_path: Path) -> None:
    found: list[int] = []
    with (
        redis_server(tmp_path) as (_, port),
        redis.Redis(port=port) as admin,
        connect(f"redis://127.0.0.1:{port}") as client,
    ):
        queue = client.queue("q", int)

        def take() -> None:
            with queue.get(timeout=30) as payload:
                found.append(payload)

        taker = threading.Thread(target=take)
        taker.start()
        ended = 0
        while ended < 3:
            for one in admin.client_list():
                if one["cmd"] == "blpop":
                    ended += int(admin.client_unblock(one["id"], error=True))
        queue.put(7)
        taker.join()
    assert found == [7]
