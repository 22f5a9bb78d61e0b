"""Producers, workers with their relay and the hub are killed while they work on one SQLite file,
which knows what was sent and what was done."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from interlock.app import App
from interlock.outbox import Outbox
from interlock.outbox.sqlite.lock import holder
from tests.hub.servers import needs_hub
from tests.outbox.storms.file_bank import TABLES
from tests.outbox.storms.storm import Storm, hub
from tests.outbox.storms.test_storm import KILLS, SECONDS
from tests.seeds import seed

pytestmark = pytest.mark.watchdog(SECONDS + 300)


class FileStorm(Storm):
    program = "tests.outbox.storms.file_bank"
    rows = "interlock_outbox"

    def __init__(self, folder: Path, chance: random.Random) -> None:
        path = folder / "bank.db"
        url = f"sqlite:///{path}"
        Outbox(App("memory://"), url).migrate()
        self.database = sqlite3.connect(path, isolation_level=None, timeout=60)
        self.database.executescript(TABLES)
        super().__init__(folder, chance, hub, {"BANK": str(path), "INTERLOCK_POSTGRES_URL": url})

    def ask(self, query: str) -> list[Any]:
        return self.database.execute(query).fetchall()

    def relay(self) -> int | None:
        name = holder(self.folder / "bank.db")
        # A relay that has just got the lock has not written its name yet.
        number = (name or "").rpartition(" ")[2]
        return int(number) if number.isdigit() else None

    def end(self) -> None:
        super().end()
        self.database.close()


@pytest.mark.share(20)
def test_effects_equal_the_committed_sends_in_their_order_when_any_process_is_killed(
    tmp_path: Path,
) -> None:
    needs_hub()
    place = FileStorm(tmp_path, random.Random(seed()))
    with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.callback(place.end)
        place.rage(KILLS, SECONDS)
        place.calm()
        place.audit()
