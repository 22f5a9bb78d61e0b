"""`interlock queue roots`: messages that hold others up, and the commands that free them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag, positive, seconds
from interlock.cli.queue import show
from interlock.cli.queue.subcommand import declare, emit, on_queue
from interlock.cli.tables import printable

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator
    from interlock.roots import Root, Roots

LIMIT = Flag("--limit", "maximum number to name (10)", "N", positive, 10)
SLOW = Flag(
    "--slow-wait",
    "seconds after which a running handler counts (60)",
    "SECONDS",
    seconds,
    60.0,
)


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "roots",
        roots,
        "show what blocks messages: held, retried and hung messages, and pauses",
        (LIMIT, SLOW),
        about="The one that blocks most messages comes first, each with the command that unblocks "
        "the messages behind it. Counting stops at 2,000 messages behind one of them.",
    )


def roots(given: argparse.Namespace) -> int:
    """Print the roots, and the number of messages that wait for each."""
    if given.limit > MOST:
        given.fail(f"--limit {given.limit}; allowed: 1 to {MOST}")
    return on_queue(given, lambda operator: _roots(operator, given))


def _roots(operator: Operator, given: argparse.Namespace) -> int:
    found = operator.roots(given.queue, given.limit, given.slow_wait)
    if given.json:
        emit({"queue": given.queue, **as_json(found, given)})
    elif found:
        print("\n".join(lines(found, given)))
    elif found.exact:
        print(f"nothing in {given.queue} is blocked")
    else:
        print(f"{given.queue}: {found}")
    return 0


def lines(found: Roots, given: argparse.Namespace) -> Iterator[str]:
    """Yield the summary, and each root with the commands that free the messages behind it."""
    yield f"Stalled: {found.summary}"
    for root in found:
        yield f"   {printable(str(root))}"
        yield from (f"      to unblock them: {command}" for command in freeing(root, given))


def freeing(root: Root, given: argparse.Namespace) -> Iterator[str]:
    """Yield the commands that an operator may type to free the messages behind a root."""
    queue = given.queue
    if root.id is None:
        named = () if root.key is None else ("--key", root.key.decode(errors="backslashreplace"))
        yield show.command(given, "resume", queue, *named)
        return
    words = {"leased": ("revoke",), "backing_off": ("retry",)}.get(root.kind, ALL)
    for word in words:
        yield show.command(given, word, queue, str(root.id))


def as_json(found: Roots, given: argparse.Namespace) -> dict[str, Any]:
    """Return the report for JSON."""
    return {
        "blocked": found.blocked,
        "exact": found.exact,
        "roots": [
            {
                "kind": root.kind,
                "id": root.id,
                "key": None if root.key is None else show.as_json(root.key),
                "blocked": root.blocked,
                "exact": root.exact,
                "depth": root.depth,
                "leased_for": root.leased_for,
                "due_in": root.due_in,
                "consumer": root.consumer,
                "freeing": list(freeing(root, given)),
            }
            for root in found
        ],
    }


ALL = ("retry", "skip", "bury")
MOST = 1000
