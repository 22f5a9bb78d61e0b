"""A bank whose books balance, whichever of its processes is killed.

    python bank.py              tellers and a worker in one process, until Ctrl-C or 500 transfers
    python bank.py teller       one that sends transfers until it is killed
    python bank.py audit        compares what was sent with what was done

BANK_URL names the database: an SQLite file, or a PostgreSQL. storm.py kills many such processes.
"""

import contextlib
import math
import os
import random
import sqlite3
import sys
import threading
import time
from collections.abc import Generator
from typing import Any

from interlock import Retry
from interlock.app import App
from interlock.outbox import Outbox

URL = os.environ.get("BANK_URL", "sqlite:///bank.db")
ROWS = "interlock_outbox" if URL.startswith("sqlite:") else "interlock.outbox"
START = 1000_00
NAMES = ("ann", "bob", "cid", "dora", "eve", "finn")
TABLES = (
    """create table if not exists account (name text primary key, balance bigint not null,
        sent bigint not null, handled bigint not null)""",
    # Written by the tellers: the number counts the transfers of an account.
    """create table if not exists ticket (account text, number bigint, cents bigint,
        primary key (account, number))""",
    # Written by the workers: the place counts the entries of an account.
    """create table if not exists entry (account text, place bigint, number bigint, cents bigint,
        primary key (account, place))""",
)

app = App(retry=Retry(attempts=None))  # a killed worker does not make a transfer a dead letter
outbox = Outbox(app, URL)


@app.task(keys=["account:{source}", "account:{target}"], transaction=outbox)
def transfer(db: Any, source: str, target: str, cents: int, numbers: dict[str, int]) -> None:
    """Moves money in the transaction that deletes the call's row."""
    for name, change in sorted([(source, -cents), (target, cents)]):
        (place,) = run(
            db,
            "update account set balance = balance + ?, handled = handled + 1 "
            "where name = ? returning handled",
            change,
            name,
        )
        run(db, "insert into entry values (?, ?, ?, ?)", name, place, numbers[name], change)


def send(db: Any) -> None:
    """Sends a transfer, in the transaction that writes its tickets; one in ten is rolled back."""
    source, target = random.sample(NAMES, 2)
    cents = random.randint(1, 100)
    numbers: dict[str, int] = {}
    with contextlib.suppress(Cancelled), transaction(db):
        for name, change in sorted([(source, -cents), (target, cents)]):
            (numbers[name],) = run(
                db, "update account set sent = sent + 1 where name = ? returning sent", name
            )
            run(db, "insert into ticket values (?, ?, ?)", name, numbers[name], change)
        outbox.send(db, transfer, source, target, cents, numbers)
        if random.random() < 0.1:
            raise Cancelled


def audit(db: Any) -> list[str]:
    """Returns what is wrong, in words. Nothing may be sent or handled meanwhile."""
    faults: list[str] = []
    tickets = set(every(db, "select account, number, cents from ticket"))
    entries = every(db, "select account, place, number, cents from entry order by account, place")
    done = {(name, number, cents) for name, _, number, cents in entries}
    # The row of a transfer that waits has two tickets.
    if lost := len(tickets - done) - 2 * waiting(db):
        faults.append(f"{lost} tickets have neither an entry nor a row that waits")
    if extra := done - tickets:
        faults.append(f"done and not sent: {sorted(extra)[:3]}")
    # Without gaps and duplicates, the nth entry of an account is its nth ticket.
    faults += [
        f"{name}: entry {place} is that of ticket {number}"
        for name, place, number, _ in entries
        if place != number
    ][:3]
    for name, balance in every(db, "select name, balance from account order by name"):
        total = START + sum(cents for account, _, _, cents in entries if account == name)
        if balance != total:
            faults.append(f"{name} has {balance} cents, and the entries say {total}")
    return faults


def waiting(db: Any) -> int:
    """Returns the number of transfers that wait for a worker."""
    ((rows,),) = every(db, f"select count(*) from {ROWS}")
    return int(rows)


