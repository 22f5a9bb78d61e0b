"""A cold start: a node with an empty log takes the rows of a PostgreSQL; and COPY of the same rows
by psycopg, read to its end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.clusters.changes import key, token
from benchmarks.clusters.nodes import TABLE, started, until
from benchmarks.drive import Clock
from benchmarks.interpreters import NotPrepared
from benchmarks.row import Sample
from benchmarks.servers import free_port, memory_folder, redis
from benchmarks.workers.postgresql import cluster as postgresql

ROWS = int(os.environ.get("INTERLOCK_COLD_ROWS", "300000"))
PIECE = 5_000


@contextmanager
def filled() -> Iterator[str]:
    """Run a PostgreSQL with this number of rows in a table; yield its URL."""
    try:
        import psycopg
    except ImportError:
        raise NotPrepared("no psycopg: install the extra postgresql") from None
    with postgresql(free_port()) as (_, url):
        with (
            redis() as engine,
            memory_folder() as place,
            started("a0", engine, place, None, ROWS, "--database", url) as node,
        ):
            with node.client() as client:
                for first in range(0, ROWS, PIECE):
                    pipe = client.pipeline(transaction=False)
                    for row in range(first, min(first + PIECE, ROWS)):
                        columns = {"app_id": 666, "unread": row, "background": 0}
                        pipe.hset(f"{TABLE}:{key(row)}", mapping=columns | {"token": token(row)})
                    pipe.execute()
            until(lambda: node.status()["database"]["written"] == ROWS)
        with psycopg.connect(url, autocommit=True) as connection:
            # The first to arrive would do it: hint bits, and what is in no cache.
            connection.execute(f'VACUUM ANALYZE "{TABLE}"'.encode())
        yield url


def loaded(url: str) -> Sample:
    """Measure the start of a node with an empty log: s until it serves with all rows in its table.

    `empty_s` is that of a node without a database, and `peak_mb` its memory at most.
    """
    with redis() as engine, memory_folder() as place:
        clock = Clock()
        with started("a0", engine, place, None, ROWS) as node:
            until(lambda: node.status()["serves"])
            empty = clock.seconds()
    with redis() as engine, memory_folder() as place:
        clock = Clock()
        with (
            started("a1", engine, place, None, ROWS, "--database", url) as node,
            node.rows() as table,
        ):
            until(lambda: len(table) == ROWS and node.status()["serves"])
            seconds = clock.seconds()
            some = range(0, ROWS, 7)
            wrong = sum(table.get_column(key(row), "unread") != row for row in some)
            details = {"empty_s": empty, "peak_mb": node.peak()}
    return Sample(seconds, ROWS, wrong, details=details)


def copied(url: str) -> Sample:
    """Measure COPY of all columns: s. `narrow_s` is that of keys and states alone, in binary."""
    import psycopg

    found = []
    with psycopg.connect(url, autocommit=True) as connection:
        columns = "interlock_key, interlock_state"
        for statement in (
            f'COPY "{TABLE}" TO STDOUT',
            f'COPY (SELECT {columns} FROM "{TABLE}") TO STDOUT (FORMAT BINARY)',
        ):
            clock, size = Clock(), 0
            with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
                for data in copy:
                    size += len(data)
            found.append((clock.seconds(), size))
    (seconds, size), (narrow, _) = found
    lost = 0 if size > ROWS * 76 else ROWS
    return Sample(seconds, ROWS, lost, details={"narrow_s": narrow, "bytes": size})
