"""`interlock cron`: an app's timetable, its next ticks, a call sent by hand, stored entries."""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import itertools
import json
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
ENTRY = (
    Flag("--task", "name of the task that is called", "NAME", required=True),
    Flag("--cron", "schedule: a cron expression, such as '0 3 * * *'", "EXPRESSION"),
    Flag("--tz", "time zone of --cron, such as Europe/Berlin (UTC)", "ZONE", default="UTC"),
    Flag("--every", "schedule: an interval, such as 15m or 1h30m", "PERIOD"),
    Flag("--missed", "what to do about ticks at which no worker ran (once)", default="once",
         choices=("skip", "once", "all")),
    Flag("--args", "positional arguments of the call, a JSON array", "JSON", default="[]"),
    Flag("--kwargs", "keyword arguments of the call, a JSON object", "JSON", default="{}"),
    Flag("--copies", "maximum calls that may be unsettled at once (no maximum)", "N", positive),
)  # fmt: skip
QUEUE = Flag(
    "--queue",
    "list, remove: stored entries of this queue, on which no task of the app need be",
    "QUEUE",
)
FLAGS = (ENGINE, QUEUE, COUNT, *ENTRY, JSON)


def add_to(commands: Any) -> None:
    """Declare the subcommand and its own subcommands."""
    parser = commands.add_parser(
        "cron",
        description=(
            "Shows, uses or changes the timetable of an app: the entries that @app.cron and "
            "@app.every declare, and those that are stored in its engine."
        ),
    )
    own = parser.add_subparsers(metavar="COMMAND", required=True)
    _declare(
        own, "list", entries, "list all entries with their last and next tick", (ENGINE, QUEUE)
    )
    _declare(
        own, "next", coming, "list the next ticks, by the clock of this machine", (COUNT,), "?"
    )
    _declare(own, "run", send, "send the call of a declared entry now", (ENGINE,), "NAME")
    _declare(own, "add", add, "store an entry in the engine", (*ENTRY, ENGINE), "NAME")
    _declare(own, "change", change, "replace a stored entry", (*ENTRY, ENGINE), "NAME")
    _declare(own, "remove", remove, "remove a stored entry", (ENGINE, QUEUE), "NAME")


def _declare(
    commands: Any,
    command: str,
    run: Callable[[App, argparse.Namespace], int],
    text: str,
    flags: tuple[Flag, ...],
    name: str = "",
) -> None:
    parser = commands.add_parser(
        command, help=text, description=f"{text[:1].upper()}{text[1:]}.", epilog=EXIT_CODES
    )
    parser.add_argument("app", metavar="MODULE:APP", help="where the app is")
    if name:
        optional = "?" if name == "?" else None
        parser.add_argument("name", metavar="NAME", nargs=optional, help="the entry's name")
    for each in (*flags, JSON):
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
    if name is not None and run in (coming, send) and name not in app.timetable:
        known = ", ".join(app.timetable) or "none: no task is under @app.cron or @app.every"
        return refuse(f"NAME is {name!r}, and {given.app} declares no such entry; allowed: {known}")
    if run in (send, add, change, remove):
        url = app.url or os.environ.get("INTERLOCK_URL") or "memory://"
        if url.startswith("memory:"):
            return refuse(
                f"the engine of {given.app} is {url}, which is in this process, where no worker "
                "runs; give --url, or set INTERLOCK_URL"
            )
    try:
        return run(app, given)
    except (ValueError, TypeError) as error:
        # The call is named as the subcommand is.
        return refuse(str(error).removeprefix(f"{run.__name__}(): "))
    except InterlockError as error:
        return failed(explained(str(error)))
    finally:
        app.close()


