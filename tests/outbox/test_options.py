"""Options and headers of a send reach the engine and the handler, on each kind of connection."""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.app import App, envelope
from interlock.client.admin.operator import Operator
from interlock.client.admin.server import Server
from interlock.outbox import Outbox
from tests.outbox import test_outbox as on_postgresql
from tests.outbox import test_sqlite as on_file
from tests.outbox.conftest import Side
from tests.worker.workers import wait_for

Send = Callable[[Any], Any]


def by_psycopg2(url: str, send: Send) -> None:
    psycopg2 = pytest.importorskip("psycopg2")
    db = psycopg2.connect(url)
    send(db)
    db.commit()
    db.close()


async def on_an_async_cursor(url: str, send: Send) -> None:
    import psycopg

    async with await psycopg.AsyncConnection.connect(url) as db, db.cursor() as cursor:
        await send(cursor)


def by_sqlite3(path: Path, send: Send) -> None:
    with sqlite3.connect(path) as db:
        send(db)
    db.close()


async def on_aiosqlite(path: Path, send: Send) -> None:
    aiosqlite = pytest.importorskip("aiosqlite")
    async with aiosqlite.connect(path) as db:
        await send(db)
        await db.commit()


async def on_sqlalchemy_of_a_file(path: Path, send: Send) -> None:
    pytest.importorskip("aiosqlite")
    sqlalchemy = pytest.importorskip("sqlalchemy.ext.asyncio")
    engine = sqlalchemy.create_async_engine(f"sqlite+aiosqlite:///{path}")
    async with engine.begin() as db:
        await send(db)
    await engine.dispose()


WAYS: dict[str, list[Callable[[Any, Send], Any]]] = {
    "postgresql": [
        on_postgresql.by_psycopg, on_postgresql.by_a_cursor, by_psycopg2,
        on_postgresql.by_sqlalchemy, on_postgresql.by_a_session, on_postgresql.by_django,
        on_postgresql.on_psycopg, on_an_async_cursor, on_postgresql.on_asyncpg,
        on_postgresql.on_sqlalchemy, on_postgresql.on_a_session,
    ],
    "sqlite": [
        by_sqlite3, on_file.by_a_cursor, on_file.by_sqlalchemy, on_file.by_a_session,
        on_file.by_django, on_aiosqlite, on_sqlalchemy_of_a_file,
    ],
}  # fmt: skip
EACH = [
    pytest.param(kind, way, id=f"{kind}-{way.__name__}")
    for kind, ways in WAYS.items()
    for way in ways
]


@pytest.mark.parametrize(("side", "way"), EACH, indirect=["side"])
def test_the_options_and_headers_of_a_send_reach_the_engine_and_the_handler(
    side: Side, way: Callable[[Any, Send], Any]
) -> None:
    app = App("memory://")
    outbox = Outbox(app, side.url)
    seen: list[tuple[int, dict[str, str]]] = []

    @app.task(keys="key:{n}", shared="all", result_ttl=60)
    def note(n: int) -> int:
        return n

    @app.before_send
    def begin(sending: Any) -> None:
        sending.headers["traceparent"] = f"00-{sending.args[0]:032x}-00f067aa0ba902b7-01"

    @app.before_handle
    def see(handling: Any) -> None:
        headers = {name: text for name, text in handling.headers.items() if name == "traceparent"}
        seen.append((handling.args[0], headers))

    one = note.options(priority=7, dedup="one", expires=500, timeout=40, quiet=True)
    late = note.options(priority=-3, delay=300)
    jobs: list[Any] = []

    def send(db: Any) -> Any:
        if inspect.iscoroutinefunction(way):

            async def asend() -> None:
                jobs.append(await outbox.asend(db, one, 1))
                jobs.append(await outbox.asend(db, one, 9))
                jobs.append(await outbox.asend(db, late, 2))
                jobs.extend(await outbox.asend_many(db, one.options(dedup="two"), [[3], [9]]))
                jobs.extend(await outbox.asend_many(db, late, [[4]]))

            return asend()
        jobs.append(outbox.send(db, one, 1))
        jobs.append(outbox.send(db, one, 9))
        jobs.append(outbox.send(db, late, 2))
        jobs.extend(outbox.send_many(db, one.options(dedup="two"), [[3], [9]]))
        jobs.extend(outbox.send_many(db, late, [[4]]))
        return None

    where = side.url.removeprefix("sqlite:///") if side.is_file else side.url
    ended = way(where, send)
    if inspect.iscoroutine(ended):
        asyncio.run(ended)
    assert [job.known for job in jobs] == [False, True, False, False, True, False]
    with app.worker(threads=1):
        app._open("default")
        operator = Operator(Server(app._client))
        assert [jobs[at].result(20) for at in (0, 1, 3)] == [1, 1, 3]
        # The delayed ones are still there.
        wait_for(lambda: len(list(operator.delayed("default", b"all"))) == 2, "not put")
        found = list(operator.delayed("default", b"all"))
    assert seen == [(n, {"traceparent": f"00-{n:032x}-00f067aa0ba902b7-01"}) for n in (1, 3)]
    for n, message in zip((2, 4), found, strict=True):
        sent = envelope.read(message.payload)
        assert (message.keys, message.shared) == ((b"key:%d" % n,), (b"all",))
        assert message.options["PRIORITY"] == b"-3" and message.state == "delayed"
        assert sent.headers["traceparent"].startswith(f"00-{n:032x}")
        assert message.due is not None and 0 < (message.due - message.id) / 1e6 <= 300


@pytest.mark.parametrize(("side", "way"), EACH, indirect=["side"])
def test_what_only_the_engine_and_the_worker_use_is_in_the_message(
    side: Side, way: Callable[[Any, Send], Any]
) -> None:
    app = App("memory://")
    outbox = Outbox(app, side.url)

    @app.task(keys="key")
    def note(n: int) -> None:
        raise NotImplementedError

    named = note.options(priority=7, dedup="one", expires=500, timeout=40, quiet=True)

    def send(db: Any) -> Any:
        is_async = inspect.iscoroutinefunction(way)
        return outbox.asend(db, named, 1) if is_async else outbox.send(db, named, 1)

    where = side.url.removeprefix("sqlite:///") if side.is_file else side.url
    ended = way(where, send)
    if inspect.iscoroutine(ended):
        asyncio.run(ended)
    queue = app._queue("default")
    queue.pause()
    with app.worker(threads=1):
        wait_for(lambda: queue.stats().unsettled == 1, "not put")
        (message,) = Operator(Server(app._client)).lane("default", b"key")
    sent = envelope.read(message.payload)
    assert (sent.expires, sent.timeout) == (500, 40)
    assert (message.options["PRIORITY"], message.options["QUIET"]) == (b"7", b"1")
