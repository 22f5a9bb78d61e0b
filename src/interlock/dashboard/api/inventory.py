"""Lists of everything except queues: schedules, and a hub's tables, stores and topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from interlock.app.timetable import timer
from interlock.client.admin.operator import Operator
from interlock.dashboard.api.call import Call, Route
from interlock.dashboard.facts import ask, facts, info
from interlock.hub import introspection

if TYPE_CHECKING:
    from interlock.client.admin.queue_counts import QueueCounts

TIMERS = 1_000
"""Maximum timetable entries that are shown."""
TOPICS = 1_000
"""Maximum topics that are shown."""
PAGE = 512

Answer = dict[str, Any]


def _list(name: str, function: Callable[[Operator, QueueCounts], Answer]) -> Route:
    async def answer(call: Call) -> Answer:
        return await call.access.run(function, call.access.counts)

    return Route("GET", name, answer)


def schedules(operator: Operator, counts: QueueCounts) -> Answer:
    """Return the entries of all timetables, with their next and last times."""
    found: list[Answer] = []
    for name in counts.names(operator):
        if not name.endswith(timer.SUFFIX):
            continue
        cursor, seen = b"", set[int]()
        while cursor != b"0" and len(found) < TIMERS:
            cursor, some = operator.page(name, cursor or b"0", PAGE)
            for one in some:
                known = timer.decode(one.payload)
                if known is None or known.change or one.id in seen:
                    continue
                seen.add(one.id)
                found.append(
                    {
                        "name": known.name,
                        "schedule": known.schedule,
                        "task": known.task,
                        "queue": name.removesuffix(timer.SUFFIX),
                        "missed": known.missed,
                        "stored": known.stored is not None,
                        "last": known.last or None,
                        "next": known.tick,
                        "timer": {"queue": name, "id": str(one.id), "state": one.state},
                    }
                )
    found.sort(key=lambda one: (one["next"], one["name"]))
    return {"items": found[:TIMERS]}


def tables(operator: Operator, counts: QueueCounts) -> Answer:
    """Return the state tables of a hub, with their figures."""
    return _of_hub(operator, lambda: _figures(introspection.tables(info(operator))))


def stores(operator: Operator, counts: QueueCounts) -> Answer:
    """Return the stores of a hub: each one's declaration, and its figures."""
    return _of_hub(operator, lambda: [_pairs(one) for one in ask(operator, "STORE", "LIST")])


def topics(operator: Operator, counts: QueueCounts) -> Answer:
    """Return the topics that have subscribers, the most first."""
    found = introspection.topics(_Asker(operator))  # type: ignore[arg-type]
    most = list(found.receivers.items())[:TOPICS]
    items = [
        {"name": name.decode(errors="backslashreplace"), "subscribers": count}
        for name, count in most
    ]
    return {"items": items, "patterns": found.patterns, "total": len(found.receivers)}


def sources(operator: Operator, counts: QueueCounts) -> Answer:
    """Return the sources of messages from other systems: none exist yet."""
    return {"items": [], "note": "this engine reports no sources"}


def _of_hub(operator: Operator, items: Callable[[], list[Answer]]) -> Answer:
    kind = facts(operator)["kind"]
    if kind != "hub":
        return {"items": [], "note": f"{NAMES.get(kind, kind)} has none; a hub has them"}
    return {"items": items()}


def _figures(found: dict[str, dict[str, int]]) -> list[Answer]:
    return [{"name": name, **figures} for name, figures in sorted(found.items())]


def _pairs(reply: Any) -> Answer:
    """Return a map from a reply that alternates names and values."""
    texts = [
        one.decode(errors="backslashreplace") if isinstance(one, bytes) else one for one in reply
    ]
    return dict(zip(texts[::2], texts[1::2], strict=True))


class _Asker:
    """An operator with the interface of a client, for queries to a hub."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def call(self, *words: Any) -> object:
        """Send a command, and return its reply."""
        return ask(self._operator, *words)


NAMES = {"redis": "Redis", "valkey": "Valkey"}
ROUTES = (
    _list("schedules", schedules),
    _list("tables", tables),
    _list("stores", stores),
    _list("topics", topics),
    _list("sources", sources),
)
