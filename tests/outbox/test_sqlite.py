"""The outbox in an SQLite file: sends, handlers, order, dead letters, and a file that is locked."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock import PayloadError, Reject, Run, current_lease
from interlock.app import App
from interlock.cli import main
from interlock.outbox import Outbox
from interlock.outbox.sqlite import database
from interlock.outbox.sqlite.lock import FileLock, holder
from interlock.outbox.versions import WrongVersion
from interlock.retry import Retry
from interlock.runtime.limits import MAX_PAYLOAD
from tests.worker.workers import wait_for


class Place:
    """An app with an outbox in a file, and what its handlers did."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.path, self.url = path, f"sqlite:///{path}"
        self.app = App("memory://", retry=Retry(attempts=3, first=0.01))
        self.outbox = Outbox(self.app, self.url, **options)
        self.outbox.migrate()
        self.handled: list[Any] = []
        self.seen = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.seen.execute("create table if not exists effect (n int)")

        @self.app.task(keys="key", transaction=self.outbox)
        def effect(db: Any, n: int) -> None:
            db.execute("insert into effect values (?)", (n,))
            self.handled.append((n, current_lease().attempt))
            if n < 0:
                raise RuntimeError("below zero")

        @self.app.task(keys="key")
        def plain(n: int) -> None:
            self.handled.append((n, current_lease().attempt))
            if n < 0:
                raise Reject("below zero")

        @self.app.task(keys="key", transaction=self.outbox)
        async def later(db: Any, n: int) -> None:
            await db.execute("insert into effect values (?)", (n,))
            self.handled.append((n, current_lease().attempt))

        self.effect, self.plain, self.later = effect, plain, later

    def rows(self, columns: str = "id") -> list[Any]:
        return self.seen.execute(f"select {columns} from interlock_outbox order by id").fetchall()

    def effects(self) -> list[int]:
        return [n for (n,) in self.seen.execute("select n from effect order by rowid")]

    def wait_for_rows(self, count: int, where: str = "true") -> None:
        query = f"select count(*) from interlock_outbox where {where}"
        wait_for(lambda: self.seen.execute(query).fetchone() == (count,), f"not {count} rows")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "bank.db")
    yield made
    made.seen.close()


@pytest.fixture
def running(place: Place) -> Iterator[Place]:
    with place.app.worker(threads=4):
        yield place


@pytest.fixture
def db(place: Place) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(place.path)) as opened:
        yield opened


def test_a_send_is_handled_if_its_transaction_commits_and_not_if_it_rolls_back(
    running: Place, db: sqlite3.Connection
) -> None:
    running.outbox.send(db, running.effect, 1)
    db.rollback()
    assert not running.outbox.send(db, running.effect, 2).known
    db.commit()
    running.wait_for_rows(0)
    assert running.effects() == [2]
    assert running.handled == [(2, 1)]


def test_a_handler_without_a_transaction_loses_its_row_once_it_has_returned(
    running: Place,
) -> None:
    running.outbox.send(running.seen, running.plain, 5)
    running.wait_for_rows(0)
    assert running.handled == [(5, 1)]


def test_a_coroutine_function_gets_a_connection_of_aiosqlite(running: Place) -> None:
    pytest.importorskip("aiosqlite")
    for n in range(3):
        running.outbox.send(running.seen, running.later, n)
    running.wait_for_rows(0)
    assert running.effects() == [0, 1, 2]


def test_a_failing_handler_changes_nothing_and_leaves_its_attempts_and_then_a_dead_row(
    running: Place,
) -> None:
    running.outbox.send(running.seen, running.effect, -1)
    running.wait_for_rows(1, "state = 'dead'")
    ((attempts, error),) = running.rows("attempts, error")
    assert attempts == 3 and error.startswith("RuntimeError: below zero\n")
    assert running.effects() == []
    assert [attempt for _, attempt in running.handled] == [1, 2, 3]


def test_a_call_whose_row_is_gone_is_not_handled(place: Place) -> None:
    place.outbox.send(place.seen, place.effect, 1)
    queue = place.app._queue("default")
    with contextlib.ExitStack() as transaction:
        db = transaction.enter_context(place.outbox.transactions.begin())
        with place.app.worker(threads=2):
            # Another handler has the row, and its transaction is about to commit.
            wait_for(lambda: queue.stats().leased == 1, "not leased")
            db.execute("delete from interlock_outbox")
            transaction.close()
            wait_for(lambda: queue.stats().acks == 1, "not settled")
    assert place.handled == [] and place.effects() == []


def test_a_handler_that_commits_by_itself_fails(place: Place) -> None:
    @place.app.task(transaction=place.outbox, retry=Retry(attempts=1))
    def ends(db: Any, how: str) -> None:
        db.execute("insert into effect values (1)")
        if how == "with":
            with db:
                pass
        elif how == "executescript":
            db.executescript("select 1")
        elif how in ("commit", "rollback"):
            getattr(db, how)()
        elif how == "savepoint":
            for text in ("savepoint s", "insert into effect values (2)", "rollback to s"):
                db.execute(text)
        else:
            db.cursor().execute(how)

    hows = ("commit", "rollback", "with", "executescript", "COMMIT", " /* 1 */ end", "rollback;")
    for how in hows:
        place.outbox.send(place.seen, ends, how)
    # Twice: the worker has committed on the connection before.
    place.outbox.send_many(place.seen, place.effect, [[5], [6], [7]])
    for how in (*hows, "savepoint"):
        place.outbox.send(place.seen, ends, how)
    with place.app.worker(threads=1):
        place.wait_for_rows(14, "state = 'dead' and error like '%when the handler returns%'")
        place.wait_for_rows(14)
    assert place.effects() == [5, 6, 7, 1]


def test_a_coroutine_function_that_commits_by_itself_fails(place: Place) -> None:
    pytest.importorskip("aiosqlite")

    @place.app.task(transaction=place.outbox, retry=Retry(attempts=1))
    async def ends(db: Any, how: str) -> None:
        await db.execute("insert into effect values (1)")
        await (db.commit() if how == "commit()" else db.execute(how))

    for how in ("commit()", "commit", "rollback") * 2:
        place.outbox.send(place.seen, ends, how)
    with place.app.worker(threads=2):
        place.wait_for_rows(6, "state = 'dead' and error like '%when the handler returns%'")
    assert place.effects() == []


def test_a_handler_that_leaves_a_cursor_open_fails_and_releases_the_file(place: Place) -> None:
    cursors = []

    @place.app.task(transaction=place.outbox, retry=Retry(attempts=1))
    def leaves(db: Any) -> None:
        cursors.append(db.execute("insert into effect values (1), (2) returning n"))
        cursors[-1].fetchone()

    with place.app.worker(threads=2):
        place.outbox.send(place.seen, leaves)
        place.wait_for_rows(1, "state = 'dead'")
        place.outbox.send(place.seen, place.effect, 3)
        wait_for(lambda: place.effects() == [3], "not handled")


def test_a_call_that_no_engine_takes_is_refused_by_the_send(place: Place) -> None:
    @place.app.task
    def say(text: str) -> None:
        place.handled.append(len(text))

    sent = 0
    # Down to the longest that is allowed, which the relay must be able to put.
    for length in range(MAX_PAYLOAD, 0, -20):
        try:
            place.outbox.send(place.seen, say, "x" * length)
        except PayloadError:
            continue
        sent = length
        break
    with pytest.raises(PayloadError, match="allowed in an outbox: up to"):
        place.outbox.send(place.seen, say, "x" * (sent + 20))
    with place.app.worker(threads=2):
        wait_for(lambda: place.handled == [sent], "not handled")


@pytest.mark.parametrize("given", [{"coalesce": "{amounts}"}, {"run": 3}])
def test_a_task_of_several_rows_is_refused_with_what_to_do(place: Place, given: Any) -> None:
    def book(amounts: Run[int]) -> None: ...

    task = place.app.task(keys="{amounts}", **given)(book)
    with pytest.raises(ValueError, match=f"'book' has {min(given)}=, .* declare a task without it"):
        place.outbox.send(place.seen, task, 1)
    assert place.rows() == []


def test_order_is_that_of_the_commits_whatever_the_transactions_read_before(place: Place) -> None:
    # Both transactions are open; the one that writes last cannot have drawn its id before.
    first, second = (sqlite3.connect(place.path, timeout=0) for _ in range(2))
    first.execute("begin")
    first.execute("select * from effect").fetchall()
    second.execute("begin immediate")
    place.outbox.send(second, place.plain, 1)
    with pytest.raises(sqlite3.OperationalError, match="locked") as caught:
        place.outbox.send(first, place.plain, 2)
    assert "begin immediate" in caught.value.__notes__[0]
    second.commit()
    # It has read a state that is past: it must begin again.
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        place.outbox.send(first, place.plain, 2)
    first.rollback()
    place.outbox.send(first, place.plain, 2)
    first.commit()
    with place.app.worker(threads=4):
        place.wait_for_rows(0)
    assert [n for n, _ in place.handled] == [1, 2]
    first.close()
    second.close()


