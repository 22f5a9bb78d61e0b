"""Producers, workers with their relay and the hub are killed while they work; PostgreSQL knows what
was sent and what was done."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from interlock.outbox.postgres import schema
from tests.docs.running import ROOT
from tests.hub.servers import HubProcess, free_port, needs_hub
from tests.outbox.bank import TABLES
from tests.seeds import seed
from tests.worker.process.postgresql import postgresql

pytestmark = pytest.mark.watchdog(400)

INTERLOCK = str(Path(sys.executable).with_name("interlock"))
FLAGS = ("--concurrency", "4", "--lease", "2")
KILLS = int(os.environ.get("INTERLOCK_OUTBOX_KILLS", "12"))
PATIENCE = 150.0
STEP = 0.5


class Storm:
    """The processes, and the database that they share."""

    def __init__(self, url: str, chance: random.Random) -> None:
        self.url, self.chance = url, chance
        self.port = str(free_port())
        self.processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.database = psycopg.connect(url, autocommit=True)
        schema.migrate(self.database, "interlock")
        self.database.execute(TABLES.encode())
        self.hub = self.new_hub()

    def new_hub(self) -> HubProcess:
        # Without a journal: it forgets everything when it is killed.
        return HubProcess("--port", self.port)

    def spawn(self, role: str) -> None:
        environment = {
            **os.environ,
            "INTERLOCK_POSTGRES_URL": self.url,
            "INTERLOCK_URL": f"interlock://127.0.0.1:{self.port}",
            "PYTHONPATH": str(ROOT),
        }
        words = [sys.executable, "-m", "tests.outbox.bank", str(self.chance.getrandbits(32))]
        if role == "work":
            words = [INTERLOCK, "worker", "tests.outbox.bank:app", *FLAGS]
        made = subprocess.Popen(
            words, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.processes.append((role, made))

    def kill(self, at: int) -> str:
        role, process = self.processes.pop(at)
        process.kill()
        process.wait()
        # Its prepared transactions still hold their locks.
        prefix = f"storm-{process.pid}-"
        for (name,) in self.ask("select gid from pg_prepared_xacts"):
            if name.startswith(prefix):
                self.database.execute(f"commit prepared '{name}'".encode())
        return role

    def restart_hub(self) -> None:
        self.hub.process.kill()
        self.hub.process.communicate()
        self.hub = self.new_hub()

    def ask(self, query: str) -> list[Any]:
        return self.database.execute(query.encode()).fetchall()

    def one(self, query: str) -> int:
        ((found,),) = self.ask(query)
        return int(found)

    def end(self) -> None:
        while self.processes:
            self.kill(0)
        self.hub.process.kill()
        self.hub.process.communicate()
        self.database.close()


@contextmanager
def storm(chance: random.Random) -> Iterator[Storm]:
    flags = ["-c", "fsync=off", "-c", "max_prepared_transactions=20"]
    with postgresql(*flags) as url:
        made = Storm(url, chance)
        try:
            yield made
        finally:
            made.end()


@pytest.mark.share(30)
def test_effects_equal_the_committed_sends_in_their_order_when_any_process_is_killed() -> None:
    needs_hub()
    chance = random.Random(seed())
    with storm(chance) as place:
        for role in ("produce", "produce", "produce", "work", "work"):
            place.spawn(role)
        hubs = 0
        for number in range(KILLS):
            done = place.one("select count(*) from effect")
            until = time.monotonic() + chance.uniform(STEP, 2 * STEP)
            # On a slow machine a process would otherwise be killed before it does anything.
            while time.monotonic() < until or (
                place.one("select count(*) from effect") == done
                and time.monotonic() < until + PATIENCE
            ):
                time.sleep(0.02)
            if number % 4 == 3:
                place.restart_hub()
                hubs += 1
            else:
                place.spawn(place.kill(chance.randrange(len(place.processes))))
        for at in reversed(range(len(place.processes))):
            if place.processes[at][0] == "produce":
                place.kill(at)
        until = time.monotonic() + PATIENCE
        while left := place.one("select count(*) from interlock.outbox"):
            assert time.monotonic() < until, f"{left} rows are left"
            time.sleep(0.05)
        print(f"{KILLS} kills, {hubs} of the hub; {place.one('select count(*) from sent')} sent")
        assert place.one("select count(*) from sent") > KILLS
        assert place.ask("select call, k from sent except select call, k from effect") == []
        assert place.ask("select call, k from effect except select call, k from sent") == []
        assert place.ask("select call, k from effect group by call, k having count(*) > 1") == []
        disorder = """
            select * from (
                select s.k, s.n, e.at, lag(e.at) over (partition by s.k order by s.n) as before
                from sent s join effect e using (call, k)
            ) x where before > at"""
        assert place.ask(disorder) == []
