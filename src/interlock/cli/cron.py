"""`interlock cron`: an app's timetable, its next ticks, and a call sent by hand."""

from __future__ import annotations

import argparse
import datetime as dt
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag, positive
from interlock.cli.queue.subcommand import BAD_INPUT, EXIT_CODES, JSON, emit, explained, failed
from interlock.cli.tables import table

if TYPE_CHECKING:
    from interlock.app.app import App
    from interlock.app.timetable import Entry
    from interlock.app.timetable.timer import Timer

ENGINE = Flag("--url", "the engine; overrides the app's own and INTERLOCK_URL", "URL")
COUNT = Flag("--count", "number of ticks of each entry (5)", "N", positive, 5)
FLAGS = (ENGINE, COUNT, JSON)


def add_to(commands: Any) -> None:
    """Declare the subcommand and its own subcommands."""
    parser = commands.add_parser(
        "cron",
        description=(
            "Shows or uses the timetable of an app, which @app.cron and @app.every declare."
        ),
    )
    own = parser.add_subparsers(metavar="COMMAND", required=True)
    _declare(own, "list", entries, "list all entries with their last and next tick", ENGINE)
    _declare(
        own, "next", coming, "list the next ticks, by the clock of this machine", COUNT, name="?"
    )
    _declare(own, "run", send, "send the call of an entry now", ENGINE, name="NAME")


def _declare(
    commands: Any,
    command: str,
    run: Callable[[App, argparse.Namespace], int],
    text: str,
    flag: Flag,
    name: str = "",
) -> None:
    parser = commands.add_parser(
        command, help=text, description=f"{text[:1].upper()}{text[1:]}.", epilog=EXIT_CODES
    )
    parser.add_argument("app", metavar="MODULE:APP", help="where the app is")
    if name:
        optional = "?" if name == "?" else None
        parser.add_argument("name", metavar="NAME", nargs=optional, help="the entry's name")
    for each in (flag, JSON):
        each.add_to(parser)
    parser.set_defaults(run=lambda given: _on_app(given, run))


def _on_app(given: argparse.Namespace, run: Callable[[App, argparse.Namespace], int]) -> int:
    from interlock.app.app import App
    from interlock.errors import InterlockError
    from interlock.worker.process.app_reference import NoApp, load

    # As in `interlock worker`: the folder of the command is not a place for a program's modules.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        app = load(given.app, App)
    except NoApp as error:
        sys.stderr.write(error.traceback)
        return refuse(str(error))
    if getattr(given, "url", None):
        app.url = given.url
    name = getattr(given, "name", None)
    if name is not None and name not in app.timetable:
        known = ", ".join(app.timetable) or "none: no task is under @app.cron or @app.every"
        return refuse(f"NAME is {name!r}, and {given.app} has no such entry; allowed: {known}")
    try:
        return run(app, given)
    except (ValueError, TypeError) as error:
        return refuse(str(error))
    except InterlockError as error:
        return failed(explained(str(error)))
    finally:
        app.close()


def entries(app: App, given: argparse.Namespace) -> int:
    """Print a line for each entry."""
    from interlock.errors import InterlockError

    timers: dict[str, list[Timer]] = {}
    trouble: InterlockError | None = None
    try:
        timers = _timers(app)
    except InterlockError as error:
        # The app's declarations are printed anyway.
        trouble = error
    told = [_told(entry, timers) for entry in app.timetable.values()]
    if given.json:
        for one in told:
            emit(one)
    elif told:
        rows: list[tuple[str | int, ...]] = [
            (one["name"], one["schedule"], one["task"], one["queue"], one["missed"],
             one["last"] or "", one["next"] or "")
            for one in told
        ]  # fmt: skip
        print(
            table(("entry", "schedule", "task", "queue", "missed", "last tick", "next tick"), rows)
        )
    else:
        print(f"{given.app} has no timetable: no task is under @app.cron or @app.every")
    if trouble is not None:
        return failed(f"cannot read which ticks were fired: {explained(str(trouble))}")
    return 0


def coming(app: App, given: argparse.Namespace) -> int:
    """Print the next ticks of one entry, or of all."""
    chosen = [app.timetable[given.name]] if given.name else list(app.timetable.values())
    found = [
        (tick, entry) for entry in chosen for tick in itertools.islice(ticks(entry), given.count)
    ]
    for tick, entry in sorted(found, key=lambda one: (one[0], one[1].name)):
        when = dt.datetime.fromtimestamp(tick, entry.schedule.zone).isoformat()
        if given.json:
            emit({"name": entry.name, "time": tick, "when": when})
        else:
            print(f"{when}  {entry.name}")
    return 0


def send(app: App, given: argparse.Namespace) -> int:
    """Send the call of an entry."""
    entry = app.timetable[given.name]
    url = app.url or os.environ.get("INTERLOCK_URL") or "memory://"
    if url.startswith("memory:"):
        return refuse(
            f"the engine of {given.app} is {url}, which is in this process, so no worker would "
            "handle it; give --url, or set INTERLOCK_URL"
        )  # fmt: skip
    job = entry.send(int(time.time()))
    if given.json:
        emit({"name": entry.name, "queue": entry.queue, "id": job.id})
    else:
        print(f"message {job.id} in queue {entry.queue}")
    return 0


def ticks(entry: Entry) -> Iterator[int]:
    """Yield the ticks from now on."""
    tick = entry.schedule.after(time.time())
    while True:
        yield tick
        tick = entry.schedule.after(tick)


def _timers(app: App) -> dict[str, list[Timer]]:
    from interlock.app.timetable.keeper import Keeper
    from interlock.app.timetable.runner import by_queue

    queues = by_queue(app.timetable.values())
    return {name: Keeper(name, found, app._open).pending() for name, found in queues.items()}


def _told(entry: Entry, timers: dict[str, list[Timer]]) -> dict[str, Any]:
    own = [one for one in timers.get(entry.queue, []) if one.name == entry.name]
    current = [one for one in own if one.is_of(entry)]
    last = max((one.last for one in own), default=0)

    def when(tick: int) -> str | None:
        return dt.datetime.fromtimestamp(tick, entry.schedule.zone).isoformat() if tick else None

    return {
        "name": entry.name,
        "schedule": entry.schedule.text,
        "task": entry.task.name,
        "queue": entry.queue,
        "missed": entry.missed,
        "last": when(last),
        "next": when(current[0].tick if current else 0),
    }


def refuse(message: str) -> int:
    """Print wrong usage or bad input, and return the exit code for it."""
    print(f"interlock: {message}", file=sys.stderr, flush=True)
    return BAD_INPUT
