"""`interlock queue list` and `stats`: the counts of all queues, and of one."""

from __future__ import annotations

import argparse
import contextlib
from typing import TYPE_CHECKING, Any

from interlock.cli.queue import show
from interlock.cli.queue.subcommand import (
    ask,
    count,
    declare,
    emit,
    emit_all,
    explained,
    failed,
    on_queue,
)
from interlock.cli.tables import printable, table
from interlock.runtime.queue_figures import COUNTERS, SINCE

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator


def add_to(commands: Any) -> None:
    """Declare the subcommands."""
    declare(
        commands,
        "list",
        list_queues,
        "list all queues with their numbers of messages",
        queue=None,
    )
    declare(
        commands,
        "stats",
        stats,
        "show all counts of a queue",
        about="Messages by state, and totals since the queue was created.",
    )


def list_queues(given: argparse.Namespace) -> int:
    """Print a table, or a line of JSON for each queue."""
    return ask(given, lambda operator: _list(operator, as_json=given.json))


def stats(given: argparse.Namespace) -> int:
    """Print the counts of one queue."""
    return on_queue(given, lambda operator: _stats(operator, given))


def _list(operator: Operator, *, as_json: bool) -> int:
    from interlock.errors import EngineUnavailable, InterlockError

    found: dict[str, dict[str, int]] = {}
    code = 0
    for name in operator.queues():
        try:
            found[name] = operator.stats(name)
        except EngineUnavailable:
            raise
        except InterlockError as error:
            # A foreign key that only looks like a queue's hides none of the others.
            code = failed(explained(str(error)))
    if as_json:
        emit_all({"queue": name, **aged(counts)} for name, counts in found.items())
        return code
    if not found:
        if not code:
            print(f"no queues{operator.note}")
        return code
    rows: list[tuple[str | int, ...]] = [
        (name, *(counts[column] for column in LISTED), gates_text(counts))
        for name, counts in found.items()
    ]
    print(table(("queue", "depth", *LISTED[1:], ""), rows))
    return code


def _stats(operator: Operator, given: argparse.Namespace) -> int:
    counts = operator.stats(given.queue)
    if given.json:
        emit({"queue": given.queue, **aged(counts)})
        return 0
    print(summary(given.queue, counts))
    if stalled := stall(operator, given.queue):
        print(f"\nStalled: {stalled}; {show.command(given, 'roots', given.queue)} names them")
    return 0


def aged(counts: dict[str, int]) -> dict[str, float]:
    """Return the counts with the seconds for which the oldest messages wait, under their names."""
    ages = {name: round(age(counts, name), 6) for name in OLDEST if name in counts}
    return {name: found for name, found in (counts | ages).items() if name != "time"}


def stall(operator: Operator, queue: str) -> str:
    """Return the blocked messages and their roots in a line; empty if none is known."""
    from interlock.errors import InterlockError

    # An engine of an older release does not report it, and the counts are useful without it.
    with contextlib.suppress(InterlockError):
        return operator.roots(queue).summary
    return ""


def summary(queue: str, counts: dict[str, int]) -> str:
    """Return the counts in the order of their meaning; those unknown to this release come last."""
    gates = gates_text(counts)
    lines = [f"{printable(queue)}{': ' + gates if gates else ''}"]
    known = {name for _, names in SECTIONS for name in names}
    known |= {"paused", "sealed", "full", "time", *OLDEST}
    others = tuple(name for name in counts if name not in known)
    for title, names in (*SECTIONS, ("else", others)):
        shown = [name for name in names if name in counts]
        if shown:
            lines += ["", title]
        for name in shown:
            label = name.replace("_", " ")
            lines.append(f"  {label:<14}{counts[name]:>12,}  {MEANINGS.get(name, '')}".rstrip())
        if title == "now":
            for name in OLDEST:
                if name in counts:
                    label, waited = name.replace("_", " "), show.seconds(age(counts, name) or None)
                    lines.append(f"  {label:<14}{waited or 'none':>12}  {MEANINGS[name]}")
    return "\n".join(lines)


def age(counts: dict[str, int], name: str) -> float:
    """Return the age in seconds of the oldest waiting message in this count; 0: none waits."""
    from interlock.client.wire import admin as wire_queue

    return wire_queue.age(counts, name)


def gates_text(counts: dict[str, int]) -> str:
    """Return the closed gates, in words; empty if none is."""
    closed = []
    if paused := counts.get("paused", 0):
        closed.append(f"{count(paused, 'pause')}")
    if counts.get("sealed"):
        closed.append("sealed")
    if counts.get("full"):
        closed.append("full")
    return ", ".join(closed)


OLDEST = ("oldest_ready", "oldest_waiting")
LISTED = ("unsettled", "ready", "leased", "held", "dead")
SECTIONS = (
    (
        "now",
        ("unsettled", "bytes", "delayed", "waiting", "ready", "leased", "backing_off", "held",
         "parked", "dead", "lanes", "results", "result_bytes"),
    ),
    (
        "since it was created",
        tuple(family.source for family in COUNTERS),
    ),
)  # fmt: skip
MEANINGS = {
    "unsettled": "messages in all states below",
    "bytes": "of their payloads",
    "delayed": "not due yet",
    "waiting": "behind another message, a barrier or a pause",
    "ready": "to be leased",
    "leased": "being handled",
    "backing_off": "failed, and will be tried again",
    "held": "their keys are blocked until an operator acts: retry, skip or bury",
    "parked": "without a place until a paused or stuck key opens",
    "dead": "dead letters",
    "lanes": "keys with unsettled messages",
    "results": "kept results",
    "oldest_ready": "since the oldest ready message took its place",
    "oldest_waiting": "since the oldest waiting message began to wait",
} | {family.source: family.help.removesuffix(SINCE) for family in COUNTERS}
