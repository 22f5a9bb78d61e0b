"""A cold start: rows from PostgreSQL into a node's states and its table; and COPY of the same rows
by psycopg, read to its end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from benchmarks.clusters.changes import key, token
from benchmarks.clusters.nodes import TABLE, Presence
from benchmarks.drive import Clock
from benchmarks.interpreters import NotPrepared
from benchmarks.row import Sample
from benchmarks.servers import free_port, memory_folder
from benchmarks.workers.postgresql import cluster as postgresql
from interlock import SharedTable
from interlock.cluster.database import SavedMark, open_database
from interlock.cluster.database.protocol import SavedRow
from interlock.cluster.machine import Machine
from interlock.cluster.projection import Projection
from interlock.cluster.replica import Replica
from interlock.cluster.settings import NodeSettings
from interlock.cluster.stamps import HybridClock
from interlock.cluster.state import TableRules
from interlock.cluster.storage import Storage

ROWS = int(os.environ.get("INTERLOCK_COLD_ROWS", "1000000"))
PIECE = 20_000


@contextmanager
def filled() -> Iterator[str]:
    """Run a PostgreSQL with so many rows of a table; yield its URL."""
    try:
        import psycopg
    except ImportError:
        raise NotPrepared("no psycopg: install the extra postgresql") from None
    with postgresql(free_port()) as (_, url):
        rules = TableRules.of(Presence)
        clock = HybridClock("main", now_ms=_now_ms)
        database = open_database(url, TABLE, rules)
        database.migrate()
        database.begin(1)
        for first in range(0, ROWS, PIECE):
            rows = []
            for row in range(first, min(first + PIECE, ROWS)):
                values = zip(rules.columns, (666, row, False, token(row)), strict=True)
                state = rules.created(None, list(values), clock.next(), _now_ms(), 0)
                rows.append(SavedRow(key(row).encode(), state, row + 1))
            mark = SavedMark(1, 1, first + len(rows), 0, "", clock.next()[0])
            database.write(rows, mark, 1)
        database.close()
        with psycopg.connect(url, autocommit=True) as connection:
            # Whoever comes first would do it: hint bits, and what is in no cache.
            connection.execute(f'VACUUM ANALYZE "{TABLE}"'.encode())
        yield url


@dataclass(slots=True)
class _Loading:
    """A node's machine as far as a load needs it."""

    replica: Replica
    marks: list[Any] = field(default_factory=list)

    def installed(self, mark: Any, links: object) -> None:
        self.marks.append(mark)


def loaded(url: str) -> Sample:
    """Measure the load of a node: s from the first question until all rows are in its table."""
    settings = NodeSettings(
        table=TABLE, row=Presence, cluster="redis://127.0.0.1", name="a1", databases=(url,),
        capacity=ROWS,
    )  # fmt: skip
    rules = TableRules.of(Presence)
    with memory_folder() as place:
        table = _table(place, ROWS)
        machine = _Loading(Replica(rules, Projection(table, rules)))
        storage = Storage(settings, rules, HybridClock("main", now_ms=_now_ms))
        clock = Clock()
        storage.load(cast(Machine, machine), threading.RLock())
        seconds = clock.seconds()
        storage.close()
        wrong = sum(table.get_column(key(row), "unread") != row for row in range(0, ROWS, 7))
        lost = abs(ROWS - len(machine.replica)) + wrong
        table.close()
    return Sample(seconds, ROWS, lost)


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


def _table(place: Path, capacity: int) -> SharedTable[Presence]:
    return SharedTable.open(place / "cold", Presence, capacity=capacity, on_full="raise",
                            keeper=True)  # fmt: skip


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
