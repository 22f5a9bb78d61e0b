"""A PostgreSQL for the tests of the outbox; a database of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from interlock.outbox.postgres import schema
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
