"""`interlock queue watch`: a live queue, with rates, its hot keys and their roots."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag, positive, seconds
from interlock.cli.queue import show
from interlock.cli.queue.subcommand import ask, declare, emit, on_queue
from interlock.cli.queue.views.overview import aged, gates_text
from interlock.cli.queue.views.watch_all import CLEAR, fitted, watch_all
from interlock.cli.tables import printable, table
from interlock.runtime.queue_figures import RATED, rates_of

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator
    from interlock.explanation import ExplainNode

EVERY = Flag("--every", "refresh every S seconds (2)", "S", seconds, 2.0)
COUNT = Flag("--count", "exit after this many refreshes", "N", positive)


@dataclass(frozen=True)
class Look:
    """A snapshot of a queue."""

    counts: dict[str, int]
    rates: dict[str, float]
    """Each counter's increase per second; empty in the first snapshot."""

    hot: list[tuple[bytes, int, ExplainNode | None]]
    """The busiest keys, their depth, and the message in front."""

    oldest: ExplainNode | None
    """The longest-waiting message among those in front of the busiest keys and behind them."""

    leases: list[ExplainNode]
    """Leased messages among those that were read; the longest held first."""


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "watch",
        watch,
        "show a queue live: rates, hot keys, their holders, the longest waits; or all queues",
        (EVERY, COUNT),
        about="Without QUEUE all queues, one line each. On a terminal one screen, else one line "
        "per refresh. Ctrl-C ends it.",
        queue="[QUEUE]",
    )


def watch(given: argparse.Namespace) -> int:
    """Take snapshots repeatedly."""
    if given.queue is None:
        return ask(given, lambda operator: watch_all(operator, given))
    return on_queue(given, lambda operator: _watch(operator, given))


def _watch(operator: Operator, given: argparse.Namespace) -> int:
    screen = sys.stdout.isatty() and not given.json
    before: dict[str, int] | None = None
    asked = 0.0
    looks = 0
    while True:
        now, counts = time.monotonic(), operator.stats(given.queue)
        passed = now - asked
        rates = {} if before is None else rates_of(before, counts, passed)
        seen = look(operator, given.queue, counts, rates)
        if given.json:
            emit(record(given.queue, seen))
        elif screen:
            print(CLEAR + fitted(page(given.queue, seen)), flush=True)
        else:
            print(line(given.queue, seen), flush=True)
        looks += 1
        if looks == given.count:
            return 0
        before, asked = counts, now
        time.sleep(given.every)


def look(operator: Operator, queue: str, counts: dict[str, int], rates: dict[str, float]) -> Look:
    """Take a snapshot. That costs a bounded number of calls, however much is in the queue."""
    busiest = operator.hot_keys(queue, SHOWN, pages=PAGES)
    nodes: dict[int, ExplainNode] = {}
    hot = []
    for key, depth in busiest:
        found = operator.explain(queue, key=key, limit=FOLLOWED)
        front = found.nodes[0] if found else None
        nodes.update({node.id: node for node in found.nodes} if found else {})
        hot.append((key, depth, front))
    waiting = [node for node in nodes.values() if node.state in ("waiting", "ready")]
    leases = [node for node in nodes.values() if node.state == "leased"]
    return Look(
        counts=counts,
        rates=rates,
        hot=hot,
        oldest=max(waiting, key=lambda node: node.age, default=None),
        leases=sorted(leases, key=lambda node: -(node.held_for or 0))[:SHOWN],
    )


def page(queue: str, seen: Look) -> str:
    """Return a snapshot as one screen."""
    counts, gates = seen.counts, gates_text(seen.counts)
    lines = [f"{printable(queue)}  {time.strftime('%H:%M:%S')}{'  ' + gates if gates else ''}", ""]
    lines.append(table(STATES, [tuple(counts[name] for name in STATES)]))
    rates = [(name, f"{seen.rates[name]:,.1f} /s" if seen.rates else "") for name in RATED]
    lines += ["", "   ".join(f"{name} {rate}".rstrip() for name, rate in rates)]
    if seen.hot:
        deepest = seen.hot[0][1]
        rows = [
            (depth, show.short_key(key), show.bar(depth, deepest, BAR), *brief(front))
            for key, depth, front in seen.hot
        ]
        head = ("depth", "hot key", "", "in front", "state", "by", "for")
        lines += ["", table(head, rows)]
    if seen.leases:
        rows_of = [
            (str(node.id), printable(node.consumer), show.seconds(node.held_for),
             show.seconds(node.lease_left))
            for node in seen.leases
        ]  # fmt: skip
        lines += ["", table(("leased", "by", "for", "left"), rows_of)]
    if seen.oldest:
        lines += ["", f"waits longest: message {seen.oldest.id}, {show.seconds(seen.oldest.age)}"]
    return "\n".join(lines)


def line(queue: str, seen: Look) -> str:
    """Return a snapshot as one line."""
    counts = seen.counts
    parts = [f"{name.replace('_', ' ')} {counts[name]:,}" for name in STATES if counts[name]]
    parts += [f"{name} {seen.rates[name]:,.1f}/s" for name in RATED if seen.rates]
    if gates := gates_text(counts):
        parts.append(gates)
    if seen.hot:
        key, depth, _ = seen.hot[0]
        parts.append(f"hottest {show.short_key(key)} {depth:,}")
    if seen.oldest:
        parts.append(f"oldest waiting {show.seconds(seen.oldest.age)}")
    return f"{time.strftime('%H:%M:%S')} {printable(queue)}  {', '.join(parts) or 'empty'}"


def brief(node: ExplainNode | None) -> tuple[str, str, str, str]:
    """Return the message in front of a key: its id, its state, its holder and for how long."""
    if node is None:
        return "", "", "", ""
    # Separate columns: a long name is shortened, and nothing else.
    consumer, held = node.consumer, show.seconds(node.held_for) if node.consumer else ""
    return str(node.id), node.state.replace("_", " "), consumer or "", held


def record(queue: str, seen: Look) -> dict[str, Any]:
    """Return a snapshot for JSON."""
    oldest = seen.oldest
    return {
        "queue": queue,
        "time": time.time(),
        "counts": aged(seen.counts),
        "rates": seen.rates,
        "hot": [
            {"key": show.as_json(key), "depth": depth, "front": front.id if front else None}
            for key, depth, front in seen.hot
        ],
        "oldest_waiting": {"id": oldest.id, "age": oldest.age} if oldest else None,
        "leases": [
            {"id": node.id, "consumer": node.consumer, "held_for": node.held_for,
             "lease_left": node.lease_left}
            for node in seen.leases
        ],
    }  # fmt: skip


STATES = (
    *("unsettled", "delayed", "waiting", "ready", "leased", "backing_off", "held", "parked"),
    "dead",
)
SHOWN = 8
BAR = 10
PAGES = 8
FOLLOWED = 16