def entries(app: App, given: argparse.Namespace) -> int:
    """Print a line for each entry."""
    from interlock.errors import InterlockError

    timers: dict[str, list[Timer]] = {}
    stored: list[Timer] = []
    others: list[str] = []
    trouble: InterlockError | None = None
    declared = [] if given.queue else list(app.timetable.values())
    try:
        timers = {} if given.queue else _timers(app)
        stored = app.timetable.stored(given.queue)
        others = [] if given.queue else _unlisted(app)
    except InterlockError as error:
        # The app's declarations are printed anyway.
        trouble = error
    told = [_told(entry, timers) for entry in declared]
    told += [_told_stored(app, one, given.queue) for one in stored]
    if given.json:
        for one in told:
            emit(one)
    elif told:
        rows: list[tuple[str | int, ...]] = [
            (one["name"], one["schedule"], one["task"], one["queue"], one["missed"],
             one["last"] or "", one["next"] or "", "stored" if one["stored"] else "declared")
            for one in told
        ]  # fmt: skip
        print(
            table(
                ("entry", "schedule", "task", "queue", "missed", "last tick", "next tick", "from"),
                rows,
            )
        )
    elif given.queue:
        print(f"no entry is stored for queue {given.queue}")
    else:
        print(
            f"{given.app} has no timetable: no task is under @app.cron or @app.every, and no entry "
            "is stored"
        )
    for queue in others:
        print(
            f"interlock: entries are stored for queue {queue}, on which {given.app} has no task; "
            f"`interlock cron list {given.app} --queue {queue}` lists them",
            file=sys.stderr,
            flush=True,
        )
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
    job = entry.send(int(time.time()))
    if given.json:
        emit({"name": entry.name, "queue": entry.queue, "id": job.id})
    else:
        print(f"message {job.id} in queue {entry.queue}")
    return 0


def add(app: App, given: argparse.Namespace) -> int:
    """Store an entry."""
    is_new = app.timetable.add(given.name, *_task(app, given), **_options(given))
    return _done(given, is_new, "is stored" if is_new else "is stored already, exactly like this")


def change(app: App, given: argparse.Namespace) -> int:
    """Replace a stored entry."""
    try:
        app.timetable.change(given.name, *_task(app, given), **_options(given))
    except KeyError:
        return refuse(f"there is no stored entry {given.name!r}; `interlock cron add` stores one")
    return _done(given, True, "is changed")


def remove(app: App, given: argparse.Namespace) -> int:
    """Remove a stored entry."""
    if not app.timetable.remove(given.name, queue=given.queue):
        declared = "; the app declares it" if given.name in app.timetable else ""
        where = f" for queue {given.queue}" if given.queue else ""
        return refuse(f"there is no stored entry {given.name!r}{where}{declared}")
    return _done(given, True, "is removed")


def _done(given: argparse.Namespace, changed: bool, text: str) -> int:
    if given.json:
        emit({"name": given.name, "changed": changed})
    else:
        print(f"entry {given.name} {text}")
    return 0


def _task(app: App, given: argparse.Namespace) -> tuple[Any]:
    if given.task not in app.tasks:
        known = ", ".join(app.tasks) or "none"
        raise ValueError(f"--task is {given.task!r}; tasks of {given.app}: {known}")
    return (app.tasks[given.task],)


def _options(given: argparse.Namespace) -> dict[str, Any]:
    if (given.cron is None) == (given.every is None):
        raise ValueError("the schedule is missing or given twice; allowed: --cron or --every")
    return {
        "cron": given.cron,
        "every": given.every,
        "tz": given.tz,
        "missed": given.missed,
        "args": _json(given.args, "--args", list),
        "kwargs": _json(given.kwargs, "--kwargs", dict),
        "copies": given.copies,
    }


def _json(text: str, flag: str, kind: type) -> Any:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{flag} is {text!r}, which is not JSON: {error}") from None
    if not isinstance(found, kind):
        shape = "an array, such as [7]" if kind is list else 'an object, such as {"id": 7}'
        raise ValueError(f"{flag} is {text!r}; allowed: {shape}")
    return found


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


def _unlisted(app: App) -> list[str]:
    """Return the queues with stored entries that no task of the app is on."""
    return [queue for queue in app.timetable.other_queues() if app.timetable.stored(queue)]


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
        "stored": False,
    }


def _told_stored(app: App, one: Timer, queue: str | None) -> dict[str, Any]:
    from interlock.app.timetable.timer import schedule_of

    zone: dt.tzinfo = dt.UTC
    with contextlib.suppress(ValueError):
        # Perhaps a time zone that this machine does not know.
        zone = schedule_of(one.schedule).zone

    def when(tick: int) -> str | None:
        return dt.datetime.fromtimestamp(tick, zone).isoformat() if tick else None

    task = app.tasks.get(one.task)
    return {
        "name": one.name,
        "schedule": one.schedule,
        "task": one.task,
        "queue": queue or ("" if task is None else task.declared.queue),
        "missed": one.missed,
        "last": when(one.last),
        "next": when(one.tick),
        "stored": True,
        "args": one.stored.args if one.stored else [],
        "kwargs": one.stored.kwargs if one.stored else {},
        "copies": (one.stored and one.stored.copies) or None,
    }


def refuse(message: str) -> int:
    """Print wrong usage or bad input, and return the exit code for it."""
    print(f"interlock: {message}", file=sys.stderr, flush=True)
    return BAD_INPUT
