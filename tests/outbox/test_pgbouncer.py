"""Sends and handlers through PgBouncer in transaction mode: transactions change their sessions."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.hub.servers import free_port, missing
from tests.outbox.conftest import Connect
from tests.outbox.test_outbox import Place
from tests.worker.workers import wait_for

MANY = 12
"""More than the five uses after which psycopg prepares a statement."""


@pytest.fixture
def pool(database: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """URL of the database through a PgBouncer with two sessions. The parameter: its mode, and
    whether it resets a session after each use."""
    mode, resets = getattr(request, "param", ("transaction", 1))
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin:" + os.environ["PATH"])
    if program is None:
        missing("no PgBouncer: install pgbouncer")
    assert program is not None
    info, port = psycopg.conninfo.conninfo_to_dict(database), free_port()
    with tempfile.TemporaryDirectory(prefix="interlock-pgbouncer-") as folder:
        settings, who = Path(folder) / "ini", []
        settings.write_text(
            f"[databases]\n* = host={info['host']} port={info['port']} user={info['user']}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = any\npool_mode = {mode}\ndefault_pool_size = 2\n"
            f"server_reset_query = discard all\nserver_reset_query_always = {resets}\n"
        )
        if os.geteuid() == 0:
            # It refuses to run as root.
            shutil.chown(folder, "postgres", "postgres")
            settings.chmod(0o644)
            who = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
        process = subprocess.Popen(
            [*who, program, str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        url = database.replace(f":{info['port']}/", f":{port}/")
        try:
            wait_for(lambda: process.poll() is not None or answers(url), "no answer")
            yield url
        finally:
            process.terminate()
            process.wait(20)


def answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


def by_psycopg(place: Place) -> None:
    with psycopg.connect(place.url, prepare_threshold=None) as db:
        for n in range(MANY):
            place.outbox.send(db, place.effect, n)
            db.commit()


def by_sqlalchemy(place: Place) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(
        place.url.replace("postgresql:", "postgresql+psycopg:"),
        connect_args={"prepare_threshold": None},
    )
    for n in range(MANY):
        with engine.begin() as db:
            place.outbox.send_many(db, place.effect, [[n]])
    engine.dispose()


def by_asyncpg(place: Place) -> None:
    asyncpg = pytest.importorskip("asyncpg")

    async def send() -> None:
        db = await asyncpg.connect(place.url, statement_cache_size=0)
        for n in range(MANY):
            async with db.transaction():
                await place.outbox.asend(db, place.effect, n)
        await db.close()

    asyncio.run(send())


@pytest.mark.parametrize("by", [by_psycopg, by_sqlalchemy, by_asyncpg])
def test_sends_and_handlers_work_through_a_pool_of_transactions(
    database: str, pool: str, connect: Connect, by: Any, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(pool, connect, relay_url=database)
    with place.app.worker(threads=4):
        by(place)
        place.wait_for_rows(0)
        for n in range(MANY):
            place.outbox.send(place.seen, place.later, MANY + n)
        place.wait_for_rows(0)
    assert place.effects() == list(range(2 * MANY))
    # A statement that a session does not know would be tried again.
    assert "prepared statement" not in caplog.text


@pytest.mark.parametrize("pool", [("transaction", 0), ("transaction", 1)], indirect=True)
def test_a_relay_whose_transactions_change_their_sessions_does_not_begin_and_says_why(
    pool: str, database: str, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(pool, connect)
    place.outbox.send(connect(autocommit=True), place.effect, 1)
    with place.app.worker(threads=1):
        wait_for(lambda: "relay_url of the outbox" in caplog.text, "not refused")
    query = "select count(*) from pg_locks where locktype = 'advisory'"
    assert place.seen.execute(query).fetchone() == (0,)
    place.wait_for_rows(1)


@pytest.mark.parametrize("pool", [("session", 1)], indirect=True)
def test_a_relay_works_through_a_pgbouncer_in_session_mode(
    pool: str, database: str, connect: Connect
) -> None:
    place = Place(database, connect, relay_url=pool)
    place.outbox.send(connect(autocommit=True), place.effect, 1)
    with place.app.worker(threads=1):
        place.wait_for_rows(0)
    assert place.effects() == [1]
