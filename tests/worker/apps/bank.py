"""The app of the frozen workers: its handlers write an account, with a fence and without.

The statements are those of docs/explanation/idempotence-and-fencing.md.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from pathlib import Path

from interlock import current_lease
from interlock.app import App
from interlock.retry import Retry
from tests.worker.apps import shop

app = App(audit=True, retry=Retry(first=0.01))

TABLE = """\
create table if not exists account (
    name text primary key,
    cents bigint not null,
    token bigint not null
);
"""
FENCED_SQLITE = """\
insert into account (name, cents, token) values (?, ?, ?)
on conflict (name) do update set cents = excluded.cents, token = excluded.token
where account.token <= excluded.token;
"""
FENCED_POSTGRESQL = """\
insert into account (name, cents, token) values ($1, $2, $3)
on conflict (name) do update set cents = excluded.cents, token = excluded.token
where account.token <= excluded.token;
"""


def unfenced(statement: str) -> str:
    """The same statement by somebody who left its last line out."""
    return statement.rpartition("\nwhere")[0] + ";"


@app.task(keys="account:{name}")
def deposit(name: str, cents: int, fenced: bool, gate: str) -> None:
    """Writes an account; the first time it waits before that until the gate is there, if any."""
    lease = current_lease()
    shop.note("begun", cents)
    first = gate and not os.path.exists(f"{gate}.begun")
    if gate:
        Path(f"{gate}.begun").touch()
    while first and not os.path.exists(gate):
        time.sleep(0.01)
    took = write(name, cents, lease.token, fenced)
    shop.note("done" if took else "refused", cents)


def write(name: str, cents: int, token: int, fenced: bool) -> bool:
    """Returns whether the store took it.

    ``BANK`` is the path of a SQLite, or the URL of a PostgreSQL.
    """
    bank = os.environ["BANK"]
    if bank.startswith("postgresql:"):
        statement = FENCED_POSTGRESQL if fenced else unfenced(FENCED_POSTGRESQL)
        prepared = f"prepare deposit (text, bigint, bigint) as {statement}"
        said = psql(bank, f"{prepared}\nexecute deposit ('{name}', {cents}, {token});")
        return said.split()[-3:] == ["INSERT", "0", "1"]
    statement = FENCED_SQLITE if fenced else unfenced(FENCED_SQLITE)
    opened = sqlite3.connect(bank, timeout=30, isolation_level=None)
    try:
        return opened.execute(statement, (name, cents, token)).rowcount == 1
    finally:
        opened.close()


def psql(url: str, statements: str) -> str:
    """The output of PostgreSQL's own client: no other is needed for a test."""
    words = ["psql", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", url]
    done = subprocess.run(words, input=statements, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout
