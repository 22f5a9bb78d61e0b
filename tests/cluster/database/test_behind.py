"""Write-behind to real databases that are full, locked, killed, or another's."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from interlock.cluster.database import Database, DatabaseUnavailable, SavedMark, open_database
from interlock.cluster.database.behind import WriteBehind, part_of
from tests.cluster.database.conftest import Place
from tests.cluster.database.rows import RULES, mark, state_of
from tests.worker.postgresql import Server

PATIENCE = 40.0


def eventually(found: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE
    while not found():
        assert time.monotonic() < until
        time.sleep(0.005)


class Node:
    """The rows of a node, and what has changed since a mark, as the runner asks for it."""

    def __init__(self) -> None:
        self.states: dict[bytes, bytes] = {}
        self.log: list[list[bytes]] = [[]]
        self.lock = threading.Lock()
        self.behind: WriteBehind | None = None

    def change(self, keys: list[bytes]) -> None:
        with self.lock:
            seq = len(self.log)
            rows = [(key, state_of(seq)) for key in dict.fromkeys(keys)]
            self.states.update(rows)
            self.log.append([key for key, _ in rows])
            if self.behind is not None:
                self.behind.offer(rows, mark(seq))

    def missing(self, found: SavedMark) -> list[bytes]:
        with self.lock:
            return list({key for keys in self.log[found.seq + 1 :] for key in keys})


@contextmanager
def runner(node: Node, *databases: Database, most_bytes: int = 1 << 20) -> Iterator[WriteBehind]:
    made = WriteBehind(
        databases, node.states.get, node.missing, pause=0.001, batch=50, most_bytes=most_bytes
    )
    node.behind = made
    made.start()
    try:
        yield made
    finally:
        node.behind = None
        made.close(timeout=0)


def saved(database: Database) -> tuple[SavedMark, dict[bytes, bytes]]:
    found, batches = database.load()
    return found, dict(pair for batch in batches for pair in batch)


def keys(chance: random.Random, count: int = 20) -> list[bytes]:
    return [b"%d" % chance.randrange(500) for _ in range(count)]


def test_what_is_offered_gets_there(place: Place) -> None:
    chance, node = random.Random(1), Node()
    place.open().migrate()
    # Before it leads: it comes by what is missing.
    node.change(keys(chance))
    with runner(node, place.open(), most_bytes=2000) as behind:
        node.change(keys(chance))
        behind.lead(3)
        for _ in range(100):
            node.change(keys(chance))
        assert behind.flush(PATIENCE)
        (figures,) = behind.figures()
        assert (figures.waiting, figures.delay_ms, figures.error) == (0, 0, "")
        assert figures.written >= len(node.states)
    assert saved(place.open()) == (mark(102), node.states)


def test_a_new_primary_goes_on_where_the_old_one_was(place: Place) -> None:
    chance, node, other = random.Random(2), Node(), Node()
    other.states, other.log, other.lock = node.states, node.log, node.lock
    place.open().migrate()
    with runner(node, place.open()) as old, runner(other, place.open()) as new:
        old.lead(1)
        for _ in range(20):
            node.change(keys(chance))
        other.behind = None
        new.lead(2)
        eventually(lambda: new.flush(0))
        # Nobody has told the old one.
        node.change(keys(chance))
        eventually(lambda: "token 2" in old.figures()[0].error)
        assert old.flush(0)
        # What was missing is there; its mark comes with the next that is offered.
        _, states = saved(place.open())
        assert states.keys() >= {key for keys in node.log[:21] for key in keys}
        node.behind, other.behind = None, new
        new.lead(3)
        other.change(keys(chance))
        assert new.flush(PATIENCE)
    assert saved(place.open()) == (mark(22), node.states)


def test_several_databases_have_each_their_part(tmp_path: Path) -> None:
    chance, node = random.Random(3), Node()
    urls = [f"sqlite://{tmp_path}/{n}.db" for n in range(3)]
    opened = [open_database(url, "t", RULES, part=(n, 3)) for n, url in enumerate(urls)]
    for one in opened:
        one.migrate()
    with runner(node, *opened) as behind:
        behind.lead(1)
        for _ in range(50):
            node.change(keys(chance))
        assert behind.flush(PATIENCE)
        assert len(behind.figures()) == 3
    for n, one in enumerate(opened):
        _, states = saved(one)
        assert states == {k: v for k, v in node.states.items() if part_of(k, 3) == n}
        one.close()


def test_a_locked_database_is_waited_for(tmp_path: Path) -> None:
    chance, node = random.Random(4), Node()
    database = open_database(f"sqlite://{tmp_path}/rows.db", "t", RULES, timeout=0.05)
    database.migrate()
    other = sqlite3.connect(tmp_path / "rows.db", isolation_level=None)
    with runner(node, database) as behind:
        behind.lead(1)
        node.change(keys(chance))
        assert behind.flush(PATIENCE)
        other.execute("BEGIN IMMEDIATE")
        node.change(keys(chance))
        failures = 0
        write = database.write

        def counted(*given: object) -> None:
            nonlocal failures
            try:
                write(*given)  # type: ignore[arg-type]
            except DatabaseUnavailable:
                failures += 1
                raise

        # The same, with its failures counted.
        database.write = counted  # type: ignore[assignment, method-assign]
        eventually(lambda: failures >= 2)
        assert "locked" in behind.figures()[0].error
        figures = behind.figures()[0]
        assert figures.waiting and figures.delay_ms > 0
        assert not behind.flush(0)
        other.execute("ROLLBACK")
        assert behind.flush(PATIENCE)
        assert behind.figures()[0].error == ""
    other.close()
    assert saved(database) == (mark(2), node.states)
    database.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    chance, node = random.Random(5), Node()
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", folder], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no small disk to be had: {mounted.stderr}")
    try:
        database = open_database(f"sqlite://{folder}/rows.db", "t", RULES, timeout=1.0)
        database.migrate()
        with runner(node, database) as behind:
            behind.lead(1)
            node.change(keys(chance))
            assert behind.flush(PATIENCE)
            ballast = folder / "ballast"
            with suppress(OSError):
                ballast.write_bytes(b"x" * 600_000)
            until = time.monotonic() + PATIENCE
            while "full" not in (behind.figures()[0].error or "") and "I/O" not in (
                behind.figures()[0].error
            ):
                assert time.monotonic() < until, behind.figures()
                node.change([b"%d" % chance.randrange(5000) for _ in range(50)])
                time.sleep(0.001)
            assert not behind.flush(0)
            ballast.unlink()
            subprocess.run(["mount", "-o", "remount,size=20m", folder], check=True)
            assert behind.flush(PATIENCE)
        assert saved(database) == (mark(len(node.log) - 1), node.states)
        database.close()
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_a_database_that_is_killed_and_restarted_has_all(tmp_path: Path) -> None:
    """Each transaction whole, or not at all; the runner goes on by itself."""
    chance, node = random.Random(6), Node()
    with Server() as server:
        place = Place(server.url)
        place.open().migrate()
        with runner(node, place.open(timeout=2.0)) as behind:
            behind.lead(1)
            for kills in range(1, 3):
                until = time.monotonic() + PATIENCE
                while behind.figures()[0].written < 200 * kills:
                    assert time.monotonic() < until
                    node.change(keys(chance))
                    time.sleep(0.001)
                server.kill()
                node.change(keys(chance))
                eventually(lambda: behind.figures()[0].error)
                server.start()
            assert behind.flush(PATIENCE)
        assert saved(place.open()) == (mark(len(node.log) - 1), node.states)
        place.close()


WRITER = """
import sys, random
from tests.cluster.database.test_behind import Node, keys, runner
from tests.cluster.database.rows import RULES
from interlock.cluster.database import open_database
database = open_database(sys.argv[1], sys.argv[2], RULES)
node, chance = Node(), random.Random(int(sys.argv[3]))
with runner(node, database) as behind:
    behind.lead(int(sys.argv[3]))
    while True:
        node.change(keys(chance))
        print(len(node.log) - 1, behind.figures()[0].written, flush=True)
"""


@pytest.mark.parametrize("seed", [1])
def test_a_writer_that_is_killed_leaves_whole_batches(place: Place, seed: int) -> None:
    """Each row there is as of the mark or later: each change of the random writer is known."""
    place.open().migrate()
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, place.url, place.name, str(seed)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    for line in process.stdout:
        if int(line.split()[1]) > 1100:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    found, states = saved(place.open())
    assert found.seq > 0
    chance, last = random.Random(seed), dict[bytes, int]()
    for seq in range(1, found.seq + 1):
        last |= dict.fromkeys(keys(chance), seq)
    for key, seq in last.items():
        row = RULES.row(states[key], 1)
        # `state_of(seq)` has the number of its change in it.
        assert row is not None and getattr(row, "app_id") >= seq  # noqa: B009
    # The next goes on with what is there.
    database = place.open()
    assert database.begin(seed + 1) == found
