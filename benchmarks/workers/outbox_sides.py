"""The ways to send a call within a transaction of PostgreSQL that `outbox/*` compare: ours, and the
statements of others, each written from its documentation.

A side puts calls, each batch in a transaction of its own, takes them and deletes them. The
statements of pgmq and River run without the functions and clients around them, so a server does a
little less for them than in use. Procrastinate's are the functions that its package installs.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import psycopg

from benchmarks.workers import environments
from interlock.app import App
from interlock.outbox import Outbox
from interlock.outbox.relay import READ

__all__ = ["PEERS", "Call", "Ours", "Side", "calls", "server_seconds"]

KEYS = 1_000
TEXT = "x" * 100
TABLES = "interlock.outbox, interlock.outbox_commits"


class Call(NamedTuple):
    key: str
    number: int
    text: str = TEXT

    @property
    def json(self) -> str:
        return json.dumps(self._asdict())


def calls(start: int, count: int) -> list[Call]:
    """Return calls with numbers from `start`, and keys in turn."""
    return [Call(f"key-{number % KEYS}", number) for number in range(start, start + count)]


class Side(Protocol):
    """A way of calls through the database. Its tables are new and empty."""

    name: str
    tables: str
    db: psycopg.Connection[Any]

    def put(self, some: Sequence[Call]) -> None:
        """Put calls by one statement that commits."""

    def take(self, count: int) -> list[int]:
        """Return ids of calls, in order: this many, or more, or all that are left."""

    def delete(self, ids: list[int]) -> int:
        """Delete calls that were handled; return how many were there."""

    def close(self) -> None: ...


class Connected:
    """A side with a connection that commits each statement."""

    def __init__(self, url: str) -> None:
        self.db = psycopg.connect(url, autocommit=True)

    def ask(self, statement: str, values: Any = None) -> list[Any]:
        return self.db.execute(statement.encode(), values).fetchall()

    def ids(self, statement: str, values: Any) -> list[int]:
        return [row[0] for row in self.ask(statement, values)]

    def close(self) -> None:
        self.db.close()


class Ours(Connected):
    """`send_many`, or `send` for a single call; the reads of the relay; and the delete of handlers,
    which in a worker is one in each handler's transaction."""

    name = "ours"
    tables = TABLES

    def __init__(self, url: str) -> None:
        super().__init__(url)
        app = App("memory://")
        self.outbox = Outbox(app, url)
        self.outbox.migrate()
        self.db.execute(f"truncate {TABLES}".encode())

        @app.task(keys="key")
        def effect(key: str, number: int, text: str) -> None: ...

        self._task = effect
        self.relay = self.outbox.database.relay_connection()
        if not self.relay.lock():
            raise RuntimeError("another relay has the lock")
        self._position = self.relay.position(self.outbox.window)

    def put(self, some: Sequence[Call]) -> None:
        if len(some) == 1:
            self.outbox.send(self.db, self._task, *some[0])
        else:
            self.outbox.send_many(self.db, self._task, some)

    def values(self, one: Call) -> Sequence[Any]:
        """Return what a send writes into the row."""
        return self.outbox._row(self._task, tuple(one), {})[0]

    def take(self, count: int) -> list[int]:
        found = self._position.read(READ)
        return [row.id for row in found]

    def delete(self, ids: list[int]) -> int:
        if len(ids) == 1:
            return len(self.ids(f"delete from {self.outbox.database.table} where id = %s "
                                "returning id", ids))  # fmt: skip
        return len(self.ids(f"delete from {self.outbox.database.table} where id = any(%s) "
                            "returning id", (ids,)))  # fmt: skip

    def close(self) -> None:
        self.relay.close()
        super().close()


class Pgmq(Connected):
    """send_batch, read and delete of pgmq, which is an extension that Debian does not have."""

    name = "pgmq"
    tables = "pgmq_queue"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.db.execute("""
            drop table if exists pgmq_queue;
            create table pgmq_queue (
                msg_id bigint primary key generated always as identity,
                read_ct int not null default 0,
                enqueued_at timestamptz not null default now(),
                last_read_at timestamptz,
                vt timestamptz not null,
                message jsonb,
                headers jsonb);
            create index on pgmq_queue (vt)""")

    def put(self, some: Sequence[Call]) -> None:
        self.ask(
            "insert into pgmq_queue (vt, message, headers) "
            "select clock_timestamp(), message, null from unnest(%s::jsonb[]) message "
            "returning msg_id",
            ([one.json for one in some],),
        )

    def take(self, count: int) -> list[int]:
        found = self.ids(
            "with due as (select msg_id from pgmq_queue where vt <= clock_timestamp() "
            "order by msg_id limit %s for update skip locked) "
            "update pgmq_queue q set vt = clock_timestamp() + interval '30 s', "
            "read_ct = read_ct + 1, last_read_at = clock_timestamp() from due "
            "where q.msg_id = due.msg_id returning q.msg_id, read_ct, enqueued_at, last_read_at, "
            "vt, message, headers",
            (count,),
        )
        return sorted(found)

    def delete(self, ids: list[int]) -> int:
        return len(self.ids("delete from pgmq_queue where msg_id = any(%s) returning msg_id",
                            (ids,)))  # fmt: skip


