"""`interlock queue explain`: why a message waits, and the command that would free it."""

from __future__ import annotations

import argparse
import contextlib
import shlex
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag, positive, seconds
from interlock.cli.queue import show
from interlock.cli.queue.subcommand import count, declare, emit, failed, on_queue
from interlock.cli.queue.views import not_found
from interlock.cli.queue.views.task_names import Called

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator
    from interlock.explanation import ExplainNode, Explanation

KEY = Flag("--key", "explain this key instead of a message", "KEY")
LIMIT = Flag(
    "--limit", "maximum number of messages to follow (100; 1000 with --roots)", "N", positive
)
ROOTS = Flag(
    "--roots", "only the message and the ends of its chains: leased, held or paused messages"
)
STUCK = Flag(
    "--stuck",
    "suggest `revoke` for messages handled longer than this (60)",
    "SECONDS",
    seconds,
    60.0,
)


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "explain",
        explain,
        "show why a message waits, as a tree, with the commands that unblock it",
        (KEY, ROOTS, LIMIT, STUCK),
        about="Each message that waits for no other is shown with the command that unblocks the "
        "messages behind it. A call of a task is shown with the task's name.",
        ids="[ID]",
    )


def explain(given: argparse.Namespace) -> int:
    """Draw the chain of each message, or of the key."""
    if bool(given.ids) == (given.key is not None):
        given.fail("give either the ID of a message or --key KEY")
    if given.limit is None:
        given.limit = MOST if given.roots else USUAL
    if given.limit > MOST:
        given.fail(f"--limit {given.limit}; allowed: 1 to {MOST}")
    return on_queue(given, lambda operator: _explain(operator, given))


def _explain(operator: Operator, given: argparse.Namespace) -> int:
    code = 0
    called = Called(operator, given.queue)
    given.blocks = Blocks(operator, given.queue)
    asked: list[dict[str, Any]] = [{"id": id} for id in given.ids]
    for one in asked or [{"key": given.key.encode(errors="surrogateescape")}]:
        found = operator.explain(given.queue, limit=given.limit, **one)
        if found is not None:
            _tell(found, called, given)
            if not given.json and any(node.state == "ready" for node in found.nodes):
                _tell_unserved(operator, given)
        elif "key" in one:
            code = failed(f"nothing on key {given.key!r} is waiting in {given.queue}")
        elif not _tell_dead(operator, one["id"], given):
            code = failed(not_found.text(given.queue, one["id"]))
    return code


def _tell(found: Explanation, called: Called, given: argparse.Namespace) -> None:
    from interlock.explanation import tree

    if given.json:
        emit({"queue": given.queue, **as_json(found, called, given)})
    elif given.roots:
        print("\n".join(roots_text(found, called, given)))
    else:
        print(tree(found, notes(given), called.name))


def _tell_unserved(operator: Operator, given: argparse.Namespace) -> None:
    """Print a line if ready messages are not being leased."""
    if not operator.is_served(given.queue):
        print(
            f"no worker takes from {given.queue}: none that serves it has announced itself. Start "
            f"one: interlock worker MODULE:APP --queues {shlex.quote(given.queue)}"
        )


def _tell_dead(operator: Operator, id: int, given: argparse.Namespace) -> bool:
    """Print a message that no longer waits: a dead letter.

    Return False if it is not one.
    """
    message = operator.peek(given.queue, id)
    if message is None or message.state != "dead":
        return False
    if given.json:
        node = {"id": id, "state": "dead", **not_found.record(message, given)}
        emit({"queue": given.queue, "truncated": False, "nodes": [node]})
    else:
        print(f"message {id} is a {not_found.since(message)}")
        print("\n".join(f"   {line}" for line in not_found.lines(message, given)))
    return True


class Blocks:
    """Counts the messages that wait for the first roots of an explanation."""

    def __init__(self, operator: Operator, queue: str) -> None:
        self._operator = operator
        self._queue = queue
        self._left = COUNTED

    def count(self, node: ExplainNode) -> tuple[int, bool] | None:
        """Return the number of messages that wait for a root, and False if there may be more.

        None if it was not counted.
        """
        from interlock.errors import InterlockError

        if not self._left:
            return None
        self._left -= 1
        ids = () if node.paused else (node.id,)
        # An engine of an older release does not report it.
        with contextlib.suppress(InterlockError):
            return self._operator.blocked(self._queue, ids, node.paused)
        return None

    def text(self, node: ExplainNode) -> str:
        """Return the same in words; empty if it was not counted."""
        from interlock.roots import at_least

        counted = self.count(node)
        if counted is None:
            return ""
        return f"blocks {at_least(*counted)} {'message' if counted[0] == 1 else 'messages'}"


