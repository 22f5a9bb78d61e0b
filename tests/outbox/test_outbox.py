"""Sends, handlers and dead letters of an outbox, with one worker and an engine in memory."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import psycopg
import pytest

from interlock import Reject, current_lease
from interlock.app import App, envelope
from interlock.app.row import ROW
from interlock.cli import main
from interlock.outbox import Outbox
from interlock.outbox.rows import Reference
from interlock.retry import Retry
from tests.docs.running import ROOT
from tests.outbox.conftest import Connect
from tests.worker.workers import wait_for


class Place:
    """An app with an outbox, and what its handlers did."""

    def __init__(self, url: str, connect: Connect, **options: Any) -> None:
        self.url = url
        self.app = App("memory://", retry=Retry(attempts=3, first=0.01))
        self.outbox = Outbox(self.app, url, **options)
        self.handled: list[Any] = []
        self.seen = connect(autocommit=True)
        self.seen.execute("create table if not exists effect (n int)")

        @self.app.task(keys="key", transaction=self.outbox)
        def effect(db: Any, n: int) -> None:
            db.execute("insert into effect values (%s)", (n,))
            self.handled.append((n, current_lease().attempt))
            if n < 0:
                raise RuntimeError("below zero")

        @self.app.task(keys="key")
        def plain(n: int) -> None:
            self.handled.append((n, current_lease().attempt))
            if n < 0:
                raise Reject("below zero")

        @self.app.task(keys="key", transaction=self.outbox)
        async def later(db: psycopg.AsyncConnection[Any], n: int) -> None:
            await db.execute("insert into effect values (%s)", (n,))
            self.handled.append((n, current_lease().attempt))

        self.effect, self.plain, self.later = effect, plain, later

    def rows(self, columns: str = "id") -> list[Any]:
        return self.seen.execute(f"select {columns} from interlock.outbox order by id".encode()
                                 ).fetchall()  # fmt: skip

    def effects(self) -> list[int]:
        return [n for (n,) in self.seen.execute("select n from effect order by n")]

    def wait_for_rows(self, count: int, where: str = "true") -> None:
        query = f"select id from interlock.outbox where {where}".encode()
        wait_for(lambda: len(self.seen.execute(query).fetchall()) == count, f"not {count} rows")


@pytest.fixture
def place(database: str, connect: Connect) -> Place:
    return Place(database, connect)


@pytest.fixture
def running(place: Place) -> Iterator[Place]:
    with place.app.worker(threads=4):
        yield place


def test_a_send_is_handled_if_its_transaction_commits_and_not_if_it_rolls_back(
    running: Place, connect: Connect
) -> None:
    db = connect()
    running.outbox.send(db, running.effect, 1)
    db.rollback()
    sent = running.outbox.send(db, running.effect, 2)
    assert not sent.known
    db.commit()
    running.wait_for_rows(0)
    assert running.effects() == [2]
    assert running.handled == [(2, 1)]


@pytest.mark.parametrize("task", ["plain", "later"])
def test_a_handler_without_a_transaction_or_of_asyncio_loses_its_row_once_it_has_returned(
    running: Place, connect: Connect, task: str
) -> None:
    running.outbox.send(connect(autocommit=True), getattr(running, task), 5)
    running.wait_for_rows(0)
    assert running.handled == [(5, 1)]


def test_a_call_whose_row_is_gone_is_not_handled(place: Place, connect: Connect) -> None:
    db = connect(autocommit=True)
    first = place.outbox.send(db, place.effect, 1)
    place.outbox.send(db, place.effect, 2)

    @place.app.before_handle
    def note(handling: Any) -> None:
        place.handled.append(handling.task)

    # The relay has put the first one; it is handled once, whatever the engine repeats.
    with place.app.worker(threads=4):
        place.wait_for_rows(0)
        queue = place.app._queue("default")
        last = place.outbox.send(db, place.effect, 3)
        place.wait_for_rows(0)
        queue.put(call_of_a_row(place, first.id), keys="key")
        queue.join(20)
        assert queue.stats().acks == 4
    assert last.id > first.id
    assert place.effects() == [1, 2, 3]


def test_a_call_that_has_the_id_of_another_row_is_not_handled_and_leaves_that_row(
    place: Place, connect: Connect
) -> None:
    # As after a restore: the sequence gives the id again.
    queue = place.app._queue("default")
    queue.put(call_of_a_row(place, 1), keys="key")
    assert place.outbox.send(connect(autocommit=True), place.effect, 1).id == 1
    with place.app.worker(threads=1):
        place.wait_for_rows(0)
        queue.join(20)
    assert queue.stats().acks == 2
    assert place.effects() == [1]


def call_of_a_row(place: Place, id: int) -> bytes:
    headers = {ROW: Reference(id, 0, 0.0, False, 1, "").text}
    encoded = envelope.write("effect", place.effect.signature, (9,), {}, None, headers)
    return msgspec.msgpack.encode(envelope.read(encoded))


def test_a_failing_handler_leaves_its_attempts_and_its_error_and_then_a_dead_row(
    running: Place, connect: Connect
) -> None:
    running.outbox.send(connect(autocommit=True), running.effect, -1)
    running.wait_for_rows(1, "state = 'dead'")
    ((attempts, error),) = running.rows("attempts, error")
    assert attempts == 3 and error.startswith("RuntimeError: below zero\n")
    assert running.effects() == []
    assert [attempt for _, attempt in running.handled] == [1, 2, 3]


def test_a_reject_of_a_handler_without_a_transaction_leaves_a_dead_row(
    running: Place, connect: Connect
) -> None:
    running.outbox.send(connect(autocommit=True), running.plain, -1)
    running.wait_for_rows(1, "state = 'dead'")
    assert running.rows("attempts, error") == [(1, "below zero")]


def test_attempts_go_on_where_they_were_when_the_engine_forgets_everything(
    place: Place, connect: Connect
) -> None:
    place.outbox.send(connect(autocommit=True), place.effect, -1)
    # The engine that counted these is gone.
    place.seen.execute("update interlock.outbox set attempts = 2")
    with place.app.worker(threads=2):
        place.wait_for_rows(1, "state = 'dead'")
    assert place.handled == [(-1, 3)]


def test_a_held_row_is_held_again_by_an_engine_that_forgot_it(
    database: str, connect: Connect
) -> None:
    place = Place(database, connect)

    @place.app.task(transaction=place.outbox, retry=Retry(attempts=1, then="hold"))
    def fail(db: Any) -> None:
        place.handled.append("failed")
        raise RuntimeError("no")

    place.outbox.send(connect(autocommit=True), fail)
    with place.app.worker(threads=2):
        place.wait_for_rows(1, "state = 'held'")
    place.app.close()
    with place.app.worker(threads=2):
        queue = place.app._queue("default")
        wait_for(lambda: queue.stats().held == 1, "not held")
        assert place.handled == ["failed"]
        assert main(["postgres", "requeue", "1", "--database", place.url]) == 0
    assert place.rows("state, attempts") == [(None, 0)]


def test_a_dedup_string_is_known_until_its_call_was_handled(place: Place, connect: Connect) -> None:
    db = connect(autocommit=True)
    named = place.effect.options(dedup="one")
    first = place.outbox.send(db, named, 1)
    again = place.outbox.send(db, named, 2)
    assert (first.known, again.id, again.known) == (False, first.id, True)
    with place.app.worker(threads=2):
        place.wait_for_rows(0)
        assert not place.outbox.send(db, named, 3).known
        place.wait_for_rows(0)
    assert place.effects() == [1, 3]


def test_delay_begins_with_the_commit_and_expiry_with_the_send(
    place: Place, connect: Connect
) -> None:
    db = connect(autocommit=True)
    place.outbox.send(db, place.effect.options(delay=3600), 1)
    place.outbox.send(db, place.effect.options(expires=5), 2)
    place.seen.execute("update interlock.outbox set created = created - interval '1 h'")
    with place.app.worker(threads=2):
        place.wait_for_rows(1)
        queue = place.app._queue("default")
        wait_for(lambda: queue.stats().delayed == 1, "not delayed")
    ((due,),) = place.seen.execute(
        "select extract(epoch from due - clock_timestamp())::float8 from interlock.outbox_rows"
    )
    assert 3500 < due <= 3600
    assert place.handled == []


def test_order_on_a_key_is_that_of_the_commits(place: Place, connect: Connect) -> None:
    first, second = connect(), connect()
    place.outbox.send(first, place.plain, 1)
    place.outbox.send(second, place.plain, 2)
    second.commit()
    first.commit()
    with place.app.worker(threads=4):
        place.wait_for_rows(0)
    assert [n for n, _ in place.handled] == [2, 1]


def test_a_handler_is_not_charged_for_a_database_that_ends_its_connections(
    running: Place, connect: Connect
) -> None:
    db = connect(autocommit=True)
    running.outbox.send(db, running.effect, 1)
    running.wait_for_rows(0)
    running.seen.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where application_name like 'interlock%'"
    )
    running.outbox.send(db, running.effect, 2)
    running.wait_for_rows(0)
    assert running.effects() == [1, 2]
    assert running.handled == [(1, 1), (2, 1)]


def test_a_handler_that_ends_its_transaction_by_sql_fails(place: Place, connect: Connect) -> None:
    @place.app.task(transaction=place.outbox, retry=Retry(attempts=1))
    def ends(db: Any, how: str) -> None:
        db.execute("insert into effect values (1)")
        db.execute(how)

    @place.app.task(transaction=place.outbox, retry=Retry(attempts=1))
    async def ends_later(db: Any) -> None:
        await db.execute("rollback")

    db = connect(autocommit=True)
    place.outbox.send(db, ends, "rollback")
    place.outbox.send(db, ends_later)
    with place.app.worker(threads=1):
        place.wait_for_rows(2, "state = 'dead' and error like '%when the handler returns%'")
        # The commit cannot be taken back; the handler has failed nevertheless.
        place.outbox.send(db, ends, "commit")
        place.wait_for_rows(2)
        wait_for(lambda: place.app._queue("default").stats().dead == 3, "not dead")
    assert place.effects() == [1]


def test_transactions_of_the_program_are_used_by_handlers(database: str, connect: Connect) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(database.replace("postgresql:", "postgresql+psycopg:"))
    place = Place(database, connect, begin=engine.begin)

    @place.app.task(transaction=place.outbox)
    def count(db: Any, n: int) -> None:
        db.execute(sqlalchemy.text("insert into effect values (:n)"), {"n": n})

    with engine.begin() as db:
        place.outbox.send(db, count, 7)
    with place.app.worker(threads=2):
        place.wait_for_rows(0)
    engine.dispose()
    assert place.effects() == [7]


# -- Connections of several libraries -------------------------------------------------------------


def by_psycopg(url: str, send: Callable[[Any], object]) -> None:
    with psycopg.connect(url) as db:
        send(db)


def by_a_cursor(url: str, send: Callable[[Any], object]) -> None:
    with psycopg.connect(url) as db, db.cursor(row_factory=psycopg.rows.dict_row) as cursor:
        send(cursor)


def by_sqlalchemy(url: str, send: Callable[[Any], object]) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as db:
        send(db)
    engine.dispose()


def by_a_session(url: str, send: Callable[[Any], object]) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    from sqlalchemy.orm import Session

    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with Session(engine) as session, session.begin():
        send(session)
    engine.dispose()


def by_django(url: str, send: Callable[[Any], object]) -> None:
    django = pytest.importorskip("django")
    from django.conf import settings
    from django.db import ConnectionHandler

    if not settings.configured:
        settings.configure()
        django.setup()
    info = psycopg.conninfo.conninfo_to_dict(url)
    handler = ConnectionHandler({"default": {
        "ENGINE": "django.db.backends.postgresql", "NAME": info["dbname"], "USER": info["user"],
        "HOST": info["host"], "PORT": info["port"],
    }})  # fmt: skip
    connection = handler["default"]
    connection.set_autocommit(False)
    send(connection)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("by", [by_psycopg, by_a_cursor, by_sqlalchemy, by_a_session, by_django])
def test_a_send_takes_a_synchronous_connection_of(
    place: Place, by: Callable[[str, Callable[[Any], object]], None]
) -> None:
    sent: list[Any] = []
    many: list[Any] = []
    named = place.effect.options(dedup="one", delay=5)

    def send(db: Any) -> None:
        sent.append(place.outbox.send(db, named, 3))
        sent.append(place.outbox.send(db, named, 4))
        many.extend(place.outbox.send_many(db, place.plain.options(dedup="two"), [[5], [6]]))
        many.extend(place.outbox.send_many(db, place.plain, [[7], {"n": 8}]))
        with pytest.raises(TypeError, match="send"):
            asyncio.run(place.outbox.asend(db, named, 5))

    by(place.url, send)
    assert place.rows("id, queue, task, keys, shared, delay, dedup") == [
        (sent[0].id, "default", "effect", [b"key"], [], 5.0, "one"),
        (many[0].id, "default", "plain", [b"key"], [], None, "two"),
        (many[2].id, "default", "plain", [b"key"], [], None, None),
        (many[3].id, "default", "plain", [b"key"], [], None, None),
    ]
    assert [(each.id, each.known) for each in sent] == [(sent[0].id, False), (sent[0].id, True)]
    assert many[1].id == many[0].id
    assert [each.known for each in many] == [False, True, False, False]


async def on_psycopg(url: str, send: Callable[[Any], Any]) -> None:
    async with await psycopg.AsyncConnection.connect(url) as db:
        await send(db)


async def on_asyncpg(url: str, send: Callable[[Any], Any]) -> None:
    asyncpg = pytest.importorskip("asyncpg")
    db = await asyncpg.connect(url)
    async with db.transaction():
        await send(db)
    await db.close()


async def on_sqlalchemy(url: str, send: Callable[[Any], Any]) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy.ext.asyncio")
    engine = sqlalchemy.create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))
    async with engine.begin() as db:
        await send(db)
    await engine.dispose()


async def on_a_session(url: str, send: Callable[[Any], Any]) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy.ext.asyncio")
    engine = sqlalchemy.create_async_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    async with sqlalchemy.AsyncSession(engine) as session, session.begin():
        await send(session)
    await engine.dispose()


@pytest.mark.parametrize("on", [on_psycopg, on_asyncpg, on_sqlalchemy, on_a_session])
def test_a_send_takes_an_asynchronous_connection_of(place: Place, on: Callable[..., Any]) -> None:
    sent: list[Any] = []
    many: list[Any] = []
    named = place.effect.options(dedup="one", delay=5)

    async def send(db: Any) -> None:
        sent.append(await place.outbox.asend(db, named, 3))
        sent.append(await place.outbox.asend(db, named, 4))
        two = place.plain.options(dedup="two")
        many.extend(await place.outbox.asend_many(db, two, [[5], [6]]))
        many.extend(await place.outbox.asend_many(db, place.plain, [[7], {"n": 8}]))
        with pytest.raises(TypeError, match="asend"):
            place.outbox.send(db, named, 5)

    asyncio.run(on(place.url, send))
    assert place.rows("id, queue, task, keys, shared, delay, dedup") == [
        (sent[0].id, "default", "effect", [b"key"], [], 5.0, "one"),
        (many[0].id, "default", "plain", [b"key"], [], None, "two"),
        (many[2].id, "default", "plain", [b"key"], [], None, None),
        (many[3].id, "default", "plain", [b"key"], [], None, None),
    ]
    assert [(each.id, each.known) for each in sent] == [(sent[0].id, False), (sent[0].id, True)]
    assert many[1].id == many[0].id
    assert [each.known for each in many] == [False, True, False, False]


def test_a_send_on_anything_else_is_refused(place: Place) -> None:
    with pytest.raises(TypeError, match="allowed: a connection"):
        place.outbox.send(object(), place.effect, 1)
    app = App("memory://")

    @app.task
    def other(n: int) -> None:
        """Of another app."""

    with pytest.raises(TypeError, match="allowed: a task of the outbox's app"):
        place.outbox.send(place.seen, other, 1)


# -- The command ----------------------------------------------------------------------------------


def test_the_command_shows_dead_rows_and_returns_them_to_the_order(
    running: Place, connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--database", running.url, "--json"]
    running.outbox.send(connect(autocommit=True), running.plain, -1)
    running.wait_for_rows(1, "state = 'dead'")
    assert main(["postgres", "status", *where]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["waiting"], found["relayed"], found["dead"], found["oldest"]) == (0, 0, 1, None)
    assert found["relay"] is not None
    assert main(["postgres", "dead", *where]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["task"], found["keys"], found["error"]) == ("plain", ["key"], "below zero")
    assert main(["postgres", "requeue", str(found["id"]), *where]) == 0
    assert json.loads(capsys.readouterr().out) == {"ids": [found["id"]]}
    wait_for(lambda: len(running.handled) == 2, "not handled again")
    running.wait_for_rows(1, "state = 'dead'")
    assert main(["postgres", "requeue", "999", *where]) == 1
    assert main(["postgres", "requeue", *where]) == 2


def test_the_command_prints_its_sql_and_migrates_once(
    postgresql_server: str, connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    db = connect(autocommit=True)
    assert main(["postgres", "migrate", "--sql", "--schema", "mine"]) == 0
    db.execute(capsys.readouterr().out.encode())
    where = ["--database", db.info.dsn + f" host={db.info.host}", "--schema", "mine"]
    assert main(["postgres", "migrate", *where]) == 0
    assert capsys.readouterr().out == "the outbox in the schema mine has version 3 already\n"
    assert main(["postgres", "status", *where[:2], "--schema", "other"]) == 1
    assert "migrate" in capsys.readouterr().err


def test_a_check_finds_a_disabled_trigger_and_rows_without_numbers(
    place: Place, connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--database", place.url]
    assert main(["postgres", "check", *where]) == 0
    before = place.seen.execute("select prefix from interlock.outbox_meta").fetchone()
    place.seen.execute("alter table interlock.outbox disable trigger zz_outbox_arrive")
    place.outbox.send(connect(autocommit=True), place.effect, 1)
    assert main(["postgres", "check", "--restored", *where]) == 1
    said = capsys.readouterr().out
    assert "zz_outbox_arrive" in said and "1 rows have no number" in said
    assert place.seen.execute("select prefix from interlock.outbox_meta").fetchone() != before


def test_a_worker_waits_for_tables_that_are_not_there_yet(
    place: Place, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    place.seen.execute("update interlock.outbox_meta set version = 0")
    place.outbox.send(connect(autocommit=True), place.effect, 1)
    with place.app.worker(threads=2):
        wait_for(lambda: "interlock outbox migrate" in caplog.text, "not logged")
        place.seen.execute("update interlock.outbox_meta set version = 3")
        place.wait_for_rows(0)
    assert place.effects() == [1]


def test_the_example_moves_the_money_of_what_was_committed(database: str) -> None:
    program = ROOT / "examples" / "outbox" / "transfers.py"
    done = subprocess.run(
        [sys.executable, program, database], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "ann 910\nbob 90\n", done.stderr
