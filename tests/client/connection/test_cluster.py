"""The client on a Redis Cluster of six servers, and through a failover."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from interlock import EngineUnavailable, LeaseLost, Retry, connect
from interlock.client.admin.operator import Operator
from interlock.client.admin.server import Server
from interlock.client.connection.routing import slot_of
from interlock.client.faces.client import Client
from interlock.client.request import Refused
from tests.client.connection.nodes import cluster, eventually
from tests.support import put_together

pytestmark = pytest.mark.watchdog(120)
AT_ONCE = Retry(attempts=None, first=0)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[int]]:
    with cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def url(ports: list[int], timeout: float = 20) -> str:
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"redis+cluster://{hosts}?timeout={timeout}"


def test_the_slot_of_a_key_is_computed_as_redis_does(ports: list[int]) -> None:
    with redis.Redis(port=ports[0]) as node:
        for name in ("orders", "a", "é"):
            assert slot_of(f"il:{{{name}}}") == node.execute_command("CLUSTER", "KEYSLOT", name)


def test_queues_are_spread_over_all_primaries_and_found(ports: list[int]) -> None:
    with connect(url(ports[:1])) as client:
        names = [f"{uuid.uuid4().hex}-{n}" for n in range(24)]
        for name in names:
            queue = client.queue(name, maxsize=10)
            queue.put(name, keys="k")
            with queue.get(timeout=20) as payload:
                assert payload == name
        used = set(client._engine.servers)
    assert used == {f"127.0.0.1:{port}" for port in ports[:3]}


def test_the_asyncio_client_finds_queues_on_all_primaries(ports: list[int]) -> None:
    async def main() -> None:
        async with connect(url(ports[3:4])) as client:
            for n in range(12):
                queue = client.queue(f"{uuid.uuid4().hex}-{n}")
                await queue.put(n)
                async with await queue.get(timeout=20) as payload:
                    assert payload == n

    asyncio.run(main())


def name_on(primary: int) -> str:
    """A new queue's name, of the first or the second primary."""
    names = (uuid.uuid4().hex for _ in range(1_000))
    return next(name for name in names if slot_of(f"il:{{{name}}}") // 5461 == primary)


def calls_of(ports: list[int]) -> int:
    """The number of functions that the primaries have carried out."""
    found = 0
    for port in ports[:3]:
        with redis.Redis(port=port) as node:
            stats: Any = node.info("commandstats")
            found += stats.get("cmdstat_fcall", {"calls": 0})["calls"]
    return found


@pytest.mark.parametrize("face", ["threads", "tasks"])
def test_puts_sent_together_follow_a_queue_that_has_moved_and_are_put_once(
    ports: list[int], face: str
) -> None:
    name = name_on(0)
    for port in ports:
        with redis.Redis(port=port) as node:
            # On a busy machine a replica would take over otherwise.
            node.config_set("cluster-node-timeout", 60_000)
    with connect(url(ports)) as client:
        # It learns which server has which slots, and installs the functions on both.
        for primary in (0, 1):
            client.queue(name_on(primary)).put("first")
        with redis.Redis(port=ports[1]) as node:
            receiver = node.execute_command("CLUSTER", "MYID")
        for port in (ports[1], ports[0], ports[2]):
            with redis.Redis(port=port) as node:
                move = ("SETSLOT", slot_of(f"il:{{{name}}}"), "NODE", receiver)
                node.execute_command("CLUSTER", *move)
        before = calls_of(ports)
        queue = client.queue(name, linger=2, slow_wait=0, warn_depth=0, warn_lane_depth=0)
        ids = put_together(queue, face, 5)
        assert len(set(ids)) == 5
        assert calls_of(ports) == before + 1
        assert client._engine.nodes.known(queue._handle.key) == f"127.0.0.1:{ports[1]}"
        leases = queue.get_many(10, timeout=20)
        assert sorted(lease.payload for lease in leases) == [0, 1, 2, 3, 4]
        for lease in leases:
            lease.ack()


def replicated(primary: redis.Redis, name: str) -> None:
    """Wait until the replica has all that was written so far."""
    # WAIT is for what its own connection wrote, and so for all before it.
    primary.set(f"{{{name}}}:written", 1)
    assert primary.wait(1, 10_000) == 1


def test_a_failover_loses_no_acknowledged_order_and_repeats_no_token(
    tmp_path: Path,
) -> None:
    with cluster(tmp_path) as ports, connect(url(ports)) as client:
        # A queue of the first primary.
        name = next(n for n in map(str, range(10_000)) if slot_of(f"il:{{{n}}}") < 5461)
        queue = client.queue(name, retry=AT_ONCE)
        ids = [queue.put(n, keys="k") for n in range(5)]
        lease = queue.get()
        tokens = [lease.token]
        with redis.Redis(port=ports[0]) as primary, redis.Redis(port=ports[3]) as replica:
            replicated(primary, name)
            process = primary.info("server")["process_id"]
            os.kill(process, signal.SIGKILL)
            eventually(lambda: replica.info("replication")["role"] == "master")
            # State of the replica: the lease and all that waits, in order. A get goes through as
            # soon as the rest of the cluster knows who took over.
            lease.ack()
            handled = []
            for _ in range(4):
                with queue.get(timeout=20) as payload:
                    handled.append(payload)
            assert handled == [1, 2, 3, 4]
            again = queue.put("after")
            assert again > max(ids)
            last = queue.get(timeout=20)
            assert last.token > max(tokens)
            last.ack()


def test_messages_lost_by_a_failover_are_reported(tmp_path: Path) -> None:
    with cluster(tmp_path) as ports, connect(url(ports)) as client:
        name = next(n for n in map(str, range(10_000)) if slot_of(f"il:{{{n}}}") < 5461)
        queue = client.queue(name, retry=AT_ONCE)
        queue.put("replicated", keys="k")
        with redis.Redis(port=ports[0]) as primary, redis.Redis(port=ports[3]) as replica:
            replicated(primary, name)
            # From here on nothing reaches the replica.
            replicating = replica.info("server")["process_id"]
            os.kill(replicating, signal.SIGSTOP)
            primary.client_kill_filter(_type="replica")
            lost = queue.get()
            unseen = queue.put("never replicated")
            os.kill(primary.info("server")["process_id"], signal.SIGKILL)
            os.kill(replicating, signal.SIGCONT)
            eventually(lambda: replica.info("replication")["role"] == "master")
            # The new primary knows of no lease and gives the message again, under a higher token.
            again = queue.get(timeout=20)
            assert (again.payload, again.id) == ("replicated", lost.id)
            assert again.token > lost.token
            with pytest.raises(LeaseLost):
                lost.ack()
            again.ack()
            with pytest.raises(KeyError):
                queue.explain(unseen)


def test_a_cluster_without_a_reachable_node_is_named_in_the_error() -> None:
    with (
        connect("redis+cluster://127.0.0.1:1,127.0.0.1:2?timeout=0.3") as client,
        pytest.raises(EngineUnavailable, match=r"127\.0\.0\.1:1"),
    ):
        client.queue("orders").put(1)


def test_pipelined_calls_follow_a_queue_whose_node_died(ports: list[int]) -> None:
    with connect(url(ports[:1])) as client:
        operator, name = Operator(Server(client)), uuid.uuid4().hex
        client.queue(name).put(1)
        nodes = client._engine.nodes
        # As after a failover: the cached slots name a server that no longer exists.
        nodes._ranges = [(0, 16383, "127.0.0.1:1")]
        with pytest.raises(EngineUnavailable, match=r"127\.0\.0\.1:1"):
            operator.each("stats", [name])
        (reply,) = operator.each("stats", [name])
        assert not isinstance(reply, Refused) and reply


def test_a_cluster_node_addressed_as_a_single_server_suggests_the_cluster_url(
    ports: list[int],
) -> None:
    def put_everywhere(client: Client) -> None:
        # Each has a third of the slots.
        for number in range(20):
            client.queue(f"one-of-three-{number}").put(1)

    with (
        connect(f"redis://127.0.0.1:{ports[0]}?timeout=20") as client,
        pytest.raises(EngineUnavailable, match=r"MOVED .*redis\+cluster://HOST:PORT finds all"),
    ):
        put_everywhere(client)
