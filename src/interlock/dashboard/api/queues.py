"""Answers about the server and its queues."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from interlock import audit
from interlock.client.admin.operator import Operator
from interlock.client.admin.queue_counts import QueueCounts
from interlock.client.request import Argument, Refused
from interlock.dashboard.api.call import Call, Route
from interlock.dashboard.facts import facts
from interlock.dashboard.refusal import Refusal, is_stranger, of
from interlock.errors import InterlockError
from interlock.explanation import key_names
from interlock.roots import Roots

HOT = 50
"""Maximum keys of a queue that are shown."""
PAGES = 8
"""Maximum round trips to find the keys with most messages."""
LIMITS = 100
"""Maximum limit names that are shown."""
PAUSED = 1_000
"""Maximum paused keys that are shown."""
PROBED = 1_000
"""Queues for which this user's right to operate is checked."""
NO_QUEUE = "interlock-dashboard-asks"
"""A name that no queue and no worker has."""
CHANGES = 100
"""Maximum changes that are shown."""


async def server(call: Call) -> dict[str, Any]:
    """Return the engine, the user, and the user's rights."""
    refused: dict[str, str] = {}
    try:
        found = await call.access.run(facts)
        refused = await call.access.run(_refused, call.access.counts, found["kind"])
    except InterlockError as error:
        if call.settings.login == "user" and is_stranger(error):
            raise
        # The page is shown anyway, and updates when the engine is reachable again.
        found = {"kind": "", "version": "", "error": str(error)}
    operates = call.settings.write and not refused.get("")
    return {
        "url": call.access.client.url,
        **found,
        "user": call.access.user,
        "write": call.settings.write,
        "rights": ["read", "operate"] if operates else ["read"],
        "refused": refused,
        "csrf": call.mark,
        "login": call.settings.login,
    }


def _refused(operator: Operator, counts: QueueCounts, kind: str) -> dict[str, str]:
    """Return the queues that this user may not operate, each with the engine's reason.

    If all are refused, the empty name has the reason too. The check calls a function that changes
    nothing but needs the same rights as a change.
    """
    try:
        names = counts.names(operator)[:PROBED] or [NO_QUEUE]
    except InterlockError as error:
        if of(error).status != 403:
            raise
        return {"": str(error)}
    probe: tuple[Argument, ...] = (1,) if kind == "hub" else (NO_QUEUE, 0, "{}")
    function = "forget" if kind == "hub" else "announce"
    refused = {
        name: str(reply)
        for name, reply in zip(names, operator.each(function, names, *probe), strict=True)
        if isinstance(reply, Refused) and of(InterlockError(str(reply))).status == 403
    }
    if len(refused) == len(names):
        refused[""] = next(iter(refused.values()))
    refused.pop(NO_QUEUE, None)
    return refused


async def changes(call: Call) -> dict[str, Any]:
    """Return the last changes by this dashboard, of the queues that this user may read."""
    entries = audit.recent()
    readable = await call.access.run(_readable, {str(one["queue"]) for one in entries})
    return {"items": [one for one in entries if one["queue"] in readable][:CHANGES]}


def _readable(operator: Operator, names: set[str]) -> set[str]:
    known = sorted(names)
    replies = operator.each("stats", known)
    return {
        name for name, reply in zip(known, replies, strict=True) if not isinstance(reply, Refused)
    }


async def queues(call: Call) -> list[dict[str, Any]]:
    """Return all queues with their counts."""
    return await call.access.run(_queues, call.access.counts)


def _queues(operator: Operator, counts: QueueCounts) -> list[dict[str, Any]]:
    found = counts.stats(operator)
    stalls = counts.stalls(operator, found)
    return [
        {
            "name": name,
            "stats": stats,
            "paused": bool(stats.get("paused")) and _is_paused(operator, name),
            "sealed": bool(stats.get("sealed")),
            "stall": stall(stalls.get(name), stats),
        }
        for name, stats in found.items()
    ]


def stall(roots: Roots | None, stats: dict[str, int]) -> dict[str, Any] | None:
    """Return the number of blocked messages, and their roots; None if nothing needs attention."""
    if roots is None or not roots.is_stall(stats["unsettled"]):
        return None
    return {
        "summary": roots.summary,
        "blocked": roots.blocked,
        "exact": roots.exact,
        "roots": [
            {
                "kind": root.kind,
                "id": root.id,
                "key": None if root.key is None else key_names([root.key])[0],
                "blocked": root.blocked,
                "exact": root.exact,
            }
            for root in roots
        ],
    }


def _is_paused(operator: Operator, name: str) -> bool:
    """Return whether the queue itself is paused."""
    return b"" in operator.paused(name)


async def queue(call: Call) -> dict[str, Any]:
    """Return everything known about one queue."""
    name = call.queue
    return await call.access.run(_queue, call.access.counts, name)


def _queue(operator: Operator, counts: QueueCounts, name: str) -> dict[str, Any]:
    stats = existing(operator, counts, name)
    paused = operator.paused(name) if stats.get("paused") else set()
    hot = operator.hot_keys(name, HOT, pages=PAGES)
    return {
        "name": name,
        "stats": stats,
        "stall": stall(counts.stalls(operator, {name: stats}).get(name), stats),
        "options": _options(operator, name),
        "queue_paused": b"" in paused,
        "paused": key_names(paused - {b""})[:PAUSED],
        "hot": [{"key": key_names([key])[0], "waiting": depth} for key, depth in hot],
        "limits": _limits(operator, name),
        "waits": {"by": histogram([depth for _, depth in hot])},
    }


def _limits(operator: Operator, name: str) -> dict[str, Any]:
    """Return what is used of limit names; nothing if the library of a Redis is older."""
    try:
        awaited, found = operator.limits(name, LIMITS)
    except InterlockError:
        return {"awaited": 0, "items": []}
    items = [{**asdict(one), "keeper": one.keeper and str(one.keeper)} for one in found]
    return {"awaited": awaited, "items": items}


def _options(operator: Operator, name: str) -> dict[str, str]:
    """Return the declared options; empty if the user may only read."""
    try:
        # Limit names are any bytes.
        return {
            key.lower(): value.encode(errors="surrogateescape").decode(errors="backslashreplace")
            for key, value in operator.options(name).items()
        }
    except InterlockError as error:
        if of(error).status != 403:
            raise
        return {}


def existing(operator: Operator, counts: QueueCounts, name: str) -> dict[str, int]:
    """Return the counts of a queue; raise Refusal if it does not exist."""
    stats = operator.stats(name)
    # Reading the counts of a missing queue returns zeros, so they alone do not show that it exists.
    known = any(stats.get(count) for count in ("puts", "unsettled", "sealed", "paused", "dead"))
    if known or name in counts.names(operator):
        return stats
    raise Refusal(404, f"there is no queue {name!r}")


def histogram(depths: list[int]) -> list[dict[str, Any]]:
    """Return a histogram of the listed keys' depths: 1, 2 to 3, 4 to 7 and so on."""
    found: dict[int, int] = {}
    for depth in depths:
        found[depth.bit_length()] = found.get(depth.bit_length(), 0) + 1
    return [
        {"key": f"{1 << (bits - 1)}", "upto": (1 << bits) - 1, "count": count}
        for bits, count in sorted(found.items())
    ]


ROUTES = (
    Route("GET", "server", server),
    Route("GET", "changes", changes),
    Route("GET", "queues", queues),
    Route("GET", "queues/*", queue),
)