def roots_of(found: Explanation) -> list[ExplainNode]:
    """Return the messages that wait for no other, including requested ones."""
    return [node for node in found.nodes if not _waits_for_others(node)]


def _waits_for_others(node: ExplainNode) -> bool:
    """Return whether a message waits for another: for its key, a slot of its limit, or its end."""
    has_holders = any(full.holders for full in node.limits)
    return bool(node.blocked or has_holders or (node.parked and node.parked.behind))


def roots_text(found: Explanation, called: Called, given: argparse.Namespace) -> Iterator[str]:
    """Yield the requested message, and below it the roots."""
    from interlock.explanation import line

    own = notes(given)
    roots = roots_of(found)
    if given.key is None:
        first = found.nodes[0]
        yield line(first, called.name(first))
        yield from (f"   {note}" for note in own(first))
        roots = [node for node in roots if node is not first]
        if _waits_for_others(first):
            between = len(found.nodes) - 1 - len(roots)
            more = " or more" if found.truncated else ""
            through = f", through {count(between, 'other')}{more}" if between else ""
            yield f"waits for {len(roots)} at the root{through}:"
    for node in roots:
        yield f"   {line(node, called.name(node))}"
        if keys := called.keys(node):
            yield f"      keys {keys}"
        yield from (f"      {note}" for note in own(node))
    if found.truncated:
        yield f"... cut at {count(len(found.nodes), 'message')}; there may be more roots"


def notes(given: argparse.Namespace) -> Callable[[ExplainNode], Iterator[str]]:
    """Return a function that yields a message's notes in the tree: commands that would free it."""

    def of(node: ExplainNode) -> Iterator[str]:
        commands = list(freeing(node, given))
        if commands and (blocks := given.blocks.text(node)):
            yield blocks
        yield from (f"to unblock it: {one}" for one in commands)

    return of


def freeing(node: ExplainNode, given: argparse.Namespace) -> Iterator[str]:
    """Yield commands that an operator may type for a message that waits for no other."""
    id, queue = str(node.id), given.queue
    parked = node.parked
    under = (parked.key,) if parked is not None and parked.paused else ()
    for key in dict.fromkeys((*node.paused, *under)):
        named = () if key == b"" else ("--key", key.decode(errors="backslashreplace"))
        yield show.command(given, "resume", queue, *named)
    # A working handler is not at fault: revoking its lease would have the message handled twice.
    if node.state == "leased" and (node.held_for or 0.0) >= given.stuck:
        yield show.command(given, "revoke", queue, id)
    elif node.state == "backing_off":
        yield show.command(given, "retry", queue, id)
    elif node.state == "held":
        for word in ("retry", "skip", "bury"):
            yield show.command(given, word, queue, id)


def as_json(found: Explanation, called: Called, given: argparse.Namespace) -> dict[str, Any]:
    """Return an explanation for JSON; with --roots only the requested message and the roots."""
    nodes = found.nodes
    if given.roots:
        first = nodes[:1] if given.key is None else ()
        nodes = (*first, *(node for node in roots_of(found) if node not in first))
    commands = {node.id: list(freeing(node, given)) for node in nodes}
    blocks = {node.id: given.blocks.count(node) for node in nodes if commands[node.id]}
    return {
        "truncated": found.truncated,
        "nodes": [
            {
                "id": node.id,
                "task": called.task(node.id),
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
                "limits": [
                    {
                        "name": one.name,
                        "most": one.most,
                        "leased": one.leased,
                        "keeper": one.keeper,
                        "next_in": one.next_in,
                        "holders": list(one.holders),
                    }
                    for one in node.limits
                ],
                "turn": _turn(node),
                "parked": _parked(node),
                "blocks": _counted(blocks.get(node.id)),
                "freeing": commands[node.id],
            }
            for node in nodes
        ],
    }


def _turn(node: ExplainNode) -> dict[str, Any] | None:
    turn = node.turn
    if turn is None:
        return None
    return {"group": turn.group, "ready": turn.ready, "ahead": turn.ahead}


def _parked(node: ExplainNode) -> dict[str, Any] | None:
    parked = node.parked
    if parked is None:
        return None
    return {
        "key": show.as_json(parked.key),
        "since": parked.since,
        "times": parked.times,
        "ahead": parked.ahead,
        "paused": parked.paused,
        "behind": list(parked.behind),
    }


def _counted(found: tuple[int, bool] | None) -> dict[str, Any] | None:
    return None if found is None else {"messages": found[0], "exact": found[1]}


USUAL = 100
COUNTED = 20
"""Maximum roots of one command whose waiting messages are counted."""
MOST = 1000
"""Maximum messages that a server follows."""
