"""The app that workers of the tests import: its handlers note what they do in a database."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

from interlock import current_lease
from interlock.app import App
from interlock.retry import Retry

app = App(audit=True, retry=Retry(first=0.01))

SCHEMA = """
create table if not exists begun (task, number, process, attempt, token);
create table if not exists done (task, number, process, attempt, token);
create table if not exists refused (task, number, process, attempt, token);
create table if not exists account (name primary key, cents, token);
create table if not exists moved (number primary key);
"""


def made(path: str) -> sqlite3.Connection:
    """The database, made before any worker opens it: a change of the journal's mode next to others
    fails immediately as locked, whatever the timeout."""
    opened = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
    opened.executescript(f"pragma journal_mode = wal; {SCHEMA}")
    return opened


def database() -> sqlite3.Connection:
    return sqlite3.connect(os.environ["SHOP"], timeout=30, isolation_level=None)


def note(table: str, number: int) -> None:
    lease = current_lease()
    row = ("", number, os.getpid(), lease.attempt, lease.token)
    opened = database()
    opened.execute(f"insert into {table} values (?, ?, ?, ?, ?)", row)
    opened.close()


@app.task(keys="add:{number}")
def add(number: int) -> None:
    """Takes no time."""


@app.task(keys="slow:{number}")
def slow(number: int, seconds: float) -> None:
    """Takes its time."""
    note("begun", number)
    time.sleep(seconds)
    note("done", number)


@app.task(keys="slow:{number}")
async def slow_async(number: int, seconds: float) -> None:
    """Takes its time, awaiting."""
    import asyncio

    note("begun", number)
    await asyncio.sleep(seconds)
    note("done", number)


@app.task(keys="key:{number}")
def until_file(number: int, path: str) -> None:
    """Ends when the file is there."""
    note("begun", number)
    while not os.path.exists(path):
        time.sleep(0.01)
    note("done", number)


@app.task(keys="account:{name}")
def fenced(name: str, cents: int, path: str) -> None:
    """Writes an account unless a later lease has; the first time it waits for the file before it
    does. 1 cent is added the first time, 2 later."""
    lease = current_lease()
    note("begun", cents)
    run = 1 + os.path.exists(f"{path}.begun")
    Path(f"{path}.begun").touch()
    while run == 1 and not os.path.exists(path):
        time.sleep(0.01)
    opened = database()
    opened.execute(
        "insert into account values (?, ?, ?) on conflict (name) do update set "
        "cents = excluded.cents, token = excluded.token where token <= excluded.token",
        (name, cents * 100 + run, lease.token),
    )
    opened.close()
    note("done", cents)


@app.task(keys=["account:{source}", "account:{target}"], shared="rates")
def move(number: int, source: str, target: str, cents: int) -> None:
    """A transfer, done once whatever happens."""
    opened = database()
    opened.execute("begin immediate")
    fresh = opened.execute("insert or ignore into moved values (?)", (number,)).rowcount
    if fresh:
        for name, change in ((source, -cents), (target, cents)):
            opened.execute(
                "insert into account values (?, ?, 0) on conflict (name) do update set "
                "cents = cents + excluded.cents",
                (name, change),
            )
    opened.execute("commit")
    opened.close()
    note("done", number)


@app.task(keys="key:{number}")
def until_lost(number: int) -> None:
    """Ends when it has lost its lease, at its first attempt."""
    note("begun", number)
    while current_lease().attempt == 1 and not current_lease().lost:
        time.sleep(0.01)
    note("done", number)


@app.task(keys="key:{number}")
def die(number: int) -> None:
    """Ends its own process, at its first attempt."""
    note("begun", number)
    if current_lease().attempt == 1:
        os._exit(9)
    note("done", number)


@app.task(timeout=0.2, retry=Retry(2, first=0))
def hang(path: str) -> None:
    """Hangs until the file is there."""
    note("begun", 0)
    while not os.path.exists(path):
        time.sleep(0.01)
