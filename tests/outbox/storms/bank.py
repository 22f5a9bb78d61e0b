"""The program of the storm: producers and workers that are killed while they send and handle.

A send increments a counter of each of its keys in the same transaction, before or after the put,
and a handler notes what it did in the transaction that deleted the row. So the database itself
says afterwards what was sent, in which order, and what was done.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence

import psycopg

from interlock.app import App
from interlock.outbox import Outbox
from interlock.retry import Retry
from tests.outbox.storms.storm import BACKLOG, KEYS, mixed

USUAL = {
    "serializable": 0.2,
    "prepared": 0.05,
    "savepoint": 0.1,
    "savepoint rolled back": 0.2,
    "failing trigger": 0.1,
    "number drawn early": 0.1,
    "send before the lock": 0.5,
    "rollback": 0.1,
}
"""The probability of what a transaction does."""
CHANCES = mixed(USUAL)

TABLES = f"""
create table counter (k int primary key, n bigint not null default 0);
insert into counter (k) select generate_series(0, {KEYS - 1});
create table sent (call bigint not null, k int not null, n bigint not null, ordered boolean);
create table effect (at bigint generated always as identity, call bigint not null, k int not null);
create table kind (name text not null);
create table checked (passes boolean);
create function check_it() returns trigger language plpgsql as $$
begin
    if not new.passes then raise 'the transaction fails while it commits'; end if;
    return null;
end $$;
create constraint trigger check_it after insert on checked
    deferrable initially deferred for each row execute function check_it();
"""

app = App(retry=Retry(attempts=None, first=0.01))
outbox = Outbox(app)


@app.task(keys=lambda call, keys: [f"k{k}" for k in keys], transaction=outbox)
def note(db: psycopg.Connection, call: int, keys: list[int]) -> None:
    """Notes the call for each of its keys; fails now and then."""
    for k in keys:
        db.execute("insert into effect (call, k) values (%s, %s)", (call, k))
    chance = random.random()
    if chance < 0.02:
        time.sleep(0.1)
    elif chance < 0.05:
        raise RuntimeError("fails now and then")


def produce(chance: random.Random) -> None:
    """Sends until it is killed."""
    while True:
        try:
            with psycopg.connect(os.environ["INTERLOCK_POSTGRES_URL"]) as db:
                while True:
                    send_in_transaction(db, chance)
                    time.sleep(chance.random() * 0.02)
                    while backlog(db) > BACKLOG:
                        time.sleep(0.05)
        except psycopg.OperationalError:
            # The database was killed.
            time.sleep(0.02)


def backlog(db: psycopg.Connection) -> int:
    with db.transaction():
        ((found,),) = db.execute("select count(*) from interlock.outbox").fetchall()
    return int(found)


def send_in_transaction(db: psycopg.Connection, chance: random.Random) -> None:
    """Sends in one transaction, which may fail, and is repeated if it cannot be serialized."""
    plan = chance.getrandbits(62)
    for _ in range(10):
        try:
            Transaction(db, random.Random(plan)).run()
            return
        except psycopg.errors.SerializationFailure:
            db.rollback()
        except (psycopg.errors.RaiseException, psycopg.errors.DeadlockDetected):
            db.rollback()
            return


class Transaction:
    """One transaction that sends calls, in one of many ways."""

    def __init__(self, db: psycopg.Connection, chance: random.Random) -> None:
        self.db, self.chance = db, chance
        self.immediate = False
        """Numbers are drawn by each statement that sends."""
        self.ordered = True
        self.found: set[str] = set()
        """Names in ``USUAL``, of what it has done."""

    def happens(self, name: str) -> bool:
        found = self.chance.random() < CHANCES[name]
        if found:
            self.found.add(name)
        return found

    def run(self) -> None:
        db = self.db
        prepared = self.happens("prepared")
        if self.happens("serializable"):
            db.execute("set transaction isolation level serializable")
        if prepared:
            db.execute("set local interlock.notify = off")
        for _ in range(self.chance.choice([1, 1, 1, 2])):
            if self.happens("savepoint rolled back"):
                self.send_rolled_back()
            if self.happens("savepoint"):
                with db.transaction():
                    self.send()
            else:
                self.send()
        if self.happens("savepoint rolled back"):
            self.send_rolled_back()
        if self.happens("failing trigger"):
            db.execute("insert into checked values (%s)", (self.chance.random() < 0.5,))
        rolled_back = self.happens("rollback")
        query = "insert into kind select unnest(%s::text[])"
        db.execute(query, (["transaction", *sorted(self.found)],))
        if rolled_back:
            db.rollback()
        elif prepared:
            # The storm's own connection commits it.
            db.execute(f"prepare transaction 'storm-{self.chance.getrandbits(62)}'".encode())
            db.commit()
        else:
            db.commit()

    def send(self) -> None:
        """Send one call or a list of calls, before or after the counters are incremented."""
        number = self.chance.choice([1, 1, 1, 3])
        keys = sorted(self.chance.sample(range(KEYS), self.chance.choice([1, 1, 2, 3])))
        calls = [self.chance.getrandbits(62) for _ in range(number)]
        early = self.happens("send before the lock")
        if early:
            if self.happens("number drawn early"):
                self.draw_number()
            self.put(calls, keys)
            if self.immediate:
                # The number is drawn before the locks are taken.
                self.ordered = False
        for k in keys:
            self.count(calls, k)
        if not early:
            self.put(calls, keys)
        if self.happens("number drawn early"):
            self.draw_number()

    def put(self, calls: Sequence[int], keys: list[int]) -> None:
        if len(calls) > 1:
            outbox.send_many(self.db, note, [(call, keys) for call in calls])
        else:
            outbox.send(self.db, note, calls[0], keys)

    def count(self, calls: Sequence[int], k: int) -> None:
        """Increment the counter of a key, which locks it, for each call."""
        for call in calls:
            query = "update counter set n = n + 1 where k = %s returning n"
            ((n,),) = self.db.execute(query, (k,)).fetchall()
            values = (call, k, n, self.ordered)
            self.db.execute("insert into sent values (%s, %s, %s, %s)", values)

    def draw_number(self) -> None:
        self.db.execute("set constraints all immediate")
        self.immediate = self.chance.random() < 0.5
        if not self.immediate:
            self.db.execute("set constraints all deferred")

    def send_rolled_back(self) -> None:
        """Send something that a savepoint takes back, with its locks and numbers."""
        immediate = self.immediate
        with self.db.transaction(force_rollback=True):
            self.put([-self.chance.getrandbits(62)], [self.chance.randrange(KEYS)])
            if self.chance.random() < 0.3:
                self.draw_number()
        self.immediate = immediate
