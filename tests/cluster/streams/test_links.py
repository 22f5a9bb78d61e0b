"""Two data centres: the log of one is in a Redis, that of the other on each of the engines."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.client.connection.proxy import Proxy, proxied
from tests.cluster.nodes import NodeProcess
from tests.cluster.streams.engines.kafka import Kafka
from tests.cluster.streams.engines.redis import Redis as EngineRedis
from tests.cluster.streams.engines.server import Engine, eventually
from tests.cluster.streams.test_nodes import dc, has, raised, rows
from tests.hub.servers import needs_hub, redis_server

__all__ = ["dc"]


class Two:
    """East, with its log in a Redis, and west, with its log on an engine."""

    def __init__(self, stack: ExitStack, engine: Engine, west: str, folder: Path) -> None:
        self.folder, self.engine = folder, engine
        self.ways: list[Proxy] = []
        (folder / "redis").mkdir()
        _, port = stack.enter_context(redis_server(folder / "redis"))
        url = f"redis://127.0.0.1:{port}"

        def way(port: int) -> int:
            self.ways.append(stack.enter_context(proxied("127.0.0.1", port)))
            return self.ways[-1].port

        near, far = f"redis://127.0.0.1:{way(port)}", engine.url
        if not isinstance(engine, Kafka):
            # Its clients follow the broker's redirections.
            parts = urlsplit(engine.url)
            at = parts.netloc.rpartition(":")[0]
            far = urlunsplit(parts._replace(netloc=f"{at}:{way(engine.port)}"))
        link = ("--link", f"{west}={url}", "--link-stream", f"{west}={far}")
        self.dcs = {"east": ("east", link), "west": (west, ("--link", f"east={near}"))}
        self._stack, self._url = stack, url
        self.east, self.west = self.start("east"), self.start("west")

    def start(self, name: str) -> NodeProcess:
        dc, flags = self.dcs[name]
        if name == "west":
            flags = (*flags, "--stream", self.engine.url)
        node = NodeProcess(name, self._url, self.folder, "--dc", dc, *flags)
        self._stack.callback(node.close)
        node.wait()
        return node

    def cut(self, is_cut: bool) -> None:
        for way in self.ways:
            way.refuse = is_cut
            if is_cut:
                way.cut()

    def same(self, wanted: dict[str, int]) -> None:
        """Wait until both have the same rows, with these counters."""

        def is_so() -> bool:
            east, west = (rows(self.folder, name) for name in ("east", "west"))
            return east == west and {key: row.unread for key, row in east.items()} == wanted

        eventually(
            is_so,
            lambda: (
                f"{wanted} {rows(self.folder, 'east')} {rows(self.folder, 'west')} "
                f"{self.east.log} {self.west.log}"
            ),
        )


@pytest.fixture
def two(engine: Engine, dc: str, tmp_path: Path) -> Iterator[Two]:
    if isinstance(engine, EngineRedis):
        pytest.skip("tests/cluster/test_links.py has two of these")
    needs_hub()
    with ExitStack() as stack:
        yield Two(stack, engine, dc, tmp_path)


@pytest.mark.watchdog(180)
def test_sums_are_exact_over_cuts_and_a_restarted_log_is_sent_everything(two: Two, dc: str) -> None:
    chance, wanted = random.Random(27), dict.fromkeys("abcde", 0)
    for turn in range(4):
        for _ in range(15):
            key, by = chance.choice("abcde"), chance.randrange(1, 9)
            raised(chance.choice([two.east, two.west]), key, by)
            wanted[key] += by
        two.cut(turn % 2 == 0)
    two.cut(is_cut=False)
    two.same({key: value for key, value in wanted.items() if value})
    # The log is lost with all that its nodes have, but for the notes of what was sent.
    two.west.kill()
    two.engine.delete_log("presence", dc)
    for left in two.folder.glob("west*"):
        left.rename(two.folder / f"old-{left.name}")
    two.west = two.start("west")
    two.same({key: value for key, value in wanted.items() if value})
    raised(two.east, "a")
    raised(two.west, "a")
    eventually(partial(has, two.east, "a", wanted["a"] + 2), lambda: two.east.log + two.west.log)
    eventually(partial(has, two.west, "a", wanted["a"] + 2), lambda: two.east.log + two.west.log)
