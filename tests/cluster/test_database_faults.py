"""Random faults of nodes, of their engine and of the database behind them.

Two nodes write one database. Afterwards it has the rows of the table, no increment is lost or
counted twice, and its mark never went back but when an older copy was put in its place.

`python -m tests.cluster.test_database_faults 50 --steps 60` does more runs, and longer ones.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import signal
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.cluster.node.test_node import Nodes, client
from tests.cluster.nodes import NodeProcess, eventually
from tests.hub.servers import needs_hub
from tests.worker.process.postgresql import Server

KINDS = ["sqlite", "postgresql", "postgresql hash:4", "postgresql time:day"]
KEYS = [f"k{number}" for number in range(8)]
MOST_BYTES = 4096
"""Limit of a file's size, while a node's disk is full."""
Mark = tuple[int, int]
"""Epoch, and log time: a position of a history that is lost may be higher than all later ones."""


class Run:
    """One run: what was done to the rows, and what stands where."""

    def __init__(self, stack: ExitStack, folder: Path, kind: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.steps = [f"{kind}, seed {seed}"]
        self._nodes = Nodes(stack, folder)
        self._alive: dict[str, NodeProcess] = {}
        self._stopped: set[str] = set()
        self._server: Server | None = None
        self._serves = True
        self._copied: Mark | None = None
        self._highest: Mark = (0, 0)
        self._done: Counter[str] = Counter()
        self._unknown: Counter[str] = Counter()
        name, _, partitions = kind.partition(" ")
        if name == "postgresql":
            self._server = stack.enter_context(Server("-c", "fsync=off"))
            self._url = self._server.url
        else:
            self._url = f"sqlite://{folder}/rows.db"
        self._flags = ["--database", self._url, "--timeout", "3"]
        self._flags += ["--partitions", partitions] * bool(partitions)
        for node in "ab":
            self._start(node)

    def go(self, steps: int) -> None:
        """Do some steps, then end all faults and check."""
        ways: dict[Callable[[], None], int] = {
            self._write: 12, self._kill: 2, self._stop: 1, self._heal: 4, self._copy: 1,
            self._restore: 1, self._fill_disk: 1, self._lose_log: 1,
        }  # fmt: skip
        if self._server is not None:
            ways[self._kill_database] = 2
        for _ in range(steps):
            (step,) = self.chance.choices(list(ways), list(ways.values()))
            self.steps.append(step.__name__)
            step()
            self._check_mark()
        self._heal()
        eventually(lambda: self._rows() == self._table(), self._why)
        for node in self._alive.values():
            eventually(lambda n=node: self._has_all(n), self._why)  # type: ignore[misc]

    # -- Steps --------------------------------------------------------------------------------

    def _write(self) -> None:
        ready = [node for name, node in self._alive.items() if name not in self._stopped]
        if not ready:
            return
        keys = self.chance.choices(KEYS, k=self.chance.randrange(1, 30))
        lost = redis.ConnectionError, redis.TimeoutError
        with suppress(*lost), client(self.chance.choice(ready), timeout=5) as one:
            pipe = one.pipeline(transaction=False)
            for key in keys:
                pipe.hincrby(f"presence:{key}", "unread", 1)
            other = self.chance.choice(KEYS)
            gone = self.chance.choice([pipe.delete, lambda key: pipe.hset(key, "token", "t")])
            gone(f"presence:other-{other}")
            # Until it is known they may be done.
            self._unknown.update(keys)
            for key, found in zip(keys, pipe.execute(raise_on_error=False), strict=False):
                if not isinstance(found, Exception):
                    self._done[key] += 1
                    self._unknown[key] -= 1
                elif "it was not done" in str(found):
                    self._unknown[key] -= 1

    def _kill(self) -> None:
        if self._alive:
            name = self.chance.choice(sorted(self._alive))
            self._stopped.discard(name)
            self._alive.pop(name).kill()

    def _stop(self) -> None:
        for name, node in self._alive.items():
            if name not in self._stopped:
                node.process.send_signal(signal.SIGSTOP)
                self._stopped.add(name)
                return

    def _fill_disk(self) -> None:
        for node in self._alive.values():
            self._limit(node, MOST_BYTES)
            return

    def _kill_database(self) -> None:
        if self._serves and self._server is not None:
            self._serves = False
            self._server.kill()

    def _lose_log(self) -> None:
        self._nodes.lose_all()

    def _copy(self) -> None:
        if self._serves:
            self._asked("DROP TABLE IF EXISTS copied", "DROP TABLE IF EXISTS copied_mark",
                        "CREATE TABLE copied AS SELECT * FROM presence",
                        "CREATE TABLE copied_mark AS SELECT * FROM presence_mark")  # fmt: skip
            self._copied = self._mark()

    def _restore(self) -> None:
        """Put the older copy in the place of the rows, while nodes write."""
        if self._serves and self._copied is not None:
            self._highest = (0, 0)
            self._asked(
                "DELETE FROM presence",
                "INSERT INTO presence SELECT * FROM copied",
                "UPDATE presence_mark SET mark = (SELECT mark FROM copied_mark)",
            )

    def _heal(self) -> None:
        if self._server is not None and not self._serves:
            self._server.start()
            self._serves = True
        for name, node in self._alive.items():
            self._limit(node, resource.RLIM_INFINITY)
            if name in self._stopped:
                node.process.send_signal(signal.SIGCONT)
        self._stopped.clear()
        for name in "ab":
            if name not in self._alive:
                self._start(name)

    # -- Helpers -----------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        self._alive[name] = self._nodes.start(name, *self._flags)

    def _limit(self, node: NodeProcess, most: int) -> None:
        _, hard = resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (most, hard))

    def _asked(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements in one transaction; return what the last one finds."""
        if self._server is None:
            path = self._url.removeprefix("sqlite://")
            with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as one:
                one.execute("BEGIN IMMEDIATE")
                found = [one.execute(text).fetchall() for text in statements]
                one.execute("COMMIT")
                return found[-1]
        import psycopg

        with psycopg.connect(self._url) as other:
            for text in ("LOCK TABLE presence_mark IN EXCLUSIVE MODE", *statements):
                done = other.execute(text.encode())
            return list(done.fetchall()) if done.description else []

    def _mark(self) -> Mark:
        found = json.loads(self._asked("SELECT mark FROM presence_mark")[0][0])
        return found.get("epoch", 0), found.get("time", 0)

    def _check_mark(self) -> None:
        if self._serves:
            mark = self._mark()
            assert mark >= self._highest, f"{mark} after {self._highest}: {self.steps}"
            self._highest = mark

    def _rows(self) -> dict[str, tuple[int, str]]:
        columns = "interlock_key, unread, token"
        found = self._asked(f"SELECT {columns} FROM presence WHERE interlock_alive")
        return {bytes(key).decode(): (unread, token) for key, unread, token in found}

    def _table(self, name: str = "a") -> dict[str, tuple[int, str]]:
        with self._nodes.table(name) as table:
            return {str(key): (row.unread, row.token) for key, row in table.items()}

    def _has_all(self, node: NodeProcess) -> bool:
        rows = self._table(node.name)
        return rows == self._rows() and all(
            self._done[key] <= rows.get(key, (0, ""))[0] <= self._done[key] + self._unknown[key]
            for key in KEYS
        )

    def _why(self) -> str:
        logs = "\n".join(f"-- {node.name}\n{node.log}" for node in self._alive.values())
        return (
            f"database {self._rows()}\na {self._table('a')}\nb {self._table('b')}\n"
            f"done {self._done}\nunknown {+self._unknown}\nmark {self._mark()}\n"
            f"{self.steps}\n{logs}"
        )


def run(kind: str, seed: int, steps: int) -> None:
    """Do one run in a folder of its own."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="interlock-databases-"))
        Run(stack, Path(folder), kind, seed).go(steps)


@pytest.mark.share(2)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql hash:4"])
def test_a_database_has_the_rows_of_its_table_after_any_faults(kind: str) -> None:
    needs_hub()
    run(kind, random.randrange(1 << 30), 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=int)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=KINDS)
    given = parser.parse_args()
    for seed in range(given.seed, given.seed + given.runs):
        kind = given.kind or KINDS[seed % len(KINDS)]
        print(f"seed {seed}: {kind}", flush=True)
        run(kind, seed, given.steps)


if __name__ == "__main__":
    main()
