"""The end of a run: the wait until all nodes have the same, and what they have then."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from interlock.hub.client import Client
from interlock.hub.resp import ReplyError
from tests.cluster.faults.checker import Violation
from tests.cluster.faults.cluster import Cluster
from tests.cluster.faults.rows import TABLE, shown
from tests.cluster.faults.servers import Node

PAGE = 500


@dataclass
class Seen:
    """All that the nodes had when they were last looked at."""

    rows: dict[str, dict[str, dict[str, int | str] | None]] = field(default_factory=dict)
    """By node and key, as clients read them."""
    states: dict[str, dict[bytes, bytes]] = field(default_factory=dict)
    """By node and key, with all that a merge needs."""
    trouble: dict[str, str] = field(default_factory=dict)
    """By node, why nothing is known of it."""

    def settled(self) -> bool:
        """All have the same, and nothing that is to go is there."""
        rows, states = list(self.rows.values()), list(self.states.values())
        return (
            not self.trouble
            and all(one == rows[0] for one in rows)
            and all(one == states[0] for one in states)
            and not any(key.startswith("ttl-") for key in rows[0])
        )


def wait(cluster: Cluster, keys: Sequence[str], seconds: float) -> tuple[Seen, float]:
    """Return what the nodes have once they agree or the seconds are over, and how long it took.

    They agree when two looks, one after the other, show the same everywhere.
    """
    begin = time.monotonic()
    before = Seen()
    while True:
        seen = look(cluster, keys)
        agreed = seen.settled() and before.settled() if before.rows else False
        took = time.monotonic() - begin
        if (agreed and seen.states == before.states) or took > seconds:
            return seen, took
        before = seen
        time.sleep(0.1)  # Between two looks.


def look(cluster: Cluster, keys: Sequence[str]) -> Seen:
    seen = Seen()
    for name, node in cluster.nodes.items():
        try:
            rows, states = cluster.within(node.host, lambda node=node: _of(node, keys))  # type: ignore[misc]
        except (OSError, ReplyError) as error:
            seen.trouble[name] = f"{error!r} (it runs: {node.runs})"
        else:
            seen.rows[name], seen.states[name] = rows, states
    return seen


def _of(
    node: Node, keys: Sequence[str]
) -> tuple[dict[str, dict[str, int | str] | None], dict[bytes, bytes]]:
    with node.client() as client:
        replies = client.pipeline([("HGETALL", f"{TABLE}:{key}") for key in keys])
        for reply in replies:
            if isinstance(reply, ReplyError):
                raise reply
        rows = {key: shown(reply) for key, reply in zip(keys, replies, strict=True)}
        return {key: row for key, row in rows.items() if row is not None}, scan(client)


def scan(client: Client) -> dict[bytes, bytes]:
    """The states of all rows of a node, page by page."""
    found: dict[bytes, bytes] = {}
    cursor = b"0"
    while True:
        reply = client.call("NODE", "SCAN", cursor, PAGE)
        assert isinstance(reply, list)
        # Behind the next cursor stands where the node was in its stream.
        cursor, _, *page = reply
        found.update(zip(page[::2], page[1::2], strict=True))
        if cursor == b"0":
            return found


def violations(seen: Seen) -> list[Violation]:
    """Nodes that do not answer, or whose states differ."""
    found = [Violation("silent", f"{name}: {why}") for name, why in seen.trouble.items()]
    (first, states), *others = seen.states.items() or [("", {})]
    for other, its in others:
        differing = sorted(key for key in {*states, *its} if states.get(key) != its.get(key))
        for key in differing[:5]:
            text = f"{key!r}: {states.get(key)!r} at {first}, {its.get(key)!r} at {other}"
            found.append(Violation("states differ", text))
        if differing:
            text = f"{len(differing)} of {len(states)} between {first} and {other}"
            found.append(Violation("states differ", text))
    return found