def books(db: Any) -> str:
    """Returns the accounts as a table."""
    lines = ["account    sent   done    balance"]
    for name, sent, handled, balance in every(
        db, "select name, sent, handled, balance from account order by name"
    ):
        lines.append(f"{name:8}{sent:7}{handled:7}{balance / 100:11,.2f}")
    sent, handled, total = counts(db)
    return "\n".join([*lines, f"{'all':8}{sent:7}{handled:7}{total / 100:11,.2f}"])


def counts(db: Any) -> tuple[int, int, int]:
    """Returns the number of tickets and of entries, and the money in the bank in cents."""
    ((sent, handled, total),) = every(
        db, "select sum(sent), sum(handled), sum(balance) from account"
    )
    return int(sent), int(handled), int(total)


# -- The database ---------------------------------------------------------------------------------


def connect() -> Any:
    """Returns a connection that commits each statement outside transaction()."""
    if URL.startswith("sqlite:"):
        return sqlite3.connect(URL.removeprefix("sqlite:///"), timeout=60, isolation_level=None)
    import psycopg

    return psycopg.connect(URL, autocommit=True)


@contextlib.contextmanager
def transaction(db: Any) -> Generator[None]:
    """Commits at the end; an exception rolls back."""
    db.execute("begin immediate" if isinstance(db, sqlite3.Connection) else "begin")
    try:
        yield
    except BaseException:
        db.execute("rollback")
        raise
    db.execute("commit")


def run(db: Any, statement: str, *values: Any) -> Any:
    """Runs a statement, and returns its first row if it returns any."""
    mark = "?" if isinstance(db, sqlite3.Connection) else "%s"
    cursor = db.execute(statement.replace("?", mark), values)
    return cursor.fetchone() if cursor.description else None


def every(db: Any, query: str) -> list[Any]:
    """Returns all rows of a query."""
    rows: list[Any] = db.execute(query).fetchall()
    return rows


def create() -> None:
    """Creates the tables and the accounts, if they do not exist."""
    outbox.migrate()
    with contextlib.closing(connect()) as db:
        for statement in TABLES:
            db.execute(statement)
        for name in NAMES:
            run(db, "insert into account values (?, ?, 0, 0) on conflict do nothing", name, START)


class Cancelled(Exception):
    """A customer changed her mind before the commit."""


# -- The program ----------------------------------------------------------------------------------


def tell(most: float = math.inf) -> None:
    """Sends this number of transfers, or until the process ends."""
    with contextlib.closing(connect()) as db:
        while most > 0:
            send(db)
            time.sleep(random.random() * 0.02)
            most -= 1


def work() -> None:
    """Sends and handles 500 transfers in this process, and what an earlier one left."""
    with app.worker(threads=4), contextlib.closing(connect()) as db:
        teller = threading.Thread(target=tell, args=(500,), daemon=True)
        teller.start()
        while teller.is_alive() or waiting(db):
            time.sleep(0.5)
            sent, handled, total = counts(db)
            print(f"sent {sent:5}, done {handled:5}, in the bank {total / 100:,.2f}", flush=True)


def finish(db: Any) -> int:
    """Prints the accounts and what is wrong; returns the exit code of the program."""
    print(books(db))
    faults = audit(db)
    left = waiting(db)
    good = "the books balance" + (f"; transfers waiting: {left}" if left else "")
    print(*faults or [good], sep="\n")
    return 1 if faults else 0


def main() -> int:
    """Runs the command of the first argument."""
    if sys.argv[1:] not in ([], ["teller"], ["audit"]):
        sys.exit(__doc__)
    create()
    if sys.argv[1:] == ["teller"]:
        tell()
    if not sys.argv[1:]:
        work()
    with contextlib.closing(connect()) as db:
        return finish(db)


if __name__ == "__main__":
    sys.exit(main())
