"""`interlock queue explain`: why a message waits, and the command that would free it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag, positive
from interlock.cli.queue import show
from interlock.cli.queue.asking import BROKEN, declare, emit, failed, on_queue

if TYPE_CHECKING:
    from interlock.engine.operating import Operator
    from interlock.explanation import ExplainNode, Explanation

KEY = Flag("--key", "instead of a message: what stands on this key", "KEY")
LIMIT = Flag("--limit", "follow so many messages at most (100)", "N", positive, 100)


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "explain",
        explain,
        "why a message waits, as a tree, with what would free it",
        (KEY, LIMIT),
        about="Below each message that waits for no other stands the command by which an "
        "operator frees what waits for it.",
        ids="[ID]",
    )


def explain(given: argparse.Namespace) -> int:
    """Draw the chain of each message, or of the key."""
    if bool(given.ids) == (given.key is not None):
        given.fail("give either the ID of a message or --key KEY")
    if given.limit > 1024:
        given.fail(f"--limit {given.limit}; allowed: 1 to 1024")
    return on_queue(given, lambda operator: _explain(operator, given))


def _explain(operator: Operator, given: argparse.Namespace) -> int:
    from interlock.explanation import tree

    code = 0
    asked: list[dict[str, Any]] = [{"id": id} for id in given.ids]
    for one in asked or [{"key": given.key.encode()}]:
        found = operator.explain(given.queue, limit=given.limit, **one)
        if found is None:
            if "id" in one:
                failed(f"message {one['id']} is not in {given.queue}: settled, or never there")
            else:
                failed(f"nothing on key {given.key!r} is waiting in {given.queue}")
            code = BROKEN
        elif given.json:
            emit({"queue": given.queue, **as_json(found, given)})
        else:
            print(tree(found, notes(given)))
    return code


def notes(given: argparse.Namespace) -> Callable[[ExplainNode], Iterator[str]]:
    """What stands below a message in the tree: the commands that would free it."""

    def of(node: ExplainNode) -> Iterator[str]:
        yield from (f"to free it: {one}" for one in freeing(node, given))

    return of


def freeing(node: ExplainNode, given: argparse.Namespace) -> Iterator[str]:
    """Commands that an operator may type for a message which waits for no other."""
    id, queue = str(node.id), given.queue
    for key in node.paused:
        named = () if key == b"" else ("--key", key.decode(errors="backslashreplace"))
        yield show.command(given, "resume", queue, *named)
    if node.state == "leased":
        yield show.command(given, "revoke", queue, id)
    elif node.state == "backing_off":
        yield show.command(given, "retry", queue, id)
    elif node.state == "held":
        for word in ("retry", "skip", "bury"):
            yield show.command(given, word, queue, id)


def as_json(found: Explanation, given: argparse.Namespace) -> dict[str, Any]:
    """An explanation for JSON."""
    return {
        "truncated": found.truncated,
        "nodes": [
            {
                "id": node.id,
                "state": node.state,
                "attempt": node.attempt,
                "age": node.age,
                "consumer": node.consumer,
                "held_for": node.held_for,
                "lease_left": node.lease_left,
                "due_in": node.due_in,
                "paused": [show.as_json(key) for key in node.paused],
                "blocked": [
                    {
                        "key": None if one.key is None else show.as_json(one.key),
                        "ahead": one.ahead,
                        "exact": one.exact,
                        "holders": list(one.holders),
                    }
                    for one in node.blocked
                ],
                "freeing": list(freeing(node, given)),
            }
            for node in found.nodes
        ],
    }