def test_ids_of_many_writers_are_in_the_order_in_which_they_become_visible(place: Place) -> None:
    relay = database.RelayConnection(place.path, "interlock")
    position = relay.position(100_000)

    def write(thread: int) -> None:
        with contextlib.closing(sqlite3.connect(place.path, timeout=60)) as own:
            for n in range(40):
                place.outbox.send(own, place.plain, thread)
                place.outbox.send(own, place.plain, thread)
                (own.rollback if n % 5 == 4 else own.commit)()

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for each in threads:
        each.start()
    read: list[int] = []
    while any(each.is_alive() for each in threads):
        read += [row.id for row in position.read(7)]
    while rows := position.read(7):
        read += [row.id for row in rows]
    relay.close()
    assert read == list(range(1, 4 * 32 * 2 + 1))
    assert [id for (id,) in place.rows()] == read


def test_requeue_gives_a_dead_row_a_place_at_the_end_that_no_later_row_takes(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    for n in (-1, 1, 2):
        place.outbox.send(place.seen, place.effect, n)
    place.seen.execute("update interlock_outbox set state = 'dead', error = 'no' where id = 1")
    database_of = ("--database", place.url)
    assert main(["outbox", "dead", "--json", *database_of]) == 0
    dead = json.loads(capsys.readouterr().out)
    assert (dead["id"], dead["task"], dead["keys"], dead["error"]) == (1, "effect", ["key"], "no")
    assert main(["postgres", "requeue", "1", *database_of]) == 0
    place.outbox.send(place.seen, place.effect, 3)
    relay = database.RelayConnection(place.path, "interlock")
    assert [(row.id, row.number) for row in relay.position(9).read(9)] == [
        (2, 2), (3, 3), (1, 4), (5, 5),
    ]  # fmt: skip
    relay.close()
    assert main(["outbox", "requeue", "99", *database_of]) == 1


def test_a_dedup_string_is_known_until_its_call_was_handled(place: Place) -> None:
    named = place.effect.options(dedup="one")
    first = place.outbox.send(place.seen, named, 1)
    again = place.outbox.send(place.seen, named, 2)
    assert (again.id, again.known) == (first.id, True)
    with place.app.worker(threads=2):
        place.wait_for_rows(0)
        assert not place.outbox.send(place.seen, named, 3).known
        place.wait_for_rows(0)
    assert place.effects() == [1, 3]


def test_many_are_sent_in_their_order_or_none_of_them(place: Place, db: sqlite3.Connection) -> None:
    with pytest.raises(TypeError):
        place.outbox.send_many(db, place.effect, [(1,), (2, 3)])
    sent = place.outbox.send_many(db, place.effect, [(1,), {"n": 2}])
    assert [each.id for each in sent] == [1, 2]
    db.rollback()
    place.outbox.send_many(db, place.plain, [(n,) for n in range(20)])
    db.commit()
    with place.app.worker(threads=4):
        place.wait_for_rows(0)
    assert [n for n, _ in place.handled] == list(range(20))


def test_a_delay_and_an_expiry_begin_with_the_send(place: Place) -> None:
    place.outbox.send(place.seen, place.effect.options(delay=3600), 1)
    place.outbox.send(place.seen, place.effect.options(expires=5), 2)
    place.seen.execute("update interlock_outbox set created = created - 1000")
    relay = database.RelayConnection(place.path, "interlock")
    delay = relay.position(9).read(1)[0].delay
    relay.close()
    assert delay is not None and 2500 < delay <= 2600
    with place.app.worker(threads=2):
        place.wait_for_rows(1)
        wait_for(lambda: place.app._queue("default").stats().delayed == 1, "not delayed")
    assert place.handled == []


def test_attempts_go_on_where_they_were_when_the_engine_forgets_everything(place: Place) -> None:
    place.outbox.send(place.seen, place.effect, -1)
    place.seen.execute("update interlock_outbox set attempts = 2")
    with place.app.worker(threads=2):
        place.wait_for_rows(1, "state = 'dead'")
    assert place.handled == [(-1, 3)]


def test_the_oldest_row_that_is_left_is_one_that_was_read_and_is_not_dead(place: Place) -> None:
    for n in range(3):
        place.outbox.send(place.seen, place.plain, n)
    with contextlib.closing(place.outbox.database.relay_connection()) as relay:
        position = relay.position(100)
        assert position.find_oldest() is None
        first, second, _ = (row.number for row in position.read(10))
        assert position.find_oldest() == first
        place.seen.execute("update interlock_outbox set state = 'dead' where id = ?", (first,))
        assert position.find_oldest() == second
        place.seen.execute("delete from interlock_outbox where state is null")
        assert position.find_oldest() is None


def test_a_full_window_is_read_on_when_rows_are_deleted_without_dead_ones(
    place: Place,
) -> None:
    relay = database.RelayConnection(place.path, "interlock")
    position = relay.position(2)
    for n in range(3):
        place.outbox.send(place.seen, place.plain, n)
    assert [row.id for row in position.read(9)] == [1, 2]
    assert position.read(9) == [] and position.is_full
    place.seen.execute("delete from interlock_outbox where id = 1")
    assert [row.id for row in position.read(9)] == [3]
    place.outbox.send(place.seen, place.plain, 4)
    place.outbox.send(place.seen, place.plain, 5)
    place.seen.execute("update interlock_outbox set state = 'dead' where id in (2, 4)")
    assert [row.id for row in position.read(9)] == [5]
    relay.close()


# -- Connections of several libraries -------------------------------------------------------------


def by_a_cursor(path: Path, send: Callable[[Any], object]) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.row_factory = lambda cursor, row: {"row": row}
        send(db.cursor())
        db.commit()


def by_sqlalchemy(path: Path, send: Callable[[Any], object]) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with engine.begin() as db:
        send(db)
    engine.dispose()


def by_a_session(path: Path, send: Callable[[Any], object]) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    from sqlalchemy.orm import Session

    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with Session(engine) as session, session.begin():
        send(session)
    engine.dispose()


def by_django(path: Path, send: Callable[[Any], object]) -> None:
    django = pytest.importorskip("django")
    from django.conf import settings
    from django.db import ConnectionHandler

    if not settings.configured:
        settings.configure()
        django.setup()
    options = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(path)}}
    connection = ConnectionHandler(options)["default"]
    send(connection)
    connection.close()


