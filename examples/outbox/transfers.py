"""Transfers between accounts in PostgreSQL, each exactly once, with no other server.

Run it with the URL of a database: python transfers.py postgresql://localhost/bank
"""

import sys
import time

import psycopg

from interlock.app import App
from interlock.outbox import Outbox
from interlock.outbox.postgres.schema import migrate

URL = sys.argv[1]
app = App("memory://")
outbox = Outbox(app, URL)


@app.task(keys=["account:{source}", "account:{target}"], transaction=outbox)
def transfer(db: psycopg.Connection, source: str, target: str, cents: int) -> None:
    """Runs in the transaction that has deleted the call's row."""
    change = "update account set cents = cents + %s where name = %s"
    db.execute(change, (-cents, source))
    db.execute(change, (cents, target))


def main() -> None:
    """Sends ten transfers, one of which is rolled back, and prints the accounts."""
    with psycopg.connect(URL, autocommit=True) as db:
        migrate(db, "interlock")
        db.execute("create table if not exists account (name text primary key, cents bigint)")
        db.execute("insert into account values ('ann', 1000), ('bob', 0) on conflict do nothing")
        with app.worker(threads=4):
            for number in range(10):
                with db.transaction(force_rollback=number == 9):
                    outbox.send(db, transfer, "ann", "bob", 10)
            while db.execute("select 1 from interlock.outbox limit 1").fetchone():
                time.sleep(0.01)
        for name, cents in db.execute("select name, cents from account order by name"):
            print(name, cents)


if __name__ == "__main__":
    main()
