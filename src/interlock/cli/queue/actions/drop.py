"""`interlock queue drop`: remove a queue."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag
from interlock.cli.queue.confirmation import YES, refused
from interlock.cli.queue.show import command
from interlock.cli.queue.subcommand import BROKEN, count, declare, emit, failed, on_queue

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator

FORCE = Flag("--force", "also drop unsettled messages, including leased ones")


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "drop",
        drop,
        "remove a queue, with its declaration, dead letters and kept results",
        (FORCE, YES),
        about="It is refused while a message is unsettled. The next use creates the queue again.",
    )


def drop(given: argparse.Namespace) -> int:
    """Remove it."""

    def work(operator: Operator) -> int:
        stats = operator.stats(given.queue)
        if stats["unsettled"] and not given.force:
            return holds(given, stats["unsettled"], stats["leased"])
        known = [
            count(stats[name], one)
            for name, one in (("unsettled", "message"), ("dead", "dead letter"),
                              ("results", "result"))
            if stats[name]
        ]  # fmt: skip
        if known and (code := refused(given, f"drop {given.queue}, with {', '.join(known)}")):
            return code
        was = operator.drop(given.queue, given.force)
        if was.unsettled and not was.gone:
            # A producer was quicker.
            return holds(given, was.unsettled, was.leased)
        if given.json:
            counts = {"messages": was.unsettled, "leased": was.leased, "dead": was.dead}
            emit({"queue": given.queue, "dropped": was.gone, **counts, "results": was.results})
        else:
            messages, dead = count(was.unsettled, "message"), count(was.dead, "dead letter")
            lost = f"{messages}, {was.leased:,} leased, {dead} and {count(was.results, 'result')}"
            print(f"{given.queue}  dropped, with {lost}")
        return 0

    return on_queue(given, work)


def holds(given: argparse.Namespace, unsettled: int, leased: int) -> int:
    """Print why it cannot be dropped, and return the exit code."""
    failed(
        f"{given.queue} holds {count(unsettled, 'unsettled message')}, {leased:,} leased; "
        f"`{command(given, 'export', given.queue, '--move')}` saves them, --force loses them"
    )
    return BROKEN
