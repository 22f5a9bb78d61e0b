"""`interlock hub info`: show the figures of a running hub, once or repeatedly with rates."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import groupby

from interlock.cli.flags import Flag, seconds
from interlock.cli.hub.connection import EXIT_CODES, FLAGS, ask
from interlock.cli.tables import printable
from interlock.explanation import printable_json
from interlock.hub import introspection
from interlock.hub.client import Client
from interlock.hub.serve.figures import FIGURES, TABLE_FIGURES, Figure, MetricKind, Unit

WATCH = Flag("--watch", "refresh every S seconds, and show rates", "S", seconds)


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "info",
        help="show the figures of a running hub",
        description="Print the figures of a hub by section: version, uptime, connections, "
        "messages, disconnections and why, memory.",
        epilog=EXIT_CODES,
    )
    for flag in (*FLAGS, WATCH):
        flag.add_to(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print the figures."""
    return ask(given, lambda client: show(client, given))


def show(client: Client, given: argparse.Namespace) -> int:
    """Query and print, with --watch until Ctrl-C."""
    rates: dict[str, float] = {}
    before: Mapping[str, int | float | str] | None = None
    asked = 0.0
    while True:
        now, found = time.monotonic(), introspection.info(client)
        if before is not None:
            rates = dict(changes(before, found, now - asked))
        if given.json:
            record = {**found, "rates": rates} if given.watch else found
            print(printable_json(record), flush=True)
        else:
            again = given.watch and sys.stdout.isatty()
            print((CLEAR if again else "") + summary(found, rates), flush=True)
        if given.watch is None:
            return 0
        before, asked = found, now
        time.sleep(given.watch)


def summary(info: Mapping[str, int | float | str], rates: Mapping[str, float]) -> str:
    """Return the figures by section, without those that the server does not report."""
    shown = [figure for figure in FIGURES if figure.section and figure.name in info]
    width = max((len(figure.label) for figure in shown), default=0)
    sections = []
    for section, figures in groupby(shown, key=lambda figure: figure.section):
        lines = [section]
        for figure in figures:
            line = f"  {figure.label:<{width}}  {value(figure, info[figure.name])}"
            if figure.name in rates:
                line += f"  ({amount(figure.unit, rates[figure.name])}/s)"
            lines.append(line)
        sections.append("\n".join(lines))
    sections += (table_summary(name, found) for name, found in introspection.tables(info).items())
    return "\n\n".join(sections) + "\n"


def table_summary(name: str, found: Mapping[str, int]) -> str:
    """Return the figures of one table."""
    shown = [figure for figure in TABLE_FIGURES if figure.name in found]
    width = max((len(figure.label) for figure in shown), default=0)
    lines = [f"  {figure.label:<{width}}  {value(figure, found[figure.name])}" for figure in shown]
    return "\n".join([f"table {printable(name)}", *lines])


def changes(
    before: Mapping[str, int | float | str], now: Mapping[str, int | float | str], passed: float
) -> Iterator[tuple[str, float]]:
    """Yield each counter's increase per second."""
    for figure in FIGURES:
        old, new = before.get(figure.name), now.get(figure.name)
        if (
            figure.kind is MetricKind.COUNTER
            and isinstance(old, int | float)
            and isinstance(new, int | float)
        ):
            # A restarted hub counts from 0.
            yield figure.name, max(new - old, 0) / passed


def value(figure: Figure, given: int | float | str) -> str:
    """Return a figure formatted for people."""
    if isinstance(given, str) or figure.kind is MetricKind.LABEL:
        return printable(str(given)) or NOTHING
    return amount(figure.unit, given)


def amount(unit: Unit, number: float) -> str:
    """Return a number with its unit."""
    if unit is Unit.SECONDS:
        return (
            duration(int(number)) if number >= 60 or isinstance(number, int) else f"{number:.2f} s"
        )
    if unit is Unit.MOMENT:
        return moment(number) if number else NOTHING
    if unit is Unit.BYTES:
        return size(number)
    return f"{number:,}" if isinstance(number, int) else f"{number:,.1f}"


def moment(number: float) -> str:
    """Return a time as its date and time of day, UTC."""
    return f"{datetime.fromtimestamp(number, UTC):%Y-%m-%d %H:%M:%S}Z"


def duration(seconds: int) -> str:
    """Return a duration in days, hours, minutes and seconds; the two largest of them."""
    parts: list[str] = []
    for name, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, length)
        if count or parts or name == "s":
            parts.append(f"{count} {name}")
    return " ".join(parts[:2])


def size(count: float) -> str:
    """Return a number of bytes, in units of 1024."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


NOTHING = "-"
CLEAR = "\x1b[H\x1b[2J"
