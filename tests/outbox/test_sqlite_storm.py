"""Producers, workers with their relay and the hub are killed while they work on one SQLite file,
which knows what was sent and what was done."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from interlock.app import App
from interlock.outbox import Outbox
from tests.docs.running import ROOT
from tests.hub.servers import HubProcess, free_port, needs_hub
from tests.outbox.file_bank import TABLES
from tests.seeds import seed

pytestmark = pytest.mark.watchdog(400)

INTERLOCK = str(Path(sys.executable).with_name("interlock"))
FLAGS = ("--concurrency", "4", "--lease", "2")
KILLS = int(os.environ.get("INTERLOCK_OUTBOX_KILLS", "12"))
PATIENCE = 150.0
STEP = 0.3


class Storm:
    """The processes, and the file that they share."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.chance = chance
        self.port = str(free_port())
        self.processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        Outbox(App("memory://"), f"sqlite:///{path}").migrate()
        self.database = sqlite3.connect(path, isolation_level=None, timeout=60)
        self.database.executescript(TABLES)
        self.environment = {
            **os.environ,
            "BANK": str(path),
            "INTERLOCK_POSTGRES_URL": f"sqlite:///{path}",
            "INTERLOCK_URL": f"interlock://127.0.0.1:{self.port}",
            "PYTHONPATH": str(ROOT),
        }
        self.hub = self.new_hub()

    def new_hub(self) -> HubProcess:
        # Without a journal: it forgets everything when it is killed.
        return HubProcess("--port", self.port)

    def spawn(self, role: str) -> None:
        words = [sys.executable, "-m", "tests.outbox.file_bank", str(self.chance.getrandbits(32))]
        if role == "work":
            words = [INTERLOCK, "worker", "tests.outbox.file_bank:app", *FLAGS]
        made = subprocess.Popen(
            words, cwd=ROOT, env=self.environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.processes.append((role, made))

    def kill(self, at: int) -> str:
        role, process = self.processes.pop(at)
        process.kill()
        process.wait()
        return role

    def restart_hub(self) -> None:
        self.hub.process.kill()
        self.hub.process.communicate()
        self.hub = self.new_hub()

    def ask(self, query: str) -> list[tuple[int, ...]]:
        return self.database.execute(query).fetchall()

    def one(self, query: str) -> int:
        ((found,),) = self.ask(query)
        return int(found)

    def end(self) -> None:
        while self.processes:
            self.kill(0)
        self.hub.process.kill()
        self.hub.process.communicate()
        self.database.close()


@pytest.mark.share(20)
def test_effects_equal_the_committed_sends_in_their_order_when_any_process_is_killed(
    tmp_path: Path,
) -> None:
    needs_hub()
    chance = random.Random(seed())
    with contextlib.ExitStack() as stack:
        place = Storm(tmp_path / "bank.db", chance)
        stack.callback(place.end)
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
        while left := place.one("select count(*) from interlock_outbox"):
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
                from sent s join effect e on e.call = s.call and e.k = s.k
            ) x where before > at"""
        assert place.ask(disorder) == []
