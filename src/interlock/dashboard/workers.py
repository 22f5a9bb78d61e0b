"""Workers that have announced themselves: what each does, its stacks, and a request to end."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.dashboard.call import Call, Route
from interlock.dashboard.paths import decoded
from interlock.dashboard.refusal import Refusal
from interlock.engine.operator import Operator
from interlock.engine.request import Refused

if TYPE_CHECKING:
    from interlock.dashboard.figures import Figures
    from interlock.engine.worker_directory import Announced

MOST = 2_000
"""Workers that are shown."""


def all_workers(operator: Operator, figures: Figures) -> list[dict[str, Any]]:
    """Return what workers said of themselves, `MOST` at most."""
    names = figures.names(operator)
    found: list[dict[str, Any]] = []
    # Most queues have none, which one round trip for many of them tells.
    for queue, reply in zip(names, operator.each("workers", names, "", 1), strict=True):
        if isinstance(reply, Refused) or not reply:
            continue
        found += (told(queue, one) for one in operator.workers(queue))
        if len(found) >= MOST:
            break
    return found[:MOST]


def told(queue: str, one: Announced) -> dict[str, Any]:
    """Return what a worker said, with its name, where, and how long ago."""
    said: Any = None
    with contextlib.suppress(msgspec.DecodeError, UnicodeError, RecursionError):
        said = msgspec.json.decode(one.text)
    # Of another program's announcement only that it is there.
    found = said if isinstance(said, dict) else {}
    name = one.worker.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return {**found, "id": name, "queue": queue, "age": one.age, "left": one.left}


async def workers(call: Call) -> list[dict[str, Any]]:
    """Return all workers."""
    return await call.access.run(all_workers, call.access.figures)


def _ask(what: str, writes: bool) -> Route:
    async def ask(call: Call) -> dict[str, Any]:
        worker = decoded(call.names[1])
        text = json.dumps({"ask": what})
        number = await call.access.run(Operator.ask, call.queue, worker, text)
        if number is None:
            raise Refusal(404, f"worker {worker!r} is not there any more")
        return {"number": str(number)}

    return Route("POST", f"workers/*/*/{what}", ask, writes)


async def answer(call: Call) -> dict[str, Any]:
    """Return what a worker answered to a request; None as long as it has not."""
    queue, worker, number = call.queue, decoded(call.names[1]), call.names[2]
    for one in await call.access.run(Operator.workers, queue):
        if one.worker == worker:
            answers = told(queue, one).get("answers")
            return {"answer": answers.get(number) if isinstance(answers, dict) else None}
    raise Refusal(404, f"worker {worker!r} is not there any more")


ROUTES = (
    Route("GET", "workers", workers),
    # What a handler does is looked at, and nothing changes.
    _ask("stacks", writes=False),
    _ask("drain", writes=True),
    Route("GET", "workers/*/*/answers/*", answer),
)
