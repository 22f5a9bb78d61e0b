"""Announcements of workers, from all queues of an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interlock.client.admin.operator import Operator
from interlock.client.request import Refused

if TYPE_CHECKING:
    from interlock.client.admin.queue_counts import QueueCounts
    from interlock.client.wire.worker_directory import Announced

MOST = 2_000
"""Maximum workers that are shown."""


def all_workers(operator: Operator, counts: QueueCounts) -> list[dict[str, Any]]:
    """Return workers' announcements, `MOST` at most."""
    names = counts.names(operator)
    found: list[dict[str, Any]] = []
    # Most queues have none; one round trip checks many of them.
    for queue, reply in zip(names, operator.each("workers", names, "", 1), strict=True):
        if isinstance(reply, Refused) or not reply:
            continue
        found += (told(queue, one) for one in operator.workers(queue))
        if len(found) >= MOST:
            break
    return found[:MOST]


def told(queue: str, one: Announced) -> dict[str, Any]:
    """Return a worker's announcement, with its name, queue, and age."""
    name = one.worker.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return {**one.said, "id": name, "queue": queue, "age": one.age, "left": one.left}
