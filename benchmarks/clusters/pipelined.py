"""Increments through one node, and entries into a bare stream of the same engine, sent by
redis-benchmark: a client in C, which needs less time for a command than the node does."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable

import redis

from benchmarks.clusters.changes import STREAM
from benchmarks.clusters.nodes import TABLE, Cluster, Node, until
from benchmarks.interpreters import NotPrepared
from benchmarks.row import Sample
from benchmarks.servers import cpu_seconds

COUNT = int(os.environ.get("INTERLOCK_CLUSTER_INCREMENTS", "400000"))
"""Increments of a run; a twentieth without pipelines."""
KEYS = 10_000
KEY = "300000__rand_int__"
"""redis-benchmark writes twelve digits in place of the last word."""


def raised(connections: int, pipeline: int) -> Callable[[Cluster], Sample]:
    """Return a measure of HINCRBY: ns of one, and the CPU of the node and of another for it."""

    def measure(cluster: Cluster) -> Sample:
        node, other = cluster.nodes[0], cluster.nodes[-1]
        count = _count(pipeline)
        before, used = _sum(node), [cpu_seconds(one.server) for one in (node, other)]
        value = _run(node.server.port, connections, pipeline, "HINCRBY", f"{TABLE}:{KEY}", "unread",
                     "1")  # fmt: skip
        until(lambda: _sum(other) == before + count)
        own, others = (
            (cpu_seconds(one.server) - since) / count * 1e9
            for one, since in zip((node, other), used, strict=True)
        )
        details = {"node_cpu_ns": own, "other_cpu_ns": others}
        return Sample(value, count, abs(count - (_sum(node) - before)), details=details)

    return measure


def added(connections: int, pipeline: int) -> Callable[[Cluster], Sample]:
    """Return a measure of XADD of as many bytes: ns of one."""

    def measure(cluster: Cluster) -> Sample:
        with redis.Redis(port=cluster.engine.port) as client:
            client.delete(STREAM)
            value = _run(cluster.engine.port, connections, pipeline, "XADD", STREAM, "*", "e",
                         f"{KEY}unread1")  # fmt: skip
            lost = abs(_count(pipeline) - int(client.xlen(STREAM)))
            client.delete(STREAM)
        return Sample(value, _count(pipeline), lost)

    return measure


def _count(pipeline: int) -> int:
    return COUNT if pipeline > 1 else COUNT // 20


def _run(port: int, connections: int, pipeline: int, *command: str) -> float:
    program = shutil.which("redis-benchmark")
    if program is None:
        raise NotPrepared("no redis-benchmark: it comes with Redis")
    given = [
        *(program, "-p", str(port), "-c", str(connections), "-P", str(pipeline)),
        *("-n", str(_count(pipeline)), "-r", str(KEYS), "--csv", *command),
    ]
    done = subprocess.run(given, capture_output=True, text=True, check=True)
    return 1e9 / float(done.stdout.strip().splitlines()[-1].split('","')[1])


def _sum(node: Node) -> int:
    with node.rows() as rows:
        found = rows.get_many([f"300000{row:012d}" for row in range(KEYS)], "unread")
        return sum(value or 0 for value in found)
