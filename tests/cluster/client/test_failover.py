"""A client over real nodes: it reads its own writes, and continues when nodes die."""

from __future__ import annotations

import asyncio
import signal
import threading

import interlock
from interlock.client.faces.table import RemoteTable
from interlock.errors import EngineUnavailable
from tests.cluster.nodes import NodeCluster, Presence, eventually


class Writer:
    """A thread that writes and reads what it wrote; sums and losses are counted."""

    def __init__(self, url: str, key: str, timeout: float = 30) -> None:
        self.key = key
        self.sums = 0
        self.unknown = 0
        self.turns = 0
        self.failures: list[BaseException] = []
        self.home = ""
        self._ends = threading.Event()
        self._client = interlock.connect(f"{url}?timeout={timeout}")
        self.table: RemoteTable[Presence] = self._client.table("presence", Presence)
        self.table[key] = Presence(app_id=0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                self.turns += 1
                self.table.patch(self.key, app_id=self.turns)
                assert self.table[self.key].app_id == self.turns, "its own write was not read"
                try:
                    self.table.incr(self.key, "unread")
                    self.sums += 1
                except EngineUnavailable as error:
                    if not error.unknown:
                        raise
                    self.unknown += 1
        except BaseException as error:
            self.failures.append(error)

    def goes_on(self) -> None:
        """Wait until it has done some more."""
        turns = self.turns
        eventually(lambda: self.turns > turns + 5 or self.failures)

    def end(self) -> None:
        self._ends.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.failures:
            raise self.failures[0]
        self._client.close()


def test_a_client_sees_no_error_when_nodes_die(nodes: NodeCluster) -> None:
    writers = [Writer(nodes.url, f"k{n}") for n in range(3)]
    for name in ("a1", "a2"):
        for writer in writers:
            writer.goes_on()
        nodes.nodes[name].kill()
        for writer in writers:
            writer.goes_on()
        nodes.heal()
    for writer in writers:
        writer.end()
    with interlock.connect(nodes.url) as client:
        table = client.table("presence", Presence)
        # The node that answers may be one entry behind the one that wrote.
        eventually(lambda: all(table[one.key].app_id == one.turns for one in writers))
        for writer in writers:
            found = table[writer.key]
            assert writer.sums <= found.unread <= writer.sums + writer.unknown


def test_a_client_leaves_a_node_that_hangs(nodes: NodeCluster) -> None:
    # A call waits a quarter of its time for the node that hangs.
    writer = Writer(nodes.url, "k", timeout=12)
    writer.goes_on()
    for node in nodes.nodes.values():
        node.process.send_signal(signal.SIGSTOP)
        writer.goes_on()
        node.process.send_signal(signal.SIGCONT)
        writer.goes_on()
    writer.end()
    # The node that hung last may be behind.
    with interlock.connect(f"{nodes.url}?linearizable=1") as client:
        unread = client.table("presence", Presence)["k"].unread
        assert writer.sums <= unread <= writer.sums + writer.unknown


def test_an_asyncio_client_fails_over_too(nodes: NodeCluster) -> None:
    async def main() -> None:
        async with interlock.connect(f"{nodes.url}?timeout=30") as client:
            table = client.table("presence", Presence)
            for n in range(50):
                await table.set("k", Presence(app_id=n))
                found = await table.get("k")
                assert found is not None and found.app_id == n
                if n == 20:
                    await asyncio.to_thread(nodes.nodes["a3"].kill)

    asyncio.run(main())


def test_queues_of_the_engine_can_be_used_by_the_cluster_url(nodes: NodeCluster) -> None:
    with interlock.connect(nodes.url) as client:
        queue = client.queue("jobs")
        queue.put("job", keys=["k"])
        with queue.get(timeout=20) as job:
            assert job == "job"
