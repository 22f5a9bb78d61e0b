"""Answers about messages: pages of them by state, key, task and error, and single ones in full."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, get_args

from interlock.client.admin.operator import Operator
from interlock.client.admin.queue_counts import QueueCounts
from interlock.client.wire.failures import error_group
from interlock.client.wire.records import Stored
from interlock.dashboard.api import payload
from interlock.dashboard.api.call import Call, Route
from interlock.dashboard.paths import message_id
from interlock.dashboard.refusal import Refusal
from interlock.explanation import (
    ExplainNode,
    Explanation,
    Parked,
    full_text,
    key_names,
    printable,
)
from interlock.message import State

PAGE = 256
"""Messages of one round trip."""
MOST = 200
"""Messages in an answer, or slightly more: the last round trip is not cut."""
SCANNED = 10_000
"""Maximum messages that are read for one answer."""
PATIENCE = 0.5
"""Seconds after which an answer has the matches so far."""
EXPLAINED = 100
"""Maximum messages of an explanation."""
GROUPS = 50
"""Maximum kinds of errors that are listed."""
NAMED = 32
"""Number of those that are listed with their keys and task."""
MOST_AHEAD = 1_000
"""An explanation counts no further the messages parked before one."""
ANCHORS = 8
"""Dead letters that locate the next page; the first that still exists counts."""

Keep = Callable[[Stored], bool]


async def messages(call: Call) -> dict[str, Any]:
    """Return unsettled messages that match, and the place of the next page."""
    queue, state, key = call.queue, call.text("state"), call.text("key")
    if state and state not in (*get_args(State), "dead"):
        allowed = ", ".join((*get_args(State), "dead"))
        raise Refusal(400, f"state is {state[:40]!r}; allowed: {allowed}")
    cursor, limit = call.text("cursor", 200), call.number("limit", 50, MOST)
    keep = matching(state, key, call.text("task"), call.text("error"))
    if state == "dead":
        return await call.access.run(_dead, queue, keep, cursor, limit, "cursor")
    # With filters, more messages are read than returned.
    filtered = any(call.query.get(name) for name in ("state", "key", "task", "error"))
    count = PAGE if filtered else limit
    return await call.access.run(_messages, queue, keep, key, cursor, limit, count)


async def dead(call: Call) -> dict[str, Any]:
    """Return dead letters that match, the last to die first."""
    queue, after, limit = call.queue, call.text("after", 200), call.number("limit", 50, MOST)
    keep = matching("", *_chosen(call))
    return await call.access.run(_dead, queue, keep, after, limit, "after")


async def message(call: Call) -> dict[str, Any]:
    """Return one message with its payload, its failures, and why it waits."""
    queue, id = call.queue, message_id(call.names[1])
    return await call.access.run(_message, queue, id, call.access.counts)


async def dead_errors(call: Call) -> dict[str, Any]:
    """Return how many dead letters match, by their errors, the most frequent first."""
    return await call.access.run(_errors, call.queue, matching("", *_chosen(call)))


def _errors(operator: Operator, queue: str, keep: Keep) -> dict[str, Any]:
    groups: dict[str, dict[str, Any]] = {}
    at, scanned, until = b"", 0, time.monotonic() + PATIENCE
    while at != b"0" and scanned < SCANNED and time.monotonic() < until:
        at, some = operator.page(queue, at or b"0", PAGE, "newest")
        scanned += len(some)
        for one in filter(keep, some):
            name = error_group(one.error)
            # The newest one's, which comes first.
            first = {"group": name, "error": one.error, "count": 0, "died": (one.due or 0) / 1e6}
            groups.setdefault(name, first)["count"] += 1
    found = sorted(groups.values(), key=lambda group: -group["count"])
    return {
        "groups": found[:GROUPS],
        "matched": sum(group["count"] for group in found),
        "complete": at == b"0",
    }


def _chosen(call: Call) -> tuple[str, str, str, str]:
    key, task, error, group = (call.text(name) for name in ("key", "task", "error", "group"))
    return key, task, error, group


def matching(state: str, key: str, task: str, error: str, group: str = "") -> Keep:
    """Return a predicate on messages; empty filters are ignored."""
    wanted, words, named = key.encode(errors="surrogateescape"), error.lower(), task.lower()

    def keep(one: Stored) -> bool:
        if state and one.state != state:
            return False
        if key and not _is_on(one, wanted, key):
            return False
        if words and words not in one.error.lower():
            return False
        if group and error_group(one.error) != group:
            return False
        return not named or named in (payload.task_of(one.payload) or "").lower()

    return keep


def _is_on(one: Stored, wanted: bytes, text: str) -> bool:
    keys = (*one.keys, *one.shared)
    # As text too: a page has only that for a key that is not UTF-8.
    return wanted in keys or ("\\" in text and text in key_names(keys))


def _messages(
    operator: Operator, queue: str, keep: Keep, key: str, cursor: str, limit: int, count: int
) -> dict[str, Any]:
    found: dict[int, Stored] = {}
    if key and not cursor:
        # Messages in front on it are found directly, however many messages there are.
        explained = operator.explain(queue, key=key.encode(), limit=limit)
        for node in explained.nodes if explained else ():
            one = operator.peek(queue, node.id)
            if one is not None and keep(one):
                found[one.id] = one
    at = b"" if cursor in ("", "0") else _cursor(cursor)
    scanned, until = 0, time.monotonic() + PATIENCE
    while at != b"0" and len(found) < limit and scanned < SCANNED:
        at, some = operator.page(queue, at or b"0", count)
        scanned += len(some)
        found.update((one.id, one) for one in some if keep(one))
        if time.monotonic() > until:
            break
    listed = sorted(found.values(), key=lambda one: one.sequence)
    return {
        "items": [summary(one) | {"parked": parking(operator, queue, one)} for one in listed],
        "cursor": None if at == b"0" else (at or b"0").decode(),
        "scanned": scanned,
    }


def _cursor(text: str) -> bytes:
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) < 2**64):
        raise Refusal(400, f"cursor is {text[:40]!r}; allowed: the cursor of an answer")
    return text.encode()


def _dead(
    operator: Operator, queue: str, keep: Keep, after: str, limit: int, name: str
) -> dict[str, Any]:
    items: list[Stored] = []
    seen: list[int] = []
    at = anchor(operator, queue, after)
    scanned, until = 0, time.monotonic() + PATIENCE
    while True:
        at, some = operator.page(queue, at, PAGE, "newest")
        scanned += len(some)
        for one in some:
            seen.append(one.id)
            if keep(one):
                items.append(one)
                if len(items) == limit:
                    break
        over = scanned >= SCANNED or time.monotonic() > until or len(items) == limit
        if at == b"0" or over:
            break
    ended = at == b"0" and (not some or seen[-1] == some[-1].id)
    last = seen[-ANCHORS:][::-1]
    return {
        "items": [summary(one) for one in items],
        name: None if ended or not last else ",".join(map(str, last)),
        "scanned": scanned,
    }


def anchor(operator: Operator, queue: str, after: str) -> bytes:
    """Return the dead letter behind which a page continues: the last one that still exists.

    If none does, the page starts over.
    """
    if after:
        for id in after.split(","):
            found = operator.peek(queue, message_id(id))
            if found is not None and found.state == "dead":
                return id.encode()
    return b"0"


def summary(one: Stored) -> dict[str, Any]:
    """Return a message as lists show it."""
    return {
        "id": str(one.id),
        "state": one.state,
        "attempt": one.attempt,
        "keys": key_names(one.keys),
        "shared": key_names(one.shared),
        "priority": one.priority,
        "barrier": "BARRIER" in one.options,
        "limit": [printable(name) for name in one.limit],
        "group": None if one.group is None else printable(one.group),
        "coalesce": None if one.coalesce is None else key_names([one.coalesce])[0],
        "behind": one.behind,
        "put": one.id / 1e6,
        "due": None if one.due is None else one.due / 1e6,
        "error": one.error,
        "task": payload.task_of(one.payload),
        "size": len(one.payload),
    }


def parking(operator: Operator, queue: str, one: Stored) -> dict[str, Any] | None:
    """Return where a message is parked, and behind which messages; None if it is not."""
    explained = operator.explain(queue, id=one.id, limit=1) if one.state == "parked" else None
    return _parked(explained.nodes[0].parked) if explained else None


def _parked(parked: Parked | None) -> dict[str, Any] | None:
    if parked is None:
        return None
    return {
        "key": key_names([parked.key])[0],
        "since": parked.since,
        "ahead": parked.ahead,
        "paused": parked.paused,
        "behind": [str(id) for id in parked.behind],
    }


def _message(operator: Operator, queue: str, id: int, counts: QueueCounts) -> dict[str, Any]:
    found = operator.peek(queue, id)
    if found is None:
        raise Refusal(
            404, (f"message {id} is not in queue {queue!r}: it is settled, or was never put")
        )
    explained, served = None, True
    if found.state != "dead":
        explained = operator.explain(queue, id=id, limit=EXPLAINED)
    if explained is not None and any(node.state == "ready" for node in explained.nodes):
        served = operator.is_served(queue, counts.names(operator))
    return {
        "served": served,
        "message": summary(found),
        "payload": asdict(payload.read(found.payload)),
        "failures": failures(found),
        "explanation": None if explained is None else explanation(operator, queue, explained),
    }


def failures(found: Stored) -> list[dict[str, Any]]:
    """Return the known failures of all attempts, the newest first."""
    told = []
    for one in found.failures:
        text, _, traceback = one.text.partition("\n")
        told.append(
            {
                "attempt": one.attempt,
                "time": None if one.time is None else one.time / 1e6,
                "text": text,
                "traceback": traceback or None,
            }
        )
    return told


def explanation(operator: Operator, queue: str, found: Explanation) -> dict[str, Any]:
    """Return why a message waits, as text and as nodes, breadth first."""
    named: dict[int, Stored] = {}
    for node in found.nodes[:NAMED]:
        one = operator.peek(queue, node.id)
        if one is not None:
            named[node.id] = one
    return {
        "text": str(found),
        "truncated": found.truncated,
        "chain": [_node(node, named.get(node.id)) for node in found.nodes],
    }


def _node(node: ExplainNode, one: Stored | None) -> dict[str, Any]:
    return {
        "id": str(node.id),
        "state": node.state,
        "attempt": node.attempt,
        "keys": None if one is None else key_names(one.keys),
        "shared": None if one is None else key_names(one.shared),
        "task": None if one is None else payload.task_of(one.payload),
        "age": node.age,
        "consumer": node.consumer,
        "held_for": node.held_for,
        "lease_left": node.lease_left,
        "due_in": node.due_in,
        "queue_paused": b"" in node.paused,
        "paused": key_names(key for key in node.paused if key),
        "limits": [full.name for full in node.limits],
        "turn": None if node.turn is None else asdict(node.turn),
        "parked": _parked(node.parked),
        "because": [*_blockers(node)],
    }


def _blockers(node: ExplainNode) -> Iterator[dict[str, Any]]:
    """Yield a key, a barrier or a limit that holds a message up, and the messages behind that."""
    for blocker in node.blocked:
        yield {
            "key": None if blocker.key is None else key_names([blocker.key])[0],
            "limit": None,
            "holders": [str(id) for id in blocker.holders],
            "ahead": blocker.ahead,
            "exact": blocker.exact,
        }
    for full in node.limits:
        yield {
            "key": None,
            "limit": printable(full.name),
            "text": full_text(full),
            "holders": [str(id) for id in full.holders],
            "ahead": full.leased,
            "exact": True,
        }
    if node.parked is not None:
        yield {
            "key": key_names([node.parked.key])[0],
            "limit": None,
            "holders": [str(id) for id in node.parked.behind],
            "ahead": node.parked.ahead,
            "exact": node.parked.ahead < MOST_AHEAD,
        }


ROUTES = (
    Route("GET", "queues/*/messages", messages),
    Route("GET", "queues/*/messages/*", message),
    Route("GET", "queues/*/dead", dead),
    Route("GET", "queues/*/dead/errors", dead_errors),
)
