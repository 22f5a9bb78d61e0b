"""The parts of a node, in this process: all of them are closed where one cannot start."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

import interlock
from interlock import SharedTable, _core
from interlock.cluster.node import Node, folder_of
from interlock.cluster.settings import NodeSettings
from interlock.errors import NotATable
from interlock.table.schema import Schema
from tests.cluster.nodes import Presence, eventually
from tests.hub.servers import needs_hub, redis_server


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[str]:
    needs_hub()
    folder = tmp_path / "engine"
    folder.mkdir()
    with redis_server(folder) as (_, port):
        yield f"redis://127.0.0.1:{port}"


def made(folder: Path, cluster: str, **more: Any) -> Node:
    """A node with all that one may have; always at the same place."""
    settings = NodeSettings(
        table="presence", row=Presence, cluster=cluster, name="a", capacity=100,
        links={"west": "redis://127.0.0.1:1"}, databases=(f"sqlite://{folder}/rows.sqlite",),
        **more,
    )  # fmt: skip
    place = folder / "table"
    shared = SharedTable.open(place, Presence, capacity=100, on_full="raise", keeper=True)
    keeper = _core.TableKeeper()
    declared = {
        "name": "presence", "columns": str(Schema.of(Presence)), "capacity": 100, "key_size": 32,
        "on_full": "raise", "path": str(place),
    }  # fmt: skip
    hub = interlock.Hub(port=0, workers=1, table=[declared], keepers={"presence": keeper})
    data = folder_of(settings, str(folder / "data"))
    return Node(settings, hub, keeper, shared, place=place, mode=0o600, folder=data)


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith(("node", "hub"))]


def write_and_close(node: Node, expected: int) -> None:
    """Have a node raise a counter once, and close it."""
    before = threads()
    node.start()
    try:
        with Redis(port=node.hub.port, socket_timeout=20) as client:
            eventually(lambda: client.hincrby("presence:k", "unread", 1) == expected)
    finally:
        node.close()
    assert threads() == before


@pytest.mark.parametrize(
    "name",
    ["node-membership", "node-database-0", "node-link-west", "node-commands", "node-snapshots",
     "node-watch"],
)  # fmt: skip
def test_parts_already_started_are_closed_if_the_next_cannot_start(
    name: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = threading.Thread.start
    ports: list[int] = []

    def start(thread: threading.Thread) -> None:
        if thread.name == name:
            ports.append(node.hub.port)
            raise RuntimeError("can't start new thread")
        begin(thread)

    before = threads()
    node = made(tmp_path, engine)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            node.start()
    assert threads() == before
    (port,) = ports
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)
    # Its folder and its table are free for another.
    write_and_close(made(tmp_path, engine), 1)


def test_a_node_closes_if_its_engine_cannot_store_announcements(tmp_path: Path) -> None:
    needs_hub()
    before = threads()
    with interlock.Hub(port=0, workers=1) as hub:
        stream = "redis://127.0.0.1:1"
        node = made(tmp_path, f"interlock://{hub.addresses[0]}", stream=stream)
        with pytest.raises(NotATable, match="nodes"):
            node.start()
    assert threads() == before
