"""Six servers on loopback that are a Redis Cluster: three primaries, each with a replica."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis

from tests.hub.servers import free_port, redis_server

FLAGS = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--appendonly", "no")
# So that a node logs each packet from another, from which it learns about the cluster.
TALKATIVE = ("--loglevel", "debug")


@contextmanager
def cluster(folder: Path) -> Iterator[list[int]]:
    """The ports; the first three are primaries, the others their replicas, in that order."""
    with ExitStack() as stack:
        ports = []
        for n in range(6):
            own = folder / str(n)
            own.mkdir()
            port = free_port()
            bus = ("--cluster-port", str(free_port()))
            _, taken = stack.enter_context(
                redis_server(own, *FLAGS, *TALKATIVE, *bus, wanted=port, heard=NEWS.heard)
            )
            ports.append(taken)
        nodes: list[Any] = [stack.enter_context(redis.Redis(port=port)) for port in ports]
        ids: list[Any] = [node.execute_command("CLUSTER", "MYID") for node in nodes]
        bounds = (0, 5461, 10923, 16384)
        for n in range(3):
            slots = (bounds[n], bounds[n + 1] - 1)
            nodes[n].execute_command("CLUSTER", "ADDSLOTSRANGE", *slots)
        for node in nodes:
            for other in nodes:
                if other is not node:
                    meet(node, other)
        eventually(lambda: all(_known(node) == 6 for node in nodes))
        for primary, replica in zip(ids[:3], nodes[3:], strict=True):
            replica.execute_command("CLUSTER", "REPLICATE", primary)
        eventually(lambda: all(_works(node) for node in nodes))
        eventually(lambda: all(_linked(node) for node in nodes[3:]))
        yield ports


def meet(node: Any, other: Any) -> None:
    port = other.get_connection_kwargs()["port"]
    bus: Any = other.config_get("cluster-port")
    node.execute_command("CLUSTER", "MEET", "127.0.0.1", port, bus["cluster-port"])


class News:
    """A sign that a server has said something: each step of a cluster is a line of a node's log."""

    def __init__(self) -> None:
        self._count = 0
        self._more = threading.Condition()

    def heard(self) -> None:
        with self._more:
            self._count += 1
            self._more.notify_all()

    def count(self) -> int:
        return self._count

    def beyond(self, count: int, until: float) -> bool:
        """There is more than that; False: it is `until`, by the monotonic clock."""
        with self._more:
            left = max(until - time.monotonic(), 0)
            return self._more.wait_for(lambda: self._count > count, left)


NEWS = News()
"""News of all clusters."""


def eventually(true: Callable[[], bool], limit: float = 30) -> None:
    """Until the servers have agreed among themselves; looks again when one has said something."""
    until = time.monotonic() + limit
    while True:
        before = NEWS.count()
        with contextlib.suppress(redis.RedisError):
            if true():
                return
        assert NEWS.beyond(before, until), "the cluster did not come to that"


def _known(node: Any) -> int:
    told: Any = node.execute_command("CLUSTER", "NODES")
    return sum(b"handshake" not in line for line in told.splitlines())


def _works(node: Any) -> bool:
    told: Any = node.execute_command("CLUSTER", "INFO")
    return b"cluster_state:ok" in told


def _linked(node: Any) -> bool:
    info: Any = node.info("replication")
    return bool(info["role"] == "slave" and info["master_link_status"] == "up")
