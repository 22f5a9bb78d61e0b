"""Settings of roles and databases that the relay and the handlers meet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from interlock.app import App
from interlock.outbox import Outbox
from interlock.outbox.postgres import admin, schema
from interlock.outbox.postgres.database import RelayConnection
from interlock.outbox.postgres.rights import grants
from interlock.retry import Retry
from tests.outbox.conftest import Connect
from tests.outbox.test_outbox import Place
from tests.worker.workers import wait_for

TIMEOUTS = (
    "statement_timeout", "lock_timeout", "idle_session_timeout",
    "idle_in_transaction_session_timeout",
)  # fmt: skip


@pytest.fixture
def relay_url(database: str, connect: Connect) -> Iterator[str]:
    """URL of a role with the rights of a relay."""
    db = connect(autocommit=True)
    db.execute("create role settings_relay login")
    for text in grants("relay", "interlock", "settings_relay"):
        db.execute(text.encode())
    yield database.replace("bank@", "settings_relay@")
    db.execute("drop owned by settings_relay")
    db.execute("drop role settings_relay")


def test_no_timeout_of_its_role_ends_the_session_or_a_statement_of_the_relay(
    relay_url: str, connect: Connect
) -> None:
    db = connect(autocommit=True)
    for name in TIMEOUTS:
        db.execute(f"alter role settings_relay set {name} = '20s'".encode())
    with contextlib.closing(RelayConnection(relay_url, "interlock")) as relay:
        relay.prefix()
        assert relay.lock()
        for name in TIMEOUTS:
            assert relay.connection.execute(f"show {name}".encode()).fetchone() == ("0",)


def test_a_relay_on_a_read_only_server_says_what_to_do(
    relay_url: str, database: str, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    connect(autocommit=True).execute(
        "alter role settings_relay set default_transaction_read_only = on"
    )
    place = Place(database, connect, relay_url=relay_url)
    with place.app.worker(threads=1):
        wait_for(lambda: "target_session_attrs=read-write" in caplog.text, "not logged")


def test_rows_that_a_policy_hides_are_an_error_of_the_relay_and_a_fault_for_check(
    relay_url: str, database: str, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(database, connect, relay_url=relay_url)
    assert admin.check(place.seen, "interlock") == []
    place.seen.execute("alter table interlock.outbox enable row level security")
    (fault,) = admin.check(place.seen, "interlock")
    assert "row-level security is on for interlock.outbox:" in fault
    with place.app.worker(threads=1):
        wait_for(lambda: "disable row level security" in caplog.text, "not logged")


@pytest.fixture(params=["LATIN1", "SQL_ASCII"])
def encoded(postgresql_server: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of a database with an outbox and another encoding than UTF8."""
    name = request.param.lower()
    with psycopg.connect(postgresql_server, autocommit=True) as opened:
        opened.execute(
            f"create database {name} template template0 encoding '{request.param}' "
            "lc_collate 'C' lc_ctype 'C'".encode()
        )
    url = postgresql_server.rpartition("/")[0] + f"/{name}"
    with psycopg.connect(url, autocommit=True, client_encoding="UTF8") as db:
        schema.migrate(db, "interlock")
    yield url
    with psycopg.connect(postgresql_server, autocommit=True) as opened:
        opened.execute(f"drop database {name} with (force)".encode())


def test_the_error_of_a_handler_is_kept_whatever_the_encoding_of_the_database(
    encoded: str,
) -> None:
    app = App("memory://", retry=Retry(attempts=2, first=0.01))
    outbox = Outbox(app, encoded)

    @app.task(transaction=outbox)
    def fail(db: Any, text: str) -> None:
        raise RuntimeError(text)

    with psycopg.connect(encoded, autocommit=True, client_encoding="UTF8") as db:
        outbox.send(db, fail, "100 \u20ac")
        with app.worker(threads=1):
            query = "select attempts, split_part(error, chr(10), 1) from interlock.outbox " \
                    "where state = 'dead'"  # fmt: skip
            wait_for(lambda: db.execute(query).fetchone() is not None, "not dead")
        found = db.execute(query).fetchone()
    known = "100 \\u20ac" if "latin1" in encoded else "100 \u20ac"
    assert found == (2, f"RuntimeError: {known}")
    app.close()