@pytest.mark.parametrize("by", [by_a_cursor, by_sqlalchemy, by_a_session, by_django])
def test_a_send_takes_a_connection_of(
    running: Place, by: Callable[[Path, Callable[[Any], object]], None]
) -> None:
    by(running.path, lambda db: running.outbox.send(db, running.effect, 7))
    running.wait_for_rows(0)
    assert running.effects() == [7]


@pytest.mark.parametrize("library", ["aiosqlite", "sqlalchemy"])
def test_a_send_takes_an_asynchronous_connection_of(running: Place, library: str) -> None:
    aiosqlite = pytest.importorskip("aiosqlite")

    async def send() -> None:
        if library == "aiosqlite":
            async with aiosqlite.connect(running.path) as db:
                await running.outbox.asend(db, running.effect, 1)
                await running.outbox.asend(await db.cursor(), running.effect, 2)
                with pytest.raises(TypeError, match="asynchronous"):
                    running.outbox.send(db, running.effect, 3)
                await db.commit()
            return
        from sqlalchemy.ext.asyncio import create_async_engine

        engine = create_async_engine(f"sqlite+aiosqlite:///{running.path}")
        async with engine.begin() as db:
            await running.outbox.asend(db, running.effect, 1)
            await running.outbox.asend(db, running.effect, 2)
        await engine.dispose()

    pytest.importorskip("sqlalchemy")
    asyncio.run(send())
    running.wait_for_rows(0)
    assert running.effects() == [1, 2]


def test_transactions_of_the_program_are_used_by_handlers(tmp_path: Path) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'bank.db'}")
    place = Place(tmp_path / "bank.db", begin=engine.begin)

    @place.app.task(transaction=place.outbox)
    def count(db: Any, n: int) -> None:
        db.execute(sqlalchemy.text("insert into effect values (:n)"), {"n": n})

    for n in range(4):
        place.outbox.send(place.seen, count, n)
    with place.app.worker(threads=4):
        place.wait_for_rows(0)
    engine.dispose()
    assert sorted(place.effects()) == [0, 1, 2, 3]


# -- Locks and files ------------------------------------------------------------------------------


