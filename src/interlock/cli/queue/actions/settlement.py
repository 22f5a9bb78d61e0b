"""`interlock queue revoke`, `retry`, `skip`, `bury` and `cancel`: settle messages."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from interlock.cli.flags import Flag
from interlock.cli.queue.confirmation import YES, refused
from interlock.cli.queue.subcommand import BROKEN, count, declare, emit, failed, on_queue

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator

THEN = Flag(
    "--then",
    "outcome of the message: retried after its backoff, held, a dead letter, or settled (retry)",
    choices=("retry", "hold", "dead", "skip"),
    default="retry",
)


class Act(NamedTuple):
    """One of the subcommands."""

    text: str
    about: str
    done: str
    """Arguments after a message's id."""

    not_done: str
    asks: bool
    """True if it may lose data."""


ACTS = {
    "revoke": Act(
        "end the lease of messages",
        "As if it had expired: its holder can no longer settle the message. A running handler "
        "continues, and must fence its writes.",
        "lease revoked",
        "not leased",
        True,
    ),
    "retry": Act(
        "retry messages immediately",
        "For messages that are held or back off.",
        "ready",
        "neither held nor backing off",
        False,
    ),
    "skip": Act(
        "settle messages without handling them",
        "For messages that are held or back off; their keys continue.",
        "skipped",
        "neither held nor backing off",
        True,
    ),
    "bury": Act(
        "make messages dead letters",
        "For messages that are held or back off; their keys continue.",
        "a dead letter",
        "neither held nor backing off, or there is no room for a dead letter",
        True,
    ),
    "cancel": Act(
        "cancel messages that are not leased",
        "They are settled without being handled.",
        "cancelled",
        "leased, or not found",
        True,
    ),
    "discard": Act(
        "delete dead letters permanently",
        "`purge --dead` discards all of them, or those of a key.",
        "discarded",
        "not a dead letter",
        True,
    ),
}


def add_to(commands: Any) -> None:
    """Declare the subcommands."""
    for name, act in ACTS.items():
        flags = (*((THEN,) if name == "revoke" else ()), *((YES,) if act.asks else ()))
        declare(commands, name, runs(name, act), act.text, flags, about=act.about, ids="ID")


def runs(name: str, act: Act) -> Callable[[argparse.Namespace], int]:
    """Return the function of the subcommand."""

    def run(given: argparse.Namespace) -> int:
        def work(operator: Operator) -> int:
            what = f"{name} {count(len(given.ids), 'message')} of {given.queue}"
            if act.asks and (code := refused(given, what)):
                return code
            more = (given.then,) if name == "revoke" else ()
            code = 0
            for id in given.ids:
                changed = operator.change(name, given.queue, id, *more)
                if given.json:
                    emit({"id": id, "changed": changed})
                elif changed:
                    print(f"{id}  {act.done}")
                if not changed:
                    code = BROKEN
                    failed(f"message {id} is {act.not_done}")
            return code

        return on_queue(given, work)

    return run
