"""Single puts of many callers at once: what a message costs client and server.

The callers share a queue object, so that their puts are sent together; on the other side each has
an object of its own, and every put is a call.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from benchmarks.drive import together
from benchmarks.row import Row, Sample, alternating
from benchmarks.servers import Kind, Server, cpu_seconds, kept
from interlock import connect

TABLE = "Single puts"
MESSAGES = 16_000
KEYS = 1_000
SCHEMES = {"redis": "redis", "hub": "interlock"}


class Cost:
    """CPU time of this process and of the server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._client, self._own = time.process_time(), cpu_seconds(server)

    def sample(self, ids: list[list[int]]) -> Sample:
        """Return the cost of a message, from the ids of each caller's puts."""
        client = time.process_time() - self._client
        server = cpu_seconds(self._server) - self._own
        count = sum(map(len, ids))
        found = Sample.each(
            client + server,
            count,
            lost=count - len({id for own in ids for id in own}),
            misordered=sum(own != sorted(own) for own in ids),
        )
        found.details.update(client_ns=client / count * 1e9, server_ns=server / count * 1e9)
        return found


def threads(kind: Kind, count: int, shared: bool) -> Sample:
    with _queue(kind) as (server, client, name):
        queues = _queues(client, name, count, shared)
        for queue in queues:
            queue.put(0)
        found: list[list[int]] = [[] for _ in range(count)]

        def run(me: int) -> None:
            put, note = queues[me].put, found[me].append
            for n in range(MESSAGES // count):
                note(put(n, keys=f"key-{(n * count + me) % KEYS}"))

        cost = Cost(server)
        together([partial(run, me) for me in range(count)])
        return cost.sample(found)


def tasks(kind: Kind, count: int, shared: bool) -> Sample:
    async def run(queue: Any, me: int) -> list[int]:
        found = []
        for n in range(MESSAGES // count):
            found.append(await queue.put(n, keys=f"key-{(n * count + me) % KEYS}"))
        return found

    async def main(client: Any, server: Server, name: str) -> Sample:
        async with client:
            queues = _queues(client.aio, name, count, shared)
            await asyncio.gather(*(queue.put(0) for queue in queues))
            cost = Cost(server)
            return cost.sample(await asyncio.gather(*map(run, queues, range(count))))

    with _queue(kind) as (server, client, name):
        return asyncio.run(main(client, server, name))


def _queues(client: Any, name: str, count: int, shared: bool) -> list[Any]:
    # The log of slow waits would ask the server meanwhile.
    quiet = {"slow_wait": 0, "warn_depth": 0, "warn_lane_depth": 0}
    if shared:
        return [client.queue(name, **quiet)] * count
    return [client.queue(name, **quiet) for _ in range(count)]


@contextmanager
def _queue(kind: Kind) -> Iterator[tuple[Server, Any, str]]:
    server = kept(kind)
    name = uuid.uuid4().hex
    url = f"{SCHEMES[kind]}://127.0.0.1:{server.port}"
    with connect(url) as client:
        yield server, client, name
    with connect(url) as client:
        client.queue(name).drop(force=True)


def _row(kind: Kind, who: str, count: int, run: Callable[[Kind, int, bool], Sample]) -> Row:
    return Row(
        name=f"sends/{kind}-{who}-{count}",
        title=f"put from {count} {who} at once, {kind}: CPU of client and server",
        table=TABLE,
        peer="the same, one call each",
        bar=0.25,
        unit="ns",
        unseen=False,
        pair=alternating(partial(run, kind, count, True), partial(run, kind, count, False)),
    )


_KINDS: tuple[Kind, ...] = ("hub", "redis")
ROWS = tuple(
    row
    for kind in _KINDS
    for row in (_row(kind, "threads", 8, threads), _row(kind, "tasks", 64, tasks))
    # Threads do not send together into a hub.
    if row.name != "sends/hub-threads-8"
)
