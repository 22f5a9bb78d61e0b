"""Random transactions that send, against a naive model of the rows that a relay reads, in order."""

from __future__ import annotations

import copy
import os
import random
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from interlock.app import App
from interlock.outbox import Outbox
from interlock.outbox.postgres import admin
from interlock.outbox.postgres.position import Position
from tests.outbox.conftest import Connect
from tests.seeds import seed

OPERATIONS = int(os.environ.get("INTERLOCK_OUTBOX_OPERATIONS", "1500"))
SESSIONS = 6
KEYS = 3
MOST_PREPARED = 8

app = App("memory://")
outbox = Outbox(app)


@app.task
def note(n: int) -> None:
    """Never runs here."""


@dataclass
class Work:
    """The sends and locks of an open transaction: savepoints copy it."""

    undrawn: list[int] = field(default_factory=list)
    """Rows without a number."""
    drawn: list[tuple[int, list[int], frozenset[int]]] = field(default_factory=list)
    """Numbers, their rows, and the keys that were locked when each was drawn."""
    locked: frozenset[int] = frozenset()
    immediate: bool = False


class Session:
    """A connection, and the transaction that is open on it."""

    def __init__(self, db: psycopg.Connection[Any]) -> None:
        self.db = db
        self.work: Work | None = None
        self.savepoints: list[Work] = []


class Reader:
    """A relay's position in one engine, and the rows that it must read next."""

    def __init__(self, db: psycopg.Connection[Any], rows: dict[int, int]) -> None:
        self.position = Position(db, "interlock", 10**6)
        self.unread = dict(rows)
        self.partial: int | None = None
        self.passed: dict[int, int] = {}
        """For each key the last of the transactions that had locked it."""

    def expected(self) -> list[int]:
        """The next rows; a commit that was begun is read to its end, whatever is filled meanwhile.
        """  # fmt: skip
        place = {row: (number != self.partial, number) for row, number in self.unread.items()}
        return sorted(self.unread, key=lambda row: (*place[row], row))


