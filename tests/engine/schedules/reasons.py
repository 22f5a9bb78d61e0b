"""Reasons of messages that consumers cannot handle: each is named, and true."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.engine.naive.watch import WatchedModel

LIMIT = 1_000
"""Messages that an explanation names."""
STOPPED = ("held", "backing_off")


@dataclass
class Node:
    """A message of an explanation."""

    id: str
    state: str
    paused: list[str]
    limits: list[str] = field(default_factory=list)
    under_pause: bool = False
    stuck: list[str] = field(default_factory=list)
    blockers: list[list[str]] = field(default_factory=list)


def wrong_reason(model: WatchedModel, told: list[str], roots: list[str]) -> str:
    """Return what is wrong with an explanation, when consumers have handled what they can.

    Args:
        told: the reply to il1_explain.
        roots: the reply to il1_roots.
    """
    truncated, count, *rest = told
    if truncated == "1":
        return ""
    parts = iter(rest)
    nodes = [_node(parts) for _ in range(int(count))]
    known = {node.id for node in nodes}
    stopped, paused = set(roots[3::6]), set()
    for kind, key in zip(roots[2::6], roots[4::6], strict=True):
        paused |= {key} if kind == "paused" else set()
    for node in nodes:
        entry = model.find(node.id)
        assert entry is not None
        if node.state in STOPPED:
            is_true = entry.state == node.state and node.id in stopped
        elif node.state == "parked":
            is_true = bool(node.stuck) or (node.under_pause and entry.under in model.paused)
        elif node.paused:
            is_true = paused.issuperset(node.paused)
        else:
            is_true = node.state == "waiting" and bool(node.blockers) and all(node.blockers)
        named = [*node.stuck, *[id for blocker in node.blockers for id in blocker]]
        if not is_true or not known.issuperset(named):
            return str(node)
    return ""


def _node(parts: Iterator[str]) -> Node:
    def take(count: int) -> list[str]:
        return [next(parts) for _ in range(count)]

    def take_counted() -> list[str]:
        return take(int(next(parts)))

    id, state, *_ = take(8)
    node = Node(id, state, take_counted())
    for _ in range(int(next(parts))):
        node.limits.append(next(parts))
        take(4)
        take_counted()
    if next(parts) == "1":
        take(3)
    if next(parts) == "1":
        node.under_pause = take(5)[4] == "1"
        node.stuck = take_counted()
    for _ in range(int(next(parts))):
        take(3)
        node.blockers.append(take_counted())
    return node
