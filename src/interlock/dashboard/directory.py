"""Announcements of workers, from all queues of an engine."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from interlock.client.admin.operator import Operator

if TYPE_CHECKING:
    from interlock.client.admin.queue_counts import QueueCounts
    from interlock.client.wire.worker_directory import Announced

MOST = 2_000
"""Maximum workers that are shown."""


def all_workers(operator: Operator, counts: QueueCounts) -> list[dict[str, Any]]:
    """Return workers' announcements, `MOST` at most."""
    found = operator.all_workers(counts.names(operator))
    return [told(queue, one) for queue, one in itertools.islice(found, MOST)]


def told(queue: str, one: Announced) -> dict[str, Any]:
    """Return a worker's announcement, with its name, queue, and age."""
    name = one.worker.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return {**one.said, "id": name, "queue": queue, "age": one.age, "left": one.left}
