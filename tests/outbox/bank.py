"""The program of the storm: producers and workers that are killed while they send and handle.

A send increments a counter of each of its keys in the same transaction, before or after the put,
and a handler notes what it did in the transaction that deleted the row. So the database itself
says afterwards what was sent, in which order, and what was done.
"""

from __future__ import annotations

import os
import random
import sys
import time

import psycopg

from interlock.app import App
from interlock.outbox import Outbox
from interlock.retry import Retry

KEYS = 8
TABLES = f"""
create table counter (k int primary key, n bigint not null default 0);
insert into counter (k) select generate_series(0, {KEYS - 1});
create table sent (call bigint not null, k int not null, n bigint not null);
create table effect (at bigint generated always as identity, call bigint not null, k int not null);
"""

app = App(retry=Retry(attempts=None, first=0.01))
outbox = Outbox(app)


@app.task(keys=lambda call, keys: [f"k{k}" for k in keys], transaction=outbox)
def note(db: psycopg.Connection, call: int, keys: list[int]) -> None:
    """Notes the call for each of its keys; fails now and then."""
    for k in keys:
        db.execute("insert into effect (call, k) values (%s, %s)", (call, k))
    chance = random.random()
    if chance < 0.05:
        time.sleep(0.3)
    elif chance < 0.1:
        raise RuntimeError("fails now and then")


def produce(url: str, seed: int) -> None:
    """Sends until it is killed."""
    chance = random.Random(seed)
    with psycopg.connect(url) as db:
        while True:
            try:
                send(db, chance)
            except psycopg.Error:
                db.rollback()
            time.sleep(chance.random() * 0.04)


def send(db: psycopg.Connection, chance: random.Random) -> None:
    """Sends one call, or none; by a transaction that may be rolled back, serializable, or prepared
    and committed later."""
    call = chance.getrandbits(62)
    keys = sorted(chance.sample(range(KEYS), chance.choice([1, 1, 2, 3])))
    early, prepared = chance.random() < 0.5, chance.random() < 0.1
    if chance.random() < 0.1:
        db.execute("set transaction isolation level serializable")
    if prepared:
        db.execute("set local interlock.notify = off")
    if early:
        outbox.send(db, note, call, keys)
    if chance.random() < 0.2:
        # A put that a savepoint takes back.
        with db.transaction(force_rollback=True):
            outbox.send(db, note, -call, keys)
    for k in keys:
        query = "update counter set n = n + 1 where k = %s returning n"
        found = db.execute(query, (k,)).fetchone()
        assert found is not None
        db.execute("insert into sent (call, k, n) values (%s, %s, %s)", (call, k, found[0]))
    if not early:
        outbox.send(db, note, call, keys)
    if chance.random() < 0.1:
        db.rollback()
    elif prepared:
        name = f"storm-{os.getpid()}-{call}"
        db.execute(f"prepare transaction '{name}'".encode())
        db.commit()
        db.autocommit = True
        time.sleep(chance.random() * 0.05)
        db.execute(f"commit prepared '{name}'".encode())
        db.autocommit = False
    else:
        db.commit()


if __name__ == "__main__":
    produce(os.environ["INTERLOCK_POSTGRES_URL"], int(sys.argv[1]))
