"""The state table across machines, all nodes on this one: beside a stream of the engine that it
rests on, a table without a cluster, and COPY of the database behind it."""

from __future__ import annotations

import atexit
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache

from benchmarks.clusters.changes import (
    columns_raised,
    entries_added,
    increments_added,
    key,
    rows_set,
    token,
)
from benchmarks.clusters.coldstart import ROWS as COLD_ROWS
from benchmarks.clusters.coldstart import copied, filled, loaded
from benchmarks.clusters.nodes import TABLE, Cluster, Node, Presence, cluster, until
from benchmarks.clusters.pipelined import added, raised
from benchmarks.clusters.visible import entry_to_reader, row_to_node
from benchmarks.drive import Clock, pinned
from benchmarks.row import Row, Sample, alternating
from benchmarks.servers import LOAD_CORE
from interlock import SharedTable

HEADING = "State table across machines"
HOPS = int(os.environ.get("INTERLOCK_CLUSTER_HOPS", "2000"))
READ = 100_000
"""Rows of the tables that are read."""
READS = 300_000
SLOWLY = 0.02
"""Seconds between two changes while a replica is read."""

_KEPT = ExitStack()
atexit.register(_KEPT.close)


@cache
def kept(count: int, core: int | None = None) -> Cluster:
    """Return nodes that this process starts once."""
    return _KEPT.enter_context(cluster(count, core=core))


def on(count: int, side: Callable[[Cluster], Sample]) -> Callable[[], Sample]:
    """Return a side of a row, on this number of nodes."""
    return lambda: side(kept(count))


@cache
def database() -> str:
    """Return the URL of a database with its rows, which this process makes once."""
    return _KEPT.enter_context(filled())


@cache
def read_at() -> tuple[Cluster, SharedTable[Presence]]:
    """Return nodes with rows, and a table of this process that has the same."""
    nodes = kept(2, LOAD_CORE)
    name = f"bench-{uuid.uuid4().hex}"
    local = SharedTable.open(name, Presence, capacity=200_000)
    _KEPT.callback(SharedTable.remove, name)
    columns = ("app_id", "unread", "background", "token")
    with nodes.nodes[0].client() as client:
        for first in range(0, READ, 500):
            words: list[object] = []
            for row in range(first, first + 500):
                words += (key(row), 666, row, 0, token(row))
                local[key(row)] = Presence(
                    app_id=666, unread=row, background=False, token=token(row)
                )
            client.execute_command("TABLE", "MSET", TABLE, len(columns), *columns, *words)
    with nodes.nodes[1].rows() as rows:
        until(lambda: len(rows) == READ)
    return nodes, local


def reads(table: SharedTable[Presence]) -> Sample:
    """Measure one column of rows in a random order: ns of one."""
    wanted = [row % READ for row in random.sample(range(READS), READS)]
    keys = [key(row) for row in wanted]
    get = table.get_column
    with pinned():
        clock = Clock()
        found = [get(one, "unread") for one in keys]
        seconds = clock.seconds()
    # The changing ones are not among them.
    wrong = sum(value != row for value, row in zip(found, wanted, strict=True))
    return Sample.each(seconds, READS, lost=wrong)


def node_reads() -> Sample:
    """Measure a node's table while changes come."""
    nodes, _ = read_at()
    with changing(nodes.nodes[0]), nodes.nodes[1].rows() as rows:
        return reads(rows)


def local_reads() -> Sample:
    """Measure a table that no other process has open."""
    return reads(read_at()[1])


@contextmanager
def changing(node: Node) -> Iterator[None]:
    """Change rows all the time, slowly."""
    ends = threading.Event()

    def change() -> None:
        with node.client() as client:
            while not ends.wait(SLOWLY):
                row = random.randrange(READ)
                client.execute_command("HSET", f"{TABLE}:{key(row)}", "app_id", time.time_ns() % 99)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


ROWS = (
    Row(
        name="cluster/visible",
        title="a change at one node, seen in another's table, p50",
        table=HEADING,
        peer="one hop through a Redis stream, redis-py",
        bar=1.5,
        unit="µs",
        unseen=False,
        pair=alternating(on(2, lambda nodes: row_to_node(nodes, HOPS)),
                         on(2, lambda nodes: entry_to_reader(nodes, HOPS))),
    ),
    Row(
        name="cluster/set-rows",
        title="whole rows through one node, 100 a call, 4 connections",
        table=HEADING,
        peer="XADD in pipelines of 100, 4 connections",
        bar=0.5,
        judged="times",
        pair=alternating(on(1, rows_set), on(1, entries_added)),
    ),
    Row(
        name="cluster/incr",
        title="HINCRBY through one node, pipelines of 100, 16 connections",
        table=HEADING,
        peer="XADD in pipelines of 100, 16 connections",
        bar=0.5,
        judged="times",
        pair=alternating(on(1, columns_raised), on(1, increments_added)),
    ),
    *(
        Row(
            name=f"cluster/incr-{connections}x{pipeline}",
            title=f"HINCRBY through one of two nodes, {connections} × {pipeline} pipelined",
            table=HEADING,
            peer="XADD, both by redis-benchmark",
            bar=bar,
            judged="times",
            pair=alternating(on(2, raised(connections, pipeline)),
                             on(2, added(connections, pipeline))),
        )
        for connections, pipeline, bar in ((16, 100, 1), (1, 100, 0.5), (16, 1, 0.5))
    ),
    Row(
        name="cluster/read",
        title="get one column at a node, while changes come",
        table=HEADING,
        peer="a local SharedTable",
        bar=0.9,
        judged="times",
        pair=alternating(node_reads, local_reads),
    ),
    Row(
        name="cluster/cold-start",
        title=f"{COLD_ROWS:,} rows from PostgreSQL into a node, from the start of its process",
        table=HEADING,
        peer="COPY TO STDOUT of the same rows, psycopg",
        bar=2,
        unit="s",
        unseen=False,
        longest=900,
        pair=alternating(lambda: loaded(database()), lambda: copied(database())),
    ),
)  # fmt: skip
