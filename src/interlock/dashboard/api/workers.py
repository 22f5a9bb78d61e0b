"""Announced workers: each one's messages, its stacks, and a request to end."""

from __future__ import annotations

import json
from typing import Any

from interlock.client.admin.operator import Operator
from interlock.dashboard.api.call import Call, Route
from interlock.dashboard.directory import all_workers
from interlock.dashboard.paths import decoded
from interlock.dashboard.refusal import Refusal


async def workers(call: Call) -> list[dict[str, Any]]:
    """Return all workers."""
    return await call.access.run(all_workers, call.access.counts)


def _ask(what: str, writes: bool) -> Route:
    async def ask(call: Call) -> dict[str, Any]:
        worker = decoded(call.names[1])
        text = json.dumps({"ask": what})
        number = await call.access.run(Operator.ask, call.queue, worker, text)
        if number is None:
            raise Refusal(404, f"worker {worker!r} is not announced any more")
        return {"number": str(number)}

    return Route("POST", f"workers/*/*/{what}", ask, writes)


async def answer(call: Call) -> dict[str, Any]:
    """Return a worker's answer to a request; None until it has answered."""
    queue, worker, number = call.queue, decoded(call.names[1]), call.names[2]
    for one in await call.access.run(Operator.workers, queue):
        if one.worker == worker:
            return {"answer": one.answer(number)}
    raise Refusal(404, f"worker {worker!r} is not announced any more")


ROUTES = (
    Route("GET", "workers", workers),
    # The handlers' stacks are only read.
    _ask("stacks", writes=False),
    _ask("drain", writes=True),
    Route("GET", "workers/*/*/answers/*", answer),
)