def test_a_handler_is_not_charged_for_a_file_that_another_program_keeps_locked(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("interlock.outbox.handling.PAUSE", 0.01)
    monkeypatch.setitem(database._OPTIONS, "timeout", 0.01)
    place.outbox.send(place.seen, place.effect, 1)
    place.seen.execute("begin immediate")
    with place.app.worker(threads=2):
        wait_for(lambda: "has been writing" in caplog.text, "no warning")
        place.seen.execute("commit")
        place.wait_for_rows(0)
    assert place.handled == [(1, 1)]


def test_a_file_that_takes_the_place_of_another_is_used_by_the_running_worker(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    with place.app.worker(threads=2):
        place.outbox.send(place.seen, place.effect, 1)
        place.wait_for_rows(0)
        # A copy, as of a backup, which gets a row.
        other = place.path.with_name("other.db")
        with contextlib.closing(sqlite3.connect(other, isolation_level=None)) as copy:
            place.seen.backup(copy)
            place.outbox.send(copy, place.effect, 2)
            copy.execute("pragma wal_checkpoint(truncate)")
        for end in ("-wal", "-shm"):
            place.path.with_name(place.path.name + end).unlink()
        other.rename(place.path)
        place.seen.close()
        place.seen = sqlite3.connect(place.path, isolation_level=None, check_same_thread=False)
        place.wait_for_rows(0)
    assert place.effects() == [1, 2]
    assert "was replaced or removed" in caplog.text


def test_a_full_file_loses_nothing(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    @place.app.task(keys="key", transaction=place.outbox, retry=Retry(attempts=None, first=0.01))
    def fill(db: Any, pages: int) -> None:
        if not room.is_set():
            # As a quota of the disk: it is a setting of each connection.
            db.execute("pragma max_page_count = 1")
        else:
            db.execute("pragma max_page_count = 100000")
        db.execute("insert into effect values (zeroblob(?))", (4096 * pages,))

    room = threading.Event()
    with place.app.worker(threads=2):
        place.outbox.send(place.seen, fill, 50)
        place.outbox.send(place.seen, place.plain, 2)
        wait_for(lambda: "database or disk is full" in caplog.text, "no error")
        assert place.rows("state") == [(None,), (None,)]
        room.set()
        place.wait_for_rows(0)
    assert len(place.effects()) == 1 and place.handled == [(2, 1)]


def test_one_relay_at_a_time_has_the_lock_in_a_process(tmp_path: Path) -> None:
    path = tmp_path / "bank.db"
    first, second = FileLock(path), FileLock(path)
    assert first.acquire() and not second.acquire()
    assert " pid " in (holder(path) or "")
    second.release()
    assert not second.acquire()
    first.release()
    assert second.acquire()
    second.release()
    assert holder(path) is None


def test_a_relay_without_tables_says_how_they_are_made(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError, match="interlock outbox migrate"):
        database.RelayConnection(tmp_path / "bank.db", "interlock")
    sqlite3.connect(tmp_path / "bank.db").execute("create table x (n)").connection.close()
    relay = database.RelayConnection(tmp_path / "bank.db", "interlock")
    with pytest.raises(WrongVersion, match="interlock outbox migrate"):
        relay.prefix()
    relay.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:bank.db"])
def test_a_url_without_a_path_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="allowed: sqlite:///relative/path"):
        Outbox(App("memory://"), url)


def test_the_command_creates_shows_and_checks_the_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bank.db"
    of = ("--database", f"sqlite:///{path}")
    assert main(["outbox", "status", *of]) == 1
    assert "does not exist" in capsys.readouterr().err
    assert main(["outbox", "migrate", "--sql", "--database", ""]) == 0
    assert main(["outbox", "migrate", *of]) == 0
    assert main(["outbox", "migrate", *of]) == 0
    assert main(["outbox", "status", *of]) == 0
    assert main(["outbox", "check", *of]) == 0
    assert "no fault found" in capsys.readouterr().out
    with contextlib.closing(sqlite3.connect(path)) as opened:
        (prefix,) = opened.execute("select prefix from interlock_outbox_meta").fetchone()
        opened.execute("pragma journal_mode = delete")
    assert main(["outbox", "check", "--restored", *of]) == 1
    assert "journal mode" in capsys.readouterr().out
    with contextlib.closing(sqlite3.connect(path)) as opened:
        assert opened.execute("select prefix from interlock_outbox_meta").fetchone() != (prefix,)


def test_the_printed_sql_makes_the_same_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["outbox", "migrate", "--database", f"sqlite:///{tmp_path / 'a.db'}"]) == 0
    capsys.readouterr()
    empty = tmp_path / "b.db"
    empty.touch()
    assert main(["outbox", "migrate", "--sql", "--database", f"sqlite:///{empty}"]) == 0
    found = []
    with contextlib.closing(sqlite3.connect(empty)) as opened:
        opened.executescript(capsys.readouterr().out)
        found.append(opened.execute("select sql from sqlite_master").fetchall())
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as opened:
        found.append(opened.execute("select sql from sqlite_master").fetchall())
    assert found[0] == found[1]
