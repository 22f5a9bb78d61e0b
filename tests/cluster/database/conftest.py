"""A database of each kind for the checks; a table of its own for each."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.cluster.database import Database, open_database
from tests.cluster.database.rows import RULES
from tests.worker.process.postgresql import postgresql

_numbers = itertools.count(1)


class Place:
    """One table's place in a database."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = f"presence{next(_numbers)}"
        self.partitions: str | None = None
        self._opened: list[Database] = []

    def open(self, rules: Any = RULES, **options: Any) -> Database:
        """The table's database; migrated with the first."""
        options.setdefault("partitions", self.partitions)
        made = open_database(self.url, self.name, rules, **options)
        self._opened.append(made)
        return made

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Return what somebody else reads by SQL; `{t}` is the table."""
        text = sql.replace("{t}", f'"{self.name}"').replace("{mark}", f'"{self.name}_mark"')
        if self.url.startswith("sqlite"):
            database = sqlite3.connect(self.url.removeprefix("sqlite://"), isolation_level=None)
            try:
                return database.execute(text).fetchall()
            finally:
                database.close()
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            done = connection.execute(text.encode())
            return list(done.fetchall()) if done.description else []

    def close(self) -> None:
        for one in self._opened:
            one.close()


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    # Nobody takes the power away here: what waits for the disk alone need not.
    with postgresql("-c", "fsync=off", "-c", "synchronous_commit=off") as url:
        yield url


KINDS = ["sqlite", "postgresql", "postgresql hash:4", "postgresql time:day"]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    kind, _, partitions = request.param.partition(" ")
    if kind == "sqlite":
        made = Place(f"sqlite://{tmp_path}/rows.db")
    else:
        made = Place(request.getfixturevalue("postgresql_url"))
        made.partitions = partitions or None
    yield made
    made.close()


Ask = Callable[[str], list[tuple[Any, ...]]]
