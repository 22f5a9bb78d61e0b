"""A PostgreSQL for the tests of the outbox; a database of its own for each test."""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from interlock.outbox.postgres import schema
from interlock.outbox.sqlite import schema as sqlite_schema
from tests.worker.process.postgresql import postgresql

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    with postgresql("-c", "fsync=off", "-c", "max_prepared_transactions=10") as url:
        yield url


@pytest.fixture
def database(new_database: str) -> str:
    """URL of a database with the tables of an outbox."""
    with psycopg.connect(new_database, autocommit=True) as opened:
        schema.migrate(opened, "interlock")
    return new_database


@pytest.fixture
def new_database(postgresql_server: str) -> Iterator[str]:
    """URL of an empty database."""
    name = f"outbox{next(_numbers)}"
    with psycopg.connect(postgresql_server, autocommit=True) as opened:
        opened.execute(f"create database {name}".encode())
    yield postgresql_server.rpartition("/")[0] + f"/{name}"
    with psycopg.connect(postgresql_server, autocommit=True) as opened:
        opened.execute(f"drop database {name} with (force)".encode())


Connect = Callable[..., "psycopg.Connection[Any]"]


@pytest.fixture
def connect(database: str) -> Iterator[Connect]:
    """Opens connections of psycopg, which are closed at the end."""
    opened: list[psycopg.Connection[Any]] = []

    def make(**options: Any) -> psycopg.Connection[Any]:
        opened.append(psycopg.connect(database, **options))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


class Side(NamedTuple):
    """A database of either kind with the tables of an outbox."""

    url: str
    db: Any
    """A connection that commits each statement."""
    table: str

    @property
    def is_file(self) -> bool:
        return self.url.startswith("sqlite:")

    def ask(self, text: str) -> list[Any]:
        """Run a statement with ``@`` for the table of rows; return what it finds."""
        found = self.db.execute(text.replace("@", self.table))
        return list(found.fetchall()) if found.description else []

    def other(self) -> Any:
        """Return another connection."""
        if self.is_file:
            return sqlite3.connect(self.url.removeprefix("sqlite:///"), check_same_thread=False)
        return psycopg.connect(self.url)


@pytest.fixture(params=["postgresql", "sqlite"])
def side(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Side]:
    if request.param == "postgresql":
        url = request.getfixturevalue("database")
        with psycopg.connect(url, autocommit=True) as opened:
            yield Side(url, opened, "interlock.outbox")
        return
    path = tmp_path / "bank.db"
    with contextlib.closing(
        sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    ) as file:
        sqlite_schema.migrate(file, "interlock")
        yield Side(f"sqlite:///{path}", file, "interlock_outbox")
