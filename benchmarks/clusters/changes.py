"""Changes through one node, and entries into a bare stream of the same engine, from as many
threads by the same client."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from typing import Any

import redis

from benchmarks.clusters.nodes import TABLE, Cluster, Node
from benchmarks.drive import Clock
from benchmarks.row import Sample
from benchmarks.servers import cpu_seconds

CHANGES = int(os.environ.get("INTERLOCK_CLUSTER_CHANGES", "200000"))
BATCH = 100
COLUMNS = ("app_id", "unread", "background", "token")
STREAM = "bare"
WRITERS = 4
COUNTERS = 16
"""Connections: of whole rows, and of increments."""
_BASES = itertools.count(0, CHANGES)


def rows_set(cluster: Cluster) -> Sample:
    """Measure TABLE MSET of 100 rows a call, 4 connections: ns of one row."""
    node = cluster.nodes[0]
    # Others than those before: a row that stays as it is would be seen too.
    base = next(_BASES)

    def turns(number: int) -> Callable[[Any], None]:
        head = ("TABLE", "MSET", TABLE, len(COLUMNS), *COLUMNS)
        calls = []
        for first in range(number * BATCH, CHANGES, WRITERS * BATCH):
            words: list[Any] = []
            for row in range(first, first + BATCH):
                words += (key(row), 666, base + row, 0, token(row))
            calls.append((*head, *words))

        def run(client: Any) -> None:
            for call in calls:
                if client.execute_command(*call) != BATCH:
                    raise RuntimeError("a call of TABLE MSET did not set all its rows")

        return run

    sample = _measure(node, node.server.port, turns, WRITERS)
    with node.rows() as rows:
        wrong = sum(rows.get_column(key(row), "unread") != base + row for row in range(CHANGES))
    return Sample(sample.value, sample.messages, wrong, details=sample.details)


def columns_raised(cluster: Cluster) -> Sample:
    """Measure HINCRBY, 16 connections with 100 calls in a pipeline: ns of one."""
    node = cluster.nodes[0]
    count = CHANGES // 4

    def turns(number: int) -> Callable[[Any], None]:
        numbers = range(number * BATCH, count, COUNTERS * BATCH)

        def run(client: Any) -> None:
            for first in numbers:
                pipe = client.pipeline(transaction=False)
                for row in range(first, first + BATCH):
                    pipe.execute_command("HINCRBY", f"{TABLE}:{key(row % 10_000)}", "unread", 1)
                pipe.execute()

        return run

    before = _sum(node)
    sample = _measure(node, node.server.port, turns, COUNTERS, count)
    lost = abs(count - (_sum(node) - before))
    return Sample(sample.value, count, lost, details=sample.details)


def entries_added(cluster: Cluster, writers: int = WRITERS) -> Sample:
    """Measure XADD, pipelines of 100: ns of one entry, with the bytes of a row's change."""

    def turns(number: int) -> Callable[[Any], None]:
        numbers = range(number * BATCH, CHANGES, writers * BATCH)

        def run(client: Any) -> None:
            for first in numbers:
                pipe = client.pipeline(transaction=False)
                for row in range(first, first + BATCH):
                    pipe.execute_command("XADD", STREAM, "*", "e", entry(row))
                pipe.execute()

        return run

    with redis.Redis(port=cluster.engine.port) as client:
        client.delete(STREAM)
        sample = _measure(cluster.nodes[0], cluster.engine.port, turns, writers)
        lost = CHANGES - int(client.xlen(STREAM))
        client.delete(STREAM)
    return Sample(sample.value, CHANGES, lost, details=sample.details)


def increments_added(cluster: Cluster) -> Sample:
    """Measure the same by as many connections as increments have, 16."""
    return entries_added(cluster, COUNTERS)


def _measure(
    node: Node,
    port: int,
    turns: Callable[[int], Callable[[Any], None]],
    writers: int,
    count: int = CHANGES,
) -> Sample:
    clients = [redis.Redis(port=port, single_connection_client=True) for _ in range(writers)]
    runs = [turns(number) for number in range(writers)]
    faults: list[BaseException] = []

    def work(run: Callable[[Any], None], client: Any) -> None:
        try:
            run(client)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=each) for each in zip(runs, clients, strict=True)]
    used, clock = cpu_seconds(node.server), Clock()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds, used = clock.seconds(), cpu_seconds(node.server) - used
    for client in clients:
        client.close()
    if faults:
        raise faults[0]
    details = {"node_cpu_ns": used / count * 1e9}
    return Sample(seconds / count * 1e9, count, details=details)


def _sum(node: Node) -> int:
    with node.rows() as rows:
        found = rows.get_many([key(row) for row in range(10_000)], "unread")
        return sum(value or 0 for value in found)


def key(row: int) -> str:
    """Return a user's id."""
    return str(300_000_000 + row)


def token(row: int) -> str:
    """Return a device token of 64 letters."""
    return f"{row:064d}"


def entry(row: int) -> str:
    """Return the bytes of a row with its key."""
    return f"{key(row)}666{row}0{token(row)}"
