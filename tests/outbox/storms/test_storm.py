"""Producers, workers with their relay, the engine and PostgreSQL are killed while they work;
PostgreSQL knows what was sent and what was done."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from interlock.app import App
from interlock.outbox import Outbox
from interlock.outbox.explanation import RowExplanation
from interlock.outbox.postgres import schema
from tests.hub.servers import needs_hub
from tests.outbox.storms.bank import TABLES
from tests.outbox.storms.storm import Engine, Storm, hub, memory_redis, repeat
from tests.seeds import seed
from tests.worker.process.postgresql import Server

KILLS = int(os.environ.get("INTERLOCK_OUTBOX_KILLS", "40"))
SECONDS = float(os.environ.get("INTERLOCK_OUTBOX_SECONDS", "300"))
"""The storm ends after this time with fewer kills."""

pytestmark = pytest.mark.watchdog(SECONDS + 300)
FLAGS = ["fsync=off", "max_prepared_transactions=100", "deadlock_timeout=50ms"]


class PostgresStorm(Storm):
    program = "tests.outbox.storms.bank"
    rows = "interlock.outbox"

    def __init__(
        self,
        folder: Path,
        chance: random.Random,
        engine: Engine,
        server: Server,
    ) -> None:
        self.server = server
        self.database = psycopg.connect(server.url, autocommit=True)
        schema.migrate(self.database, "interlock")
        self.database.execute(TABLES.encode())
        super().__init__(folder, chance, engine, {"INTERLOCK_POSTGRES_URL": server.url})
        self.kinds["database"] = (3, self.restart_database)
        if engine is memory_redis:
            self.kinds["flush"] = (3, self.flush)

    def ask(self, query: str) -> list[Any]:
        return self.database.execute(query.encode()).fetchall()

    def relay(self) -> int | None:
        ((name,),) = self.ask("select relay from interlock.outbox_meta")
        return None if name is None else int(name.rpartition(" ")[2])

    def restart_database(self) -> None:
        self.database.close()
        self.server.kill()
        time.sleep(self.chance.random() * 0.1)
        repeat(self.server.start)
        self.failures["database"] += 1
        self.database = psycopg.connect(self.server.url, autocommit=True)

    def flush(self) -> None:
        with contextlib.closing(redis.Redis.from_url(self.url)) as server:
            server.flushall()
        self.failures["flush"] += 1

    def tend(self, last: bool = False) -> None:
        super().tend(last)
        # Another connection ends a prepared transaction, also after a restart of the database.
        old = "prepared < clock_timestamp() - interval '100 ms'"
        query = f"select gid from pg_prepared_xacts where {last} or {old}"
        for (name,) in self.ask(query):
            done = "rollback" if self.chance.random() < 0.2 else "commit"
            self.database.execute(f"{done} prepared '{name}'".encode())

    def explain(self, limit: int) -> list[RowExplanation]:
        query = f"select id from interlock.outbox_rows order by number limit {limit}"
        with contextlib.closing(App(self.url)) as app:
            outbox = Outbox(app, self.server.url)
            return [outbox.explain(id) for (id,) in self.ask(query)]

    def why(self) -> str:
        sessions = self.ask(
            "select pid, application_name, state, wait_event, query, pg_blocking_pids(pid) "
            "from pg_stat_activity where backend_type = 'client backend'"
        )
        found = [super().why(), *sessions, *self.explain(20)]
        return "\n".join(map(str, found))

    def summary(self) -> str:
        causes: Counter[str] = Counter()
        for row in self.explain(50):
            nodes = () if row.waits is None else row.waits.nodes
            roots = {node.state for node in nodes if not node.blocked}
            name = "handled meanwhile" if row.state == "missing" else row.state
            causes[", ".join([name, *sorted(roots)])] += 1
        return f"the oldest: {dict(causes)}"

    def audit(self) -> None:
        kinds = self.ask("select name, count(*) from kind group by name order by name")
        print(f"committed: {dict(kinds)}")
        super().audit()

    def end(self) -> None:
        super().end()
        self.database.close()


@contextmanager
def storm(
    folder: Path,
    chance: random.Random,
    engine: Engine,
) -> Iterator[PostgresStorm]:
    flags = [word for flag in FLAGS for word in ("-c", flag)]
    with Server(*flags) as server:
        place = PostgresStorm(folder, chance, engine, server)
        try:
            yield place
        finally:
            place.end()


@pytest.mark.parametrize("engine", [hub, memory_redis])
@pytest.mark.share(15)
def test_effects_equal_the_committed_sends_in_their_order_when_any_process_is_killed(
    engine: Engine, tmp_path: Path
) -> None:
    needs_hub()
    with storm(tmp_path, random.Random(seed()), engine) as place:
        place.rage(KILLS, SECONDS)
        place.calm()
        place.audit()
