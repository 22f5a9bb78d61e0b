"""Two data centres, each with an engine and nodes, and a way between that is cut."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from interlock import SharedTable
from tests.client.connection.proxy import Proxy, proxied
from tests.cluster.node.test_node import client, increased
from tests.cluster.node.test_operating import page
from tests.cluster.nodes import NodeProcess, Presence, eventually
from tests.hub.servers import needs_hub, redis_server

OTHERS = {"east": "west", "west": "east"}


class Two:
    """Both of them, east and west, with an engine and a node each."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack, self._folder = stack, folder
        self.engines: dict[str, ExitStack] = {}
        self.ports: dict[str, int] = {}
        self.ways: dict[str, Proxy] = {}
        self.nodes: dict[str, NodeProcess] = {}
        for dc in OTHERS:
            (folder / f"{dc}-engine").mkdir()
            engine = self.engines[dc] = stack.enter_context(ExitStack())
            _, self.ports[dc] = engine.enter_context(redis_server(folder / f"{dc}-engine"))
        for dc, other in OTHERS.items():
            self.ways[dc] = stack.enter_context(proxied("127.0.0.1", self.ports[other]))
            self.start(dc)
        for node in self.nodes.values():
            node.wait()

    def start(self, dc: str, name: str = "") -> NodeProcess:
        link = f"{OTHERS[dc]}=redis://127.0.0.1:{self.ways[dc].port}"
        url, name = f"redis://127.0.0.1:{self.ports[dc]}", name or dc
        node = NodeProcess(name, url, self._folder, "--dc", dc, "--link", link)
        self._stack.callback(node.close)
        self.nodes[dc] = node
        return node

    def lose_all(self, dc: str) -> None:
        """Its engine ends, and begins with nothing."""
        self.engines[dc].close()
        folder = self._folder / f"{dc}-engine"
        self.engines[dc].enter_context(redis_server(folder, wanted=self.ports[dc]))

    def cut(self) -> None:
        for way in self.ways.values():
            way.refuse = True
            way.cut()

    def heal(self) -> None:
        for way in self.ways.values():
            way.refuse = False

    def shown(self) -> list[dict[Any, Presence]]:
        found = []
        for node in self.nodes.values():
            path = self._folder / node.name
            with SharedTable.open(path, Presence, capacity=10_000) as table:
                found.append(dict(table.items()))
        return found

    def same(self, wanted: Any) -> None:
        """Wait until both show the same rows, with these counters."""

        def is_so() -> bool:
            east, west = self.shown()
            return east == west and {key: row.unread for key, row in east.items()} == wanted

        logs = [node.log for node in self.nodes.values()]
        eventually(is_so, lambda: f"{self.shown()} {wanted} {logs}")


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    needs_hub()
    with ExitStack() as stack:
        yield Two(stack, tmp_path)


def test_both_data_centres_merge_writes_made_while_disconnected(two: Two) -> None:
    east, west = two.nodes["east"], two.nodes["west"]
    increased(east, "alice", 10)
    two.same({"alice": 10})
    two.cut()
    for _ in range(20):
        increased(east, "alice")
        increased(west, "alice", 2)
    increased(east, "east")
    increased(west, "west")
    with client(east) as one:
        one.hset("presence:gone", "app_id", 1)
        one.delete("presence:gone")
    eventually(lambda: "the link to data centre west is cut" in east.log)
    assert 'interlock_node_link_cut{dc="west"} 1' in page(east, "/metrics")[1]
    two.heal()
    two.same({"alice": 70, "east": 1, "west": 1})
    increased(west, "alice")
    two.same({"alice": 71, "east": 1, "west": 1})
    eventually(lambda: 'interlock_node_link_cut{dc="west"} 0' in page(east, "/metrics")[1])


def test_sums_are_exact_and_deletes_win_over_random_writes_and_cuts(two: Two) -> None:
    chance, wanted = random.Random(27), dict.fromkeys("abcdefgh", 0)
    for _ in range(6):
        for _ in range(25):
            key, by = chance.choice("abcdefgh"), chance.randrange(1, 9)
            increased(two.nodes[chance.choice(["east", "west"])], key, by)
            wanted[key] += by
        if chance.random() < 0.5:
            two.cut()
        else:
            two.heal()
    two.heal()
    two.same({key: value for key, value in wanted.items() if value})
    two.cut()
    with client(two.nodes["east"]) as one:
        one.delete("presence:a")
    increased(two.nodes["west"], "a")
    two.heal()
    del wanted["a"]
    two.same({key: value for key, value in wanted.items() if value})
    # Nothing goes to and fro that both have.
    for dc, port in two.ports.items():
        with Redis(port=port) as engine:
            assert engine.xlen(f"il:log:{{presence.{dc}}}") < 2000


def test_a_data_centre_that_lost_everything_is_restored_from_the_other(two: Two) -> None:
    for _ in range(5):
        increased(two.nodes["east"], "n")
        increased(two.nodes["west"], "n")
    two.same({"n": 10})
    two.nodes["east"].kill()
    two.lose_all("east")
    # Another machine, with none of the files of the first.
    two.start("east", "east2").wait()
    two.same({"n": 10})
    increased(two.nodes["east"], "n")
    increased(two.nodes["west"], "n")
    two.same({"n": 12})


def test_entries_of_the_other_data_centre_lost_by_an_engine_are_sent_again(two: Two) -> None:
    increased(two.nodes["west"], "n", 3)
    two.same({"n": 3})
    two.nodes["west"].kill()
    two.lose_all("east")
    increased(two.nodes["east"], "m", 1)
    two.start("west").wait()
    two.same({"n": 3, "m": 1})


def test_another_node_takes_over_the_link_when_its_sender_ends(two: Two) -> None:
    increased(two.nodes["east"], "n")
    two.same({"n": 1})
    first = two.nodes["east"]
    second = two.start("east", "east2")
    second.wait()
    increased(second, "n")
    two.same({"n": 2})
    first.kill()
    increased(second, "n")
    two.same({"n": 3})