class Schedule:
    """Sessions, readers, and the model of the table."""

    def __init__(self, connect: Connect, chance: random.Random) -> None:
        self.chance = chance
        self.sessions = [Session(connect()) for _ in range(SESSIONS)]
        self.admin = connect(autocommit=True)
        self.admin.execute("create table account (k int primary key)")
        self.admin.execute(f"insert into account select generate_series(0, {KEYS - 1})".encode())
        self.rows: dict[int, int] = {}
        """Committed rows that are not dead, and their numbers in the model."""
        self.dead: dict[int, int] = {}
        self.handled: set[int] = set()
        self.prepared: dict[str, Work] = {}
        self.locks: dict[tuple[int, int], int] = {}
        """By a row and a key: the place of its transaction among those that locked the key."""
        self.turns = 0
        self.drawn = 0
        self.names = 0
        self.counts = dict.fromkeys(("read", "gaps", "rows"), 0)
        self.connections = [connect(autocommit=True) for _ in range(2)]
        self.readers = [Reader(db, {}) for db in self.connections]

    # -- Transactions -----------------------------------------------------------------------------

    def draw(self, work: Work) -> None:
        if work.undrawn:
            self.drawn += 1
            work.drawn.append((self.drawn, work.undrawn, work.locked))
            work.undrawn = []

    def committed(self, work: Work) -> None:
        self.turns += 1
        for number, rows, locked in work.drawn:
            for row in rows:
                self.rows[row] = number
                self.locks.update({(row, key): self.turns for key in locked})
                for reader in self.readers:
                    reader.unread[row] = number

    def step(self, session: Session) -> None:
        """One random operation of a session; an error of the database rolls it back."""
        db, work = session.db, session.work
        if work is None:
            work = session.work = Work()
            session.savepoints = []
            db.execute("set local interlock.notify = off")
            if self.chance.random() < 0.1:
                db.rollback()
                db.execute("set transaction isolation level serializable")
                db.execute("set local interlock.notify = off")
            return
        kind = self.chance.choices(
            ("put", "known", "lock", "savepoint", "back", "release", "now", "later", "commit",
             "rollback", "prepare"),
            (30, 3, 14, 10, 8, 4, 5, 4, 14, 4, 4),
        )[0]  # fmt: skip
        try:
            self.perform(kind, session, work)
        except psycopg.errors.SerializationFailure:
            db.rollback()
            session.work = None

    def perform(self, kind: str, session: Session, work: Work) -> None:
        db = session.db
        if kind == "put":
            calls = [(0,)] * self.chance.choice((1, 1, 1, 2, 5))
            sent = outbox.send_many(db, note, calls)
            work.undrawn += [row.id for row in sent]
            if work.immediate:
                # The number is drawn at the end of the statement.
                self.draw(work)
        elif kind == "known":
            # Inserts nothing; the transaction's first row may follow.
            db.execute(
                "insert into interlock.outbox (queue, task, payload, keys, shared, options, id) "
                "overriding system value values ('q', 't', '', '{}', '{}', '{}', -1) "
                "on conflict do nothing"
            )
        elif kind == "lock":
            found = db.execute(
                "select k from account where k = %s for update skip locked",
                (self.chance.randrange(KEYS),),
            ).fetchone()
            if found:
                work.locked |= {found[0]}
        elif kind == "savepoint":
            session.savepoints.append(copy.deepcopy(work))
            db.execute(f"savepoint s{len(session.savepoints)}".encode())
        elif kind == "back" and session.savepoints:
            at = self.chance.randrange(len(session.savepoints))
            if self.chance.random() < 0.3:
                with pytest.raises(psycopg.errors.DivisionByZero):
                    db.execute("select 1 / 0")
            db.execute(f"rollback to savepoint s{at + 1}".encode())
            del session.savepoints[at + 1 :]
            session.work = copy.deepcopy(session.savepoints[at])
        elif kind == "release" and session.savepoints:
            at = self.chance.randrange(len(session.savepoints))
            db.execute(f"release savepoint s{at + 1}".encode())
            del session.savepoints[at:]
        elif kind == "now":
            db.execute("set constraints all immediate")
            work.immediate = True
            self.draw(work)
        elif kind == "later":
            db.execute("set constraints all deferred")
            work.immediate = False
        elif kind == "commit":
            db.commit()
            self.draw(work)
            self.committed(work)
            session.work = None
        elif kind == "rollback":
            db.rollback()
            session.work = None
        elif kind == "prepare" and len(self.prepared) < MOST_PREPARED:
            self.names += 1
            db.execute(f"prepare transaction 't{self.names}'".encode())
            db.commit()
            self.draw(work)
            self.prepared[f"t{self.names}"] = work
            session.work = None

    def end_prepared(self) -> None:
        if not self.prepared:
            return
        name = self.chance.choice(list(self.prepared))
        work = self.prepared.pop(name)
        if self.chance.random() < 0.7:
            self.admin.execute(f"commit prepared '{name}'".encode())
            self.committed(work)
        else:
            self.admin.execute(f"rollback prepared '{name}'".encode())

    # -- Rows -------------------------------------------------------------------------------------

    def read(self, reader: Reader, limit: int) -> None:
        expected = reader.expected()
        found = reader.position.read(limit)
        ids = [row.id for row in found]
        assert ids == expected[: len(ids)] and bool(ids) == bool(expected)
        for id in ids:
            number = reader.unread.pop(id)
            for key in range(KEYS):
                turn = self.locks.get((id, key), 0)
                if turn:
                    # A transaction that locked a key later is read later.
                    assert turn >= reader.passed.get(key, 0)
                    reader.passed[key] = turn
        if ids:
            reader.partial = number if number in reader.unread.values() else None
        self.counts["read"] += 1
        self.counts["rows"] += len(ids)
        self.counts["gaps"] += reader.position.gaps.count > 0

    def handle(self) -> None:
        """Delete a row, as its handler; or one that is gone, of a message that is redelivered."""
        row = self.chance.choice(list(self.rows))
        again = self.chance.random() < 0.1 and bool(self.handled)
        if again:
            row = self.chance.choice(list(self.handled))
        query = "delete from interlock.outbox where id = %s returning id"
        assert (self.admin.execute(query, (row,)).fetchone() is None) == again
        self.forget(row)
        self.handled.add(row)

    def kill(self) -> None:
        """Make a row dead."""
        row = self.chance.choice(list(self.rows))
        self.admin.execute("update interlock.outbox set state = 'dead' where id = %s", (row,))
        self.dead[row] = self.rows[row]
        self.forget(row)

    def forget(self, row: int) -> None:
        self.rows.pop(row, None)
        for reader in self.readers:
            reader.unread.pop(row, None)

    def requeue(self) -> None:
        assert admin.requeue(self.admin, "interlock", None) == sorted(self.dead)
        for old in sorted(set(self.dead.values())):
            self.drawn += 1
            moved = [row for row, number in self.dead.items() if number == old]
            for key in range(KEYS):
                # It is the last one now.
                for row in moved:
                    self.locks.pop((row, key), None)
            self.committed(Work(drawn=[(self.drawn, moved, frozenset())]))
        self.dead = {}

    def operate(self) -> None:
        chance = self.chance.random()
        if chance < 0.7:
            self.step(self.chance.choice(self.sessions))
        elif chance < 0.74:
            self.end_prepared()
        elif chance < 0.88:
            # One of the two may be frozen for a while: it is not chosen.
            reader = self.readers[self.chance.random() < 0.25]
            self.read(reader, self.chance.choice((1, 2, 100, 10_000)))
        elif chance < 0.96:
            for _ in range(1 + len(self.rows) // 40):
                if self.rows and len(self.rows) > self.chance.randrange(40):
                    self.handle()
        elif chance < 0.98:
            if self.rows:
                self.kill()
        elif chance < 0.985:
            self.requeue()
        elif chance < 0.99:
            # The engine has forgotten everything.
            at = self.chance.randrange(2)
            self.readers[at] = Reader(self.connections[at], self.rows)


@pytest.mark.share(8)
@pytest.mark.watchdog(900)
def test_random_transactions_are_read_once_in_the_order_in_which_their_numbers_were_drawn(
    connect: Connect,
) -> None:
    schedule = Schedule(connect, random.Random(seed()))
    schedule.admin.execute(
        "insert into interlock.outbox (queue, task, payload, keys, shared, options, id, state) "
        "overriding system value values ('q', 't', '', '{}', '{}', '{}', -1, 'held')"
    )
    schedule.admin.execute("update interlock.outbox set state = 'held', batch = -1")
    for _ in range(OPERATIONS):
        schedule.operate()
    for session in schedule.sessions:
        session.db.rollback()
    while schedule.prepared:
        schedule.end_prepared()
    for reader in schedule.readers:
        while reader.expected():
            schedule.read(reader, 100)
        assert reader.position.read(100) == [] and reader.position.gaps.count == 0
    assert schedule.counts["rows"] > OPERATIONS / 10 and schedule.counts["gaps"] > OPERATIONS / 100