class River(Connected):
    """Statements of River's driver: insert many, get available, complete many; and its cleaner's
    delete, which comes a day later."""

    name = "river"
    tables = "river_job"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.db.execute("""
            drop table if exists river_job;
            drop type if exists river_job_state;
            create type river_job_state as enum ('available', 'cancelled', 'completed', 'discarded',
                'pending', 'retryable', 'running', 'scheduled');
            create table river_job (
                id bigserial primary key,
                state river_job_state not null default 'available',
                attempt smallint not null default 0,
                max_attempts smallint not null check (max_attempts > 0),
                attempted_at timestamptz,
                created_at timestamptz not null default now(),
                finalized_at timestamptz,
                scheduled_at timestamptz not null default now(),
                priority smallint not null default 1 check (priority between 1 and 4),
                args jsonb not null,
                attempted_by text[],
                errors jsonb[],
                kind text not null check (char_length(kind) between 1 and 127),
                metadata jsonb not null default '{}',
                queue text not null default 'default' check (char_length(queue) between 1 and 127),
                tags varchar(255)[] not null default '{}',
                unique_key bytea,
                unique_states bit(8),
                check ((finalized_at is null)
                    = (state not in ('cancelled', 'completed', 'discarded'))));
            create index on river_job (kind);
            create index on river_job (state, finalized_at) where finalized_at is not null;
            create index on river_job (state, queue, priority, scheduled_at, id);
            create unique index on river_job (unique_key)
                where unique_key is not null and unique_states is not null""")

    def put(self, some: Sequence[Call]) -> None:
        self.ask(
            "insert into river_job (args, kind, max_attempts) "
            "select args, 'effect', 25 from unnest(%s::jsonb[]) args returning *",
            ([one.json for one in some],),
        )

    def take(self, count: int) -> list[int]:
        found = self.ids(
            "with due as (select id from river_job where state = 'available' "
            "and queue = 'default' and scheduled_at <= now() "
            "order by priority, scheduled_at, id limit %s for update skip locked) "
            "update river_job j set state = 'running', attempt = attempt + 1, "
            "attempted_at = now(), attempted_by = array_append(attempted_by, 'client') from due "
            "where j.id = due.id returning j.*",
            (count,),
        )
        return sorted(found)

    def delete(self, ids: list[int]) -> int:
        done = self.ids(
            "with due as (select id from river_job where id = any(%s) and state = 'running' "
            "for update) update river_job j set state = 'completed', finalized_at = now() "
            "from due where j.id = due.id returning j.*",
            (ids,),
        )
        return len(self.ids(
            "delete from river_job where id in (select id from river_job "
            "where state = 'completed' and finalized_at < now() order by id limit %s) returning id",
            (len(done),),
        ))  # fmt: skip


class Procrastinate(Connected):
    """The functions of Procrastinate. They take and finish jobs one by one, here
    without locks: with 1,000 jobs that have one, a fetch takes ten milliseconds."""

    name = "procrastinate"
    tables = "procrastinate_jobs, procrastinate_events"

    def __init__(self, url: str) -> None:
        python = environments.python("procrastinate")
        super().__init__(url)
        self.db.execute("drop schema if exists procrastinate cascade; create schema procrastinate; "
                        "set search_path = procrastinate")  # fmt: skip
        self.db.execute(_schema(python).encode())
        ((self._worker,),) = self.ask("select worker_id from procrastinate_register_worker_v1()")

    def put(self, some: Sequence[Call]) -> None:
        self.ask(
            "select unnest(procrastinate_defer_jobs_v1(array(select row('default', 'effect', 0, "
            "null, null, args, null)::procrastinate_job_to_defer_v1 "
            "from unnest(%s::jsonb[]) args)))",
            ([one.json for one in some],),
        )

    def take(self, count: int) -> list[int]:
        found: list[int] = []
        for _ in range(count):
            row = self.ask("select * from procrastinate_fetch_job_v2(null, %s)", (self._worker,))[0]
            if row[0] is None:
                break
            found.append(row[0])
        return found

    def delete(self, ids: list[int]) -> int:
        for one in ids:
            self.ask("select procrastinate_finish_job_v1(%s, 'succeeded', true)", (one,))
        return len(ids)


def _schema(python: Path) -> str:
    source = "from procrastinate.schema import SchemaManager; print(SchemaManager.get_schema())"
    return subprocess.run([python, "-c", source], capture_output=True, text=True,
                          check=True).stdout  # fmt: skip


PEERS: tuple[type[Pgmq | River | Procrastinate], ...] = (Pgmq, River, Procrastinate)


def server_seconds(postmaster: int) -> float:
    """Return the processor time of a server: of its processes, and of those that have ended."""
    own = Path(f"/proc/{postmaster}")
    ticks = (own / "stat").read_text().rpartition(")")[2].split()
    ended = (int(ticks[13]) + int(ticks[14])) / _TICKS
    children = (own / "task" / str(postmaster) / "children").read_text().split()
    used = 0
    for pid in (str(postmaster), *children):
        try:
            used += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            # It has ended meanwhile.
            continue
    return ended + used / 1e9


_TICKS = 100
