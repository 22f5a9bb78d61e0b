"""Order of three outboxes in PostgreSQL: by id, by id below the oldest transaction, by the number
that `interlock.outbox` draws at the commit.

    python -m benchmarks.workers.outbox_order [SECONDS]

Transactions increment a counter of an account, which locks its row, and put a message with the new
count, after the lock or, in half of them, before it. A relay reads and deletes the rows. A message
is out of order if its count is below one of the same account that was relayed before it.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from typing import Any, NamedTuple

import psycopg

from benchmarks.workers.postgresql import cluster, free_port
from interlock.outbox.postgres import schema

TABLES = """
drop table if exists plain, account, other;
create table plain (id bigint generated always as identity primary key,
    xid xid8 not null default pg_current_xact_id(), account int not null, count bigint not null);
create table account (id int primary key, count bigint not null default 0) with (fillfactor = 20);
insert into account (id) select generate_series(0, 9);
create table other (id int);
truncate interlock.outbox, interlock.outbox_commits;
"""
PUT = {
    "number": "insert into interlock.outbox (queue, task, payload, keys, shared, options) "
    "values ('q', 't', %(count)s::text::bytea, array[%(account)s::text::bytea], '{}', '{}') "
    "returning id",
    "id": "insert into plain (account, count) values (%(account)s, %(count)s) returning id",
}
CORRECT = {
    "number": "update interlock.outbox set payload = %(count)s::text::bytea where id = %(id)s",
    "id": "update plain set count = %(count)s where id = %(id)s",
}
READ = {
    "number": "with x as (select o.id, c.number from interlock.outbox_commits c "
    "join interlock.outbox o using (batch) order by c.number, o.id limit %(limit)s), "
    "d as (delete from interlock.outbox o using x where o.id = x.id "
    "returning x.number, o.id, o.keys, o.payload), "
    "e as (delete from interlock.outbox_commits c using d where c.number = d.number) "
    "select convert_from(keys[1], 'utf8')::int, convert_from(payload, 'utf8')::int from d "
    "order by number, id",
    "id": "with x as (select id from plain where {} order by id limit %(limit)s), "
    "d as (delete from plain o using x where o.id = x.id returning o.*) "
    "select account, count from d order by id",
}
WHERE = {"id": "true", "horizon": "xid < pg_snapshot_xmin(pg_current_snapshot())"}
SESSIONS = 8


class Found(NamedTuple):
    """Counts of one run."""

    relayed: int
    meanwhile: int
    """Those relayed while the transactions ran."""
    misordered: int


def run(url: str, how: str, early: bool, seconds: float, long: bool = False) -> Found:
    """Run transactions and a relay for a while, then relay the rest.

    Args:
        how: the relay reads by ``id``, by id below the ``horizon``, or by ``number``.
        early: half of the messages are put before their account is locked.
        long: one transaction that has nothing to do with it stays open.
    """
    table = "number" if how == "number" else "id"
    stop = threading.Event()

    def produce(seed: int) -> None:
        chance = random.Random(seed)
        with psycopg.connect(url) as db:
            db.execute("set synchronous_commit = off")
            db.commit()
            while not stop.is_set():
                values = {"account": chance.randrange(10), "count": 0}
                first = early and chance.random() < 0.5
                if first:
                    values["id"] = asked(db, PUT[table], values)[0][0]
                increment = "update account set count = count + 1 where id = %(account)s "
                values["count"] = asked(db, f"{increment} returning count", values)[0][0]
                if first:
                    db.execute(CORRECT[table].encode(), values)
                else:
                    time.sleep(chance.choice([0, 0.002]))
                    db.execute(PUT[table].encode(), values)
                db.commit()

    with psycopg.connect(url, autocommit=True) as relay, psycopg.connect(url) as holder:
        relay.execute("set synchronous_commit = off")
        relay.execute(TABLES.encode())
        if long:
            holder.execute("insert into other values (1)")
        read = READ[table].format(WHERE.get(how))
        threads = [threading.Thread(target=produce, args=(seed,)) for seed in range(SESSIONS)]
        for thread in threads:
            thread.start()
        found: list[Any] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found += asked(relay, read, {"limit": 500})
        meanwhile = len(found)
        stop.set()
        for thread in threads:
            thread.join()
        holder.rollback()
        while some := asked(relay, read, {"limit": 5000}):
            found += some
    highest: dict[int, int] = {}
    misordered = 0
    for account, count in found:
        misordered += count < highest.get(account, 0)
        highest[account] = max(count, highest.get(account, 0))
    if len(found) != sum(highest.values()):
        raise SystemExit(f"{how}: {sum(highest.values())} puts, {len(found)} relayed")
    return Found(len(found), meanwhile, misordered)


def asked(db: psycopg.Connection[Any], statement: str, values: dict[str, int]) -> list[Any]:
    """Return the rows of a statement."""
    return db.execute(statement.encode(), values).fetchall()


def main() -> None:
    """Print the tables."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 6.0
    with cluster(free_port()) as (_, url):
        with psycopg.connect(url, autocommit=True) as db:
            schema.migrate(db, "interlock")
        print("relay reads by | each put after the lock | half of the puts before it")
        for how in ("id", "horizon", "number"):
            late, early = (run(url, how, early, seconds) for early in (False, True))
            print(f"{how} | {late.misordered:,} of {late.relayed:,} | "
                  f"{early.misordered:,} of {early.relayed:,}", flush=True)  # fmt: skip
        print("beside one open transaction, relayed meanwhile")
        for how in ("id", "horizon", "number"):
            found = run(url, how, False, seconds, long=True)
            print(f"{how} | {found.meanwhile:,} of {found.relayed:,}", flush=True)


if __name__ == "__main__":
    main()
