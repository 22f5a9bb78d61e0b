"""The program of the storm on an SQLite file: producers and workers that are killed.

A send increments a counter of each of its keys in the same transaction, before or after the put,
and a handler notes what it did in the transaction that deleted the row.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import time

from interlock.app import App
from interlock.outbox import Outbox
from interlock.retry import Retry
from tests.outbox.storms.storm import BACKLOG, KEYS

TABLES = """
create table counter (k integer primary key, n integer not null default 0);
create table sent (call integer not null, k integer not null, n integer not null,
    ordered integer);
create table effect (at integer primary key autoincrement, call integer not null, k integer);
""" + "".join(f"insert into counter (k) values ({k});\n" for k in range(KEYS))

app = App(retry=Retry(attempts=None, first=0.01))
outbox = Outbox(app)


@app.task(keys=lambda call, keys: [f"k{k}" for k in keys], transaction=outbox)
def note(db: sqlite3.Connection, call: int, keys: list[int]) -> None:
    """Notes the call for each of its keys; fails now and then."""
    for k in keys:
        db.execute("insert into effect (call, k) values (?, ?)", (call, k))
    chance = random.random()
    if chance < 0.02:
        time.sleep(0.1)
    elif chance < 0.05:
        raise RuntimeError("fails now and then")


def produce(chance: random.Random) -> None:
    """Sends until it is killed."""
    path = os.environ["BANK"]
    with contextlib.closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as db:
        while True:
            db.execute(chance.choice(["begin immediate", "begin"]))
            try:
                send(db, chance)
            except sqlite3.OperationalError:
                # One that began by reading may not write any more.
                db.execute("rollback")
            time.sleep(chance.random() * 0.02)
            while backlog(db) > BACKLOG:
                time.sleep(0.05)


def backlog(db: sqlite3.Connection) -> int:
    ((found,),) = db.execute("select count(*) from interlock_outbox").fetchall()
    return int(found)


def send(db: sqlite3.Connection, chance: random.Random) -> None:
    """Sends one call, or none."""
    call = chance.getrandbits(62)
    keys = sorted(chance.sample(range(KEYS), chance.choice([1, 1, 2, 3])))
    early = chance.random() < 0.5
    if chance.random() < 0.3:
        db.execute("select count(*) from sent").fetchone()
    if early:
        outbox.send(db, note, call, keys)
    if chance.random() < 0.2:
        # A put that a savepoint takes back.
        db.execute("savepoint one")
        outbox.send(db, note, -call, keys)
        db.execute("rollback to one")
    for k in keys:
        query = "update counter set n = n + 1 where k = ? returning n"
        ((n,),) = db.execute(query, (k,)).fetchall()
        db.execute("insert into sent values (?, ?, ?, 1)", (call, k, n))
    if not early:
        outbox.send(db, note, call, keys)
    db.execute("rollback" if chance.random() < 0.1 else "commit")
