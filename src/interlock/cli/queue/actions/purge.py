"""`interlock queue purge`: drop all pending messages, or all dead letters, or those of a key."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Literal

from interlock.cli.flags import Flag
from interlock.cli.queue.actions.dead_letters import of_key
from interlock.cli.queue.confirmation import YES, refused
from interlock.cli.queue.subcommand import count, declare, emit, on_queue
from interlock.cli.tables import printable

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator

DEAD = Flag("--dead", "discard the dead letters instead")
KEY = Flag("--key", "only those that have this key", "KEY")


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "purge",
        purge,
        "cancel all messages of a queue that are not leased",
        (DEAD, KEY, YES),
    )


def purge(given: argparse.Namespace) -> int:
    """Cancel or discard them, in batches."""

    def work(operator: Operator) -> int:
        if given.key is not None:
            return of_one_key(operator, given)
        stats = operator.stats(given.queue)
        number = stats["dead"] if given.dead else stats["unsettled"] - stats["leased"]
        kind = "dead letter" if given.dead else "message"
        do, done = DONE[given.dead]
        if number and (code := refused(given, f"{do} {count(number, kind)} of {given.queue}")):
            return code
        what: Literal["dead", "pending"] = "dead" if given.dead else "pending"
        purged = operator.purge(given.queue, what, number + MORE)
        leased = operator.stats(given.queue)["leased"]
        if given.json:
            emit({"queue": given.queue, "purged": purged, "leased": leased})
            return 0
        print(f"{given.queue}  {count(purged, kind)} {done}", end="")
        print(f"; {leased:,} leased, not cancelled" if leased and not given.dead else "")
        return 0

    return on_queue(given, work)


def of_one_key(operator: Operator, given: argparse.Namespace) -> int:
    """Cancel or discard the current ones of one key."""
    kind = "dead letter" if given.dead else "message"
    leased = 0
    if given.dead:
        ids = [letter.id for letter in of_key(operator.dead_letters(given.queue), given.key)]
    else:
        found = list(of_key(operator.messages(given.queue), given.key))
        ids = sorted(one.id for one in found if one.state != "leased")
        leased = len(found) - len(ids)
    do, done = DONE[given.dead]
    what = f"{do} {count(len(ids), kind)} of {given.queue} with key {given.key}"
    if ids and (code := refused(given, what)):
        return code
    function = "discard" if given.dead else "cancel"
    purged = sum(operator.change(function, given.queue, id) for id in ids)
    if given.json:
        emit({"queue": given.queue, "purged": purged, "leased": leased})
        return 0
    key = printable(given.key)
    print(f"{given.queue}  {count(purged, kind)} with key {key} {done}", end="")
    print(f"; {leased:,} leased, not cancelled" if leased else "")
    return 0


MORE = 100_000
"""Maximum messages that arrive while it drops the existing ones."""
DONE = {False: ("cancel", "cancelled"), True: ("discard", "discarded")}
"""Verbs for messages, and with --dead for dead letters."""
