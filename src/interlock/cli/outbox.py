"""`interlock outbox COMMAND`: the tables of an outbox in PostgreSQL or an SQLite file."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import json
import os
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

from interlock.cli.flags import Flag, positive
from interlock.cli.queue.subcommand import URL, address
from interlock.cli.tables import printable

SHARED = (
    Flag("--database", "URL of the database: postgresql://… or sqlite:///PATH "
         "(INTERLOCK_POSTGRES_URL)", "URL"),
    Flag("--schema", "schema of the tables, in SQLite prefix of their names (interlock)", "NAME",
         default="interlock"),
    Flag("--json", "print JSON"),
)  # fmt: skip
MIGRATE = (Flag("--sql", "print the SQL and change nothing; with --database only what is missing"),)
DEAD = (Flag("--limit", "maximum number of rows (100)", "N", positive, 100),)
REQUEUE = (Flag("--all", "all dead rows"),)
EXPLAIN = (URL,)
CHECK = (
    Flag("--restored", "the database was restored: draw a new prefix for dedup strings, so that "
         "no row is taken for one that was handled before the restore"),
)  # fmt: skip


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "outbox",
        description="Manage the tables of an interlock.outbox.Outbox.",
        epilog="Exit codes: 0 done; 1 the database was not reached or refused it, or check found a "
        "fault; 2 wrong usage.",
    )
    actions = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, run, flags, words in (
        ("migrate", migrate, MIGRATE, "create the tables, or bring them to this release's version"),
        ("status", status, (), "show the number of rows, the oldest, gaps, and the relay"),
        ("dead", dead, DEAD, "list the rows whose calls are dead letters"),
        ("requeue", requeue, REQUEUE, "return dead rows to the order, and clear held ones"),
        ("explain", explain, EXPLAIN, "show what a row waits for, from its commit to its message"),
        ("check", check, CHECK, "check the tables"),
    ):
        action = actions.add_parser(name, help=words, description=f"{words.capitalize()}.")
        if name == "requeue":
            action.add_argument("ids", metavar="ID", nargs="*", type=positive, help="ids of rows")
        if name == "explain":
            action.add_argument("id", metavar="ID", type=positive, help="id of a row")
        for flag in (*flags, *SHARED):
            flag.add_to(action)
        action.set_defaults(run=_guarded(run), reads=run in (status, dead, explain))


def migrate(given: argparse.Namespace) -> int:
    """Create or change the tables, or print how."""
    schemas = _module(given, "schema")
    if given.sql:
        since = 0
        if given.database:
            with _connected(given) as connection:
                since = schemas.installed(connection, given.schema) or 0
        text = schemas.script(given.schema, since)
        print(json.dumps({"sql": text}) if given.json else text, end="" if not given.json else "\n")
        return 0
    with _connected(given, "rwc") as connection:
        before, after = schemas.migrate(connection, given.schema)
    if given.json:
        print(json.dumps({"before": before, "version": after}))
    elif before == after:
        print(f"the outbox in the schema {given.schema} has version {after} already")
    else:
        print(f"the outbox in the schema {given.schema} has version {after} now")
    return 0


def status(given: argparse.Namespace) -> int:
    """Print the counts."""
    admin = _module(given, "admin")
    with _connected(given) as connection:
        found = admin.status(connection, given.schema)
    if given.json:
        print(json.dumps(dataclasses.asdict(found)))
        return 0
    oldest = "" if found.oldest is None else f", the oldest {found.oldest:.3g} s old"
    print(f"waiting  {found.waiting}")
    print(f"relayed  {found.relayed}")
    print(f"rows     {found.waiting + found.relayed}{oldest}")
    print(f"held     {found.held}")
    print(f"dead     {found.dead}")
    print(f"results  {found.results}")
    print(f"gaps     {found.gaps}")
    print(f"relay    {_relay(found)}")
    return 0


def _relay(found: Any) -> str:
    """Return what the relay does."""
    if found.relay is None:
        return "none: no worker of the app runs, or none reaches the database"
    if (found.reported or 0.0) > STANDING:
        return f"{found.relay} stands still: its last report is {found.reported:.0f} s old"
    return printable(f"{found.relay}, waits: {found.waits}" if found.waits else found.relay)


def dead(given: argparse.Namespace) -> int:
    """List dead rows."""
    admin = _module(given, "admin")
    with _connected(given) as connection:
        found = admin.dead(connection, given.schema, given.limit)
    for row in found:
        if given.json:
            print(json.dumps(dataclasses.asdict(row)))
            continue
        error = row.error.partition("\n")[0]
        print(
            printable(f"{row.id}  {row.task}  {', '.join(row.keys)}  attempts {row.attempts}  "
                      f"{error}")
        )  # fmt: skip
    return 0


def requeue(given: argparse.Namespace) -> int:
    """Return dead rows."""
    admin = _module(given, "admin")
    if bool(given.ids) == given.all:
        raise ValueError("give ids of rows, or --all")
    with _connected(given) as connection:
        found = admin.requeue(connection, given.schema, None if given.all else given.ids)
    print(json.dumps({"ids": found}) if given.json else f"{len(found)} rows requeued")
    missing = sorted(set(given.ids) - set(found))
    if missing:
        print(f"interlock: not dead or held: {', '.join(map(str, missing))}", file=sys.stderr)
    return 1 if missing else 0


def explain(given: argparse.Namespace) -> int:
    """Print what a row waits for."""
    from interlock.outbox import explanation

    with contextlib.ExitStack() as opened:
        connection = opened.enter_context(_connected(given))
        operator = None
        # The queues in memory are those of the worker's own process.
        if (url := address(given)) and not url.startswith("memory:"):
            from interlock.client.admin.operator import Operator
            from interlock.client.admin.server import Server
            from interlock.client.faces.client import connect

            operator = Operator(Server(opened.enter_context(connect(url))))
        admin = _module(given, "admin")
        found = explanation.explain(admin, connection, given.schema, given.id, operator)
    if given.json:
        print(json.dumps(dataclasses.asdict(found), default=os.fsdecode))
    else:
        from interlock.explanation import printable as printable_lines

        print(printable_lines(str(found), keep="\n"))
    return 0


def check(given: argparse.Namespace) -> int:
    """Check the tables."""
    admin, schemas = _module(given, "admin"), _module(given, "schema")
    with _connected(given) as connection:
        found = admin.check(connection, given.schema)
        if given.restored:
            schemas.draw_prefix(connection, given.schema)
    if given.json:
        print(json.dumps({"faults": found}))
    else:
        print("\n".join(found) or "no fault found")
    return 1 if found else 0


def _is_file(given: argparse.Namespace) -> bool:
    from interlock.outbox.postgres.driver import named_url

    return (named_url(given.database) or "").startswith("sqlite:")


def _module(given: argparse.Namespace, name: str) -> Any:
    """Return the module of the database's kind."""
    package = "interlock.outbox.sqlite" if _is_file(given) else "interlock.outbox.postgres"
    return importlib.import_module(f"{package}.{name}")


def _connected(given: argparse.Namespace, mode: str = "rw") -> Any:
    from interlock.outbox.postgres.driver import connect, database_url

    url = database_url(given.database)
    if _is_file(given):
        from interlock.outbox.sqlite import database

        return contextlib.closing(database.connect(database.path_of(url), mode))
    return contextlib.closing(connect(url, "interlock outbox"))


def _guarded(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    def guarded(given: argparse.Namespace) -> int:
        try:
            return run(given)
        except (ValueError, ImportError) as error:
            print(f"interlock: {error}", file=sys.stderr)
            return 2
        except Exception as error:
            from interlock.errors import InterlockError
            from interlock.outbox.postgres.driver import psycopg
            from interlock.outbox.postgres.rights import with_grants
            from interlock.outbox.versions import WrongVersion

            known = (WrongVersion, InterlockError, sqlite3.Error)
            if not isinstance(error, known) and (
                _is_file(given) or not isinstance(error, psycopg().Error)
            ):
                raise
            text = with_grants(error, "monitor", given.schema) if given.reads else str(error)
            print(f"interlock: {printable(text.strip())}", file=sys.stderr)
            return 1

    return guarded


STANDING = 30.0
"""Seconds after which a relay without a report stands still."""
