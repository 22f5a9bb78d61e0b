"""Two data centres, each with an engine and a node of its own, and a way between that is cut."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from tests.cluster.nodes import NodeProcess, eventually
from tests.cluster.test_node import client, status
from tests.engine.proxy import Proxy, proxied
from tests.hub.servers import needs_hub, redis_server


class Two:
    """Both of them: east and west."""

    def __init__(self, stack: ExitStack, folder: Path, keep: int = 50) -> None:
        ports = {}
        for dc in ("east", "west"):
            engine = folder / f"{dc}-engine"
            engine.mkdir()
            _, ports[dc] = stack.enter_context(redis_server(engine))
        self.ways: dict[str, Proxy] = {}
        self.nodes: dict[str, NodeProcess] = {}
        self.engines = {dc: f"redis://127.0.0.1:{port}" for dc, port in ports.items()}
        for dc, other in (("east", "west"), ("west", "east")):
            way = self.ways[dc] = stack.enter_context(proxied("127.0.0.1", ports[other]))
            link = f"{other}=redis://127.0.0.1:{way.port}"
            flags = ("--dc", dc, "--link", link, "--keep", str(keep))
            node = self.nodes[dc] = NodeProcess(dc, self.engines[dc], folder, *flags)
            stack.callback(node.close)
        for node in self.nodes.values():
            node.wait()
        for node in self.nodes.values():
            eventually(lambda: status(node)["role"] == "primary")  # noqa: B023

    def cut(self) -> None:
        """Neither hears of the other."""
        for way in self.ways.values():
            way.refuse = True
            way.cut()

    def heal(self) -> None:
        for way in self.ways.values():
            way.refuse = False

    def both(self, check: Any) -> None:
        """Wait until something is so of both."""
        for node in self.nodes.values():
            with client(node) as asked:
                eventually(lambda: check(asked), lambda: node.log)  # noqa: B023


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    needs_hub()
    with ExitStack() as stack:
        yield Two(stack, tmp_path)


def test_both_add_up_what_was_written_while_they_were_cut_apart(two: Two) -> None:
    with client(two.nodes["east"]) as east, client(two.nodes["west"]) as west:
        east.hset("presence:alice", mapping={"app_id": 1, "unread": 10})
        two.both(lambda asked: asked.hget("presence:alice", "unread") == "10")
        two.cut()
        for _ in range(20):
            east.hincrby("presence:alice", "unread", 1)
            west.hincrby("presence:alice", "unread", 2)
        west.hset("presence:alice", "app_id", 2)
        east.hset("presence:east", "app_id", 1)
        west.hset("presence:west", "app_id", 1)
        east.hset("presence:gone", "app_id", 1)
        east.delete("presence:gone")
        eventually(lambda: status(two.nodes["east"])["links"][0]["state"] == "cut")
        # Longer than the streams are kept: the rest comes by a copy of all rows.
        for dc in two.engines.values():
            with Redis.from_url(dc) as engine:
                engine.xtrim("il:stream:{presence}", maxlen=1, approximate=False)
        two.heal()
        two.both(lambda asked: asked.hget("presence:alice", "unread") == "70")
        two.both(lambda asked: asked.hget("presence:alice", "app_id") == "2")
        two.both(lambda asked: asked.exists("presence:east", "presence:west") == 2)
        two.both(lambda asked: not asked.exists("presence:gone"))
        # And it goes on.
        east.hincrby("presence:alice", "unread", 1)
        two.both(lambda asked: asked.hget("presence:alice", "unread") == "71")


def test_a_delete_wins_over_what_is_changed_at_the_same_time(two: Two) -> None:
    with client(two.nodes["east"]) as east, client(two.nodes["west"]) as west:
        east.hset("presence:alice", "unread", 3)
        two.both(lambda asked: asked.exists("presence:alice"))
        two.cut()
        east.delete("presence:alice")
        west.hincrby("presence:alice", "unread", 1)
        two.heal()
        two.both(lambda asked: not asked.exists("presence:alice"))
        # Who makes it anew begins at nothing, wherever.
        assert west.hincrby("presence:alice", "unread", 1) == 1
        two.both(lambda asked: asked.hget("presence:alice", "unread") == "1")


def test_a_new_primary_goes_on_where_the_last_one_was(two: Two, tmp_path: Path) -> None:
    with client(two.nodes["west"]) as west:
        for _ in range(10):
            west.hincrby("presence:n", "unread", 1)
        flags = ("--dc", "east", "--link", f"west={two.engines['west']}")
        other = NodeProcess("east2", two.engines["east"], tmp_path, *flags)
        try:
            other.wait()
            eventually(lambda: status(other)["role"] == "replica")
            two.nodes["east"].kill()
            eventually(lambda: status(other)["role"] == "primary")
            for _ in range(10):
                west.hincrby("presence:n", "unread", 1)
            with client(other) as asked:
                eventually(lambda: asked.hget("presence:n", "unread") == "20")
        finally:
            other.close()
