"""`interlock queue limits`: what is used of limit names, and how many messages wait for each."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag, positive
from interlock.cli.queue import show
from interlock.cli.queue.subcommand import count, declare, emit_all, on_queue
from interlock.cli.tables import table

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator
    from interlock.explanation import LimitUse

LIMIT = Flag("--limit", "number to show (100)", "N", positive, 100)


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "limits",
        limits,
        "show what is used of limits and rates, and how many messages wait for each name",
        (LIMIT,),
        about="The names that messages wait for, of more than 1,000 the first by their bytes, and "
        "those declared without *: first those with most waiting messages.",
    )


def limits(given: argparse.Namespace) -> int:
    """Print a line for each limit name."""

    def work(operator: Operator) -> int:
        awaited, found = operator.limits(given.queue, given.limit)
        if given.json:
            emit_all(asdict(one) for one in found)
            return 0
        if found:
            print(table(HEAD, [row(one) for one in found]))
        print(f"messages wait for {count(awaited, 'name')}")
        return 0

    return on_queue(given, work)


def row(one: LimitUse) -> tuple[int | str, ...]:
    """Return the cells of a limit name."""
    return (
        one.waiting,
        one.name,
        one.leased,
        most(one),
        show.seconds(one.next_in) if one.next_in else "",
        show.seconds(one.closed_for) if one.closed_for else "",
        "" if one.keeper is None else str(one.keeper),
    )


def most(one: LimitUse) -> str:
    """Return the number or the rate that is declared for a name."""
    if one.interval is None:
        return "any number" if one.most is None else f"{one.most:,}"
    by_second = 1 / one.interval
    every = f"{by_second:,.6g} per s" if by_second >= 1 else f"1 per {show.seconds(one.interval)}"
    return every if one.burst == 1 else f"{every}, {one.burst:,} at once"


HEAD = ("waiting", "limit", "leased", "of", "next in", "closed for", "keeper")
