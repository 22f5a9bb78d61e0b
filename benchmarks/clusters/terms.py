"""The end of a primary: killed, or asked to hand over, until another is one."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.clusters.nodes import LEASE, TABLE, Cluster, Node, cluster, until
from benchmarks.drive import Clock
from benchmarks.row import Sample

HANDED_OVER = 20


def failover() -> Sample:
    """Measure: s from kill -9 of a primary until another has read its own barrier.

    `written_s`: until a write that was sent to another node at that moment is answered.
    """
    with cluster(3) as nodes:
        primary = nodes.primary()
        others = [one for one in nodes.nodes if one is not primary]
        # At any moment between two renewals of its lease.
        time.sleep(random.random() * LEASE)
        written: list[float] = []
        clock = Clock()
        primary.kill()
        writing = threading.Thread(target=_write, args=(others[0], written))
        writing.start()
        _wait_for_primary(others)
        seconds = clock.seconds()
        writing.join()
    return Sample(
        seconds, 1, lost=int(not written), details={"written_s": max(written, default=0.0)}
    )


def handover(nodes: Cluster) -> Sample:
    """Measure: ms from NODE FAILOVER until another has read its own barrier, the median of some.

    `written_ms`: until a write that was sent next, to the primary that was, is answered.
    """
    took, answered = [], []
    for _ in range(HANDED_OVER):
        primary = nodes.primary()
        others = [one for one in nodes.nodes if one is not primary]
        with primary.client() as client:
            written: list[float] = []
            clock = Clock()
            client.execute_command("NODE", "FAILOVER")
            writing = threading.Thread(target=_write, args=(primary, written))
            writing.start()
            _wait_for_primary(others, 0.001)
            took.append(clock.seconds() * 1e3)
            writing.join()
        answered += written
        until(partial(_follows, primary))
    took.sort()
    answered.sort()
    lost = HANDED_OVER - len(answered)
    details = {"written_ms": answered[len(answered) // 2] * 1e3 if answered else 0.0,
               "longest_ms": took[-1]}  # fmt: skip
    return Sample(took[len(took) // 2], HANDED_OVER, lost, details=details)


def _write(node: Node, took: list[float]) -> None:
    """Write until it is done, and note how long that took."""
    clock = Clock()

    def is_done() -> bool:
        with node.client() as client:
            try:
                client.execute_command("HSET", f"{TABLE}:300000000", "app_id", 1)
            except Exception:
                return False
        return True

    until(is_done)
    took.append(clock.seconds())


def _wait_for_primary(nodes: Sequence[Node], pause: float = 0.005) -> None:
    is_one: Callable[[], bool] = lambda: any(  # noqa: E731
        one.status()["role"] == "primary" for one in nodes
    )
    until(is_one, pause)


def _follows(node: Node) -> bool:
    status = node.status()
    return status["role"] == "replica" and status["primary"] not in ("", node.name)
