"""The order of the rows, and the relay's reads of it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from interlock.app import App
from interlock.outbox import Outbox
from interlock.outbox.postgres import admin, schema
from interlock.outbox.postgres.position import Position
from tests.outbox.conftest import Connect

app = App("memory://")
outbox = Outbox(app)


@app.task
def note(name: str) -> None:
    """Never runs here."""


def names(connection: psycopg.Connection[Any], position: Position, limit: int = 100) -> list[str]:
    """Reads the next rows; the names by their ids."""
    ids = [row.id for row in position.read(limit)]
    query = "select payload from interlock.outbox where id = %s"
    found = []
    for id in ids:
        row = connection.execute(query, (id,)).fetchone()
        assert row is not None
        found.append(row[0][-1:].decode())
    return found


def send(db: psycopg.Connection[Any], *names: str, early: bool = False) -> None:
    for name in names:
        outbox.send(db, note, name)
    if early:
        # The number is drawn now; the transaction stays open.
        db.execute("set constraints all immediate")


@pytest.fixture
def reader(connect: Connect) -> psycopg.Connection[Any]:
    return connect(autocommit=True)


@pytest.fixture(autouse=True)
def counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.outbox.postgres.position.COUNT_PAUSE", 0)


@pytest.fixture
def position(reader: psycopg.Connection[Any]) -> Position:
    return Position(reader, "interlock", 100_000)


def test_rows_are_read_in_the_order_of_the_commits(
    connect: Connect, reader: psycopg.Connection[Any], position: Position
) -> None:
    first, second = connect(), connect()
    send(first, "a", "b")
    send(second, "c")
    second.commit()
    first.commit()
    assert names(reader, position) == ["c", "a", "b"]


def test_the_put_before_a_lock_takes_the_place_of_its_commit(
    connect: Connect, reader: psycopg.Connection[Any], position: Position
) -> None:
    reader.execute("create table account (n int)")
    reader.execute("insert into account values (0)")
    waits, holds = connect(), connect()
    send(waits, "b")
    holds.execute("update account set n = n + 1")
    send(holds, "a")
    holds.commit()
    waits.execute("update account set n = n + 1")
    waits.commit()
    assert names(reader, position) == ["a", "b"]


def test_a_put_of_a_savepoint_that_is_rolled_back_leaves_no_row_and_no_gap(
    connect: Connect, reader: psycopg.Connection[Any], position: Position
) -> None:
    db = connect()
    send(db, "a")
    with db.transaction(force_rollback=True):
        send(db, "x")
    send(db, "b")
    db.commit()
    assert names(reader, position) == ["a", "b"]
    assert position.gaps.count == 0


def test_a_gap_is_filled_when_its_transaction_commits(
    connect: Connect, reader: psycopg.Connection[Any], position: Position
) -> None:
    slow, quick = connect(), connect()
    send(slow, "a", early=True)
    send(quick, "b")
    quick.commit()
    assert names(reader, position) == ["b"]
    assert position.gaps.count == 1
    assert names(reader, position) == []
    slow.commit()
    assert names(reader, position) == ["a"]
    assert position.gaps.count == 0


def test_a_gap_of_a_transaction_beyond_the_snapshot_is_watched(
    connect: Connect, reader: psycopg.Connection[Any], position: Position
) -> None:
    slow, quick, other = connect(), connect(), connect()
    quick.execute("select pg_current_xact_id()")
    # Its transaction is later than all that have ended, so no snapshot lists it.
    send(slow, "a", early=True)
    send(quick, "b")
    quick.commit()
    assert names(reader, position) == ["b"]
    for name in "cd":
        send(other, name)
        other.commit()
        assert names(reader, position) == [name]
    assert position.gaps.count == 1
    slow.commit()
    assert names(reader, position) == ["a"]


def test_a_gap_of_a_transaction_that_rolls_back_is_dropped(
    connect: Connect, reader: psycopg.Connection[Any], position: Position
) -> None:
    slow, quick = connect(), connect()
    send(slow, "a", early=True)
    send(quick, "b")
    quick.commit()
    assert names(reader, position) == ["b"]
    slow.rollback()
    assert names(reader, position) == []
    assert position.gaps.count == 0


def test_an_unrelated_transaction_that_stays_open_holds_up_nothing(
    connect: Connect, reader: psycopg.Connection[Any], position: Position
) -> None:
    long, slow, quick = connect(), connect(), connect()
    long.execute("select pg_current_xact_id()")
    send(slow, "a", early=True)
    send(quick, "b")
    quick.commit()
    assert names(reader, position) == ["b"]
    slow.rollback()
    send(quick, "c")
    quick.commit()
    assert names(reader, position) == ["c"]
    # The other one might own the gap, as far as its snapshot says: it costs no further reads.
    assert position.gaps.count == 1
    snapshot, _ = position._ask(position._read_new, limit=1)
    assert not position.gaps.due(snapshot)
    long.rollback()
    assert names(reader, position) == []
    assert position.gaps.count == 0


def test_a_prepared_transaction_fills_its_gap_when_it_is_committed(
    connect: Connect, reader: psycopg.Connection[Any], position: Position
) -> None:
    prepared, quick = connect(), connect()
    prepared.execute("set local interlock.notify = off")
    send(prepared, "a")
    prepared.execute("prepare transaction 'one'")
    prepared.commit()
    send(quick, "b")
    quick.commit()
    assert names(reader, position) == ["b"]
    assert names(reader, position) == []
    reader.execute("commit prepared 'one'")
    assert names(reader, position) == ["a"]


def test_serializable_transactions_are_read_in_the_order_of_their_commits(
    connect: Connect, reader: psycopg.Connection[Any], position: Position
) -> None:
    reader.execute("create table account (n int)")
    first, second = connect(), connect()
    for db in (first, second):
        db.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        db.execute("select count(*) from account")
        db.execute("insert into account values (1)")
    send(first, "a")
    send(second, "b")
    second.commit()
    # Each has read what the other one changed: one must fail, and its row with it.
    with pytest.raises(psycopg.errors.SerializationFailure):
        first.commit()
    assert names(reader, position) == ["b"]
    assert names(reader, position) == []
    assert position.gaps.count == 0


def test_a_new_position_begins_at_the_oldest_row_that_is_left(
    connect: Connect, reader: psycopg.Connection[Any], position: Position
) -> None:
    db = connect(autocommit=True)
    send(db, *"abcd")
    assert names(reader, position) == list("abcd")
    reader.execute("delete from interlock.outbox where id in (1, 3)")
    assert names(reader, Position(reader, "interlock", 100)) == ["b", "d"]


def test_a_full_window_is_read_on_when_rows_are_deleted(
    connect: Connect, reader: psycopg.Connection[Any]
) -> None:
    position = Position(reader, "interlock", 3)
    send(connect(autocommit=True), *"abcde")
    assert names(reader, position) == ["a", "b", "c"]
    assert names(reader, position) == [] and position.is_full
    reader.execute("delete from interlock.outbox where id = 2")
    assert names(reader, position) == ["d"]
    assert names(reader, position) == [] and position.is_full


def test_a_full_window_is_not_counted_again_before_many_times_the_duration_of_the_count(
    connect: Connect, reader: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.outbox.postgres.position.COUNT_PAUSE", 1e9)
    position = Position(reader, "interlock", 2)
    send(connect(autocommit=True), *"abc")
    assert names(reader, position) == ["a", "b"]
    assert names(reader, position) == [] and position.is_full
    reader.execute("delete from interlock.outbox where id = 1")
    assert names(reader, position) == [] and position.is_full
    position._next_count = 0.0
    assert names(reader, position) == ["c"]


def test_dead_rows_are_not_read_and_take_no_place_in_the_window(
    connect: Connect, reader: psycopg.Connection[Any]
) -> None:
    position = Position(reader, "interlock", 2)
    send(connect(autocommit=True), *"abc")
    reader.execute("update interlock.outbox set state = 'dead' where id < 3")
    assert names(reader, position) == ["c"]


def test_a_commit_with_more_rows_than_a_read_is_read_to_its_end_before_later_ones(
    connect: Connect, reader: psycopg.Connection[Any], position: Position
) -> None:
    db = connect()
    send(db, *"abcde")
    db.commit()
    send(db, "f")
    db.commit()
    read = [names(reader, position, limit=2) for _ in range(4)]
    assert "".join("".join(some) for some in read) == "abcdef"
    assert position.gaps.count == 0


def test_a_commit_that_is_larger_than_the_window_is_read_on_as_its_rows_are_deleted(
    connect: Connect, reader: psycopg.Connection[Any]
) -> None:
    position = Position(reader, "interlock", 2)
    db = connect()
    send(db, *"abcde")
    db.commit()
    found = ""
    for _ in range(3):
        found += "".join(names(reader, position))
        assert names(reader, position) == [] and (position.is_full or len(found) == 5)
        reader.execute("delete from interlock.outbox where id <= %s", (len(found),))
    assert found == "abcde"


def test_rows_after_a_savepoint_that_took_back_the_first_row_are_read(
    connect: Connect, reader: psycopg.Connection[Any], position: Position
) -> None:
    db = connect()
    with db.transaction(force_rollback=True):
        send(db, "x")
    send(db, "a")
    with db.transaction():
        send(db, "b")
    db.commit()
    assert names(reader, position) == ["a", "b"]


def test_a_row_after_one_that_is_known_is_read(
    connect: Connect, reader: psycopg.Connection[Any], position: Position
) -> None:
    db = connect()
    named = note.options(dedup="one")
    outbox.send(db, named, "a")
    db.commit()
    # The transaction begins with an insert that inserts nothing.
    assert outbox.send(db, named, "x").known
    send(db, "b")
    db.commit()
    assert names(reader, position) == ["a", "b"]


def test_rows_after_set_constraints_all_immediate_are_read(
    connect: Connect, reader: psycopg.Connection[Any], position: Position
) -> None:
    db = connect()
    send(db, "a", early=True)
    send(db, "b", "c")
    db.execute("set constraints all deferred")
    send(db, "d")
    with db.transaction(force_rollback=True):
        # Draws the number of d, and takes it back.
        db.execute("set constraints all immediate")
        send(db, "x")
    send(db, "e")
    db.commit()
    assert names(reader, position) == list("abcde")


def test_a_read_ends_at_its_last_row_and_does_not_sort_those_of_later_commits(
    connect: Connect, reader: psycopg.Connection[Any], position: Position
) -> None:
    sender = connect()
    for _ in range(50):
        send(sender, *"abcdefghij")
        sender.commit()
    # Tables of this size are what makes the planner sort.
    reader.execute("analyze")
    values = {"mark": 0, "limit": 50, "lows": [0], "highs": [0]}
    for statement in (position._read_new, position._read_all):
        plan = reader.execute(f"explain (analyze, format json) {statement}", values).fetchone()
        assert plan is not None
        assert 5 <= commits_read(plan[0][0]["Plan"]) <= 7


def test_the_status_reads_no_more_rows_than_it_counts(
    connect: Connect, reader: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.outbox.postgres.admin.MOST_COUNTED", 20)
    sender = connect()
    for _ in range(100):
        send(sender, *"abcdefghij")
        sender.commit()
    reader.execute("analyze")
    with reader.transaction():
        found = admin.status(reader, "interlock")
        query = (
            "select sum(seq_tup_read), sum(idx_tup_fetch) from pg_stat_xact_user_tables "
            "where relname in ('outbox', 'outbox_commits')"
        )
        ((whole, by_index),) = reader.execute(query).fetchall()
    assert found.waiting == 100 and found.oldest is not None
    assert whole == 0 and by_index < 100


def commits_read(plan: dict[str, Any]) -> int:
    """Counts the commits whose rows a plan looks for."""
    own: int = plan["Actual Loops"] if plan.get("Relation Name") == "outbox" else 0
    return own + sum(map(commits_read, plan.get("Plans", ())))


def test_commits_whose_rows_are_gone_are_deleted_and_no_others(
    connect: Connect, reader: psycopg.Connection[Any], position: Position
) -> None:
    db = connect(autocommit=True)
    send(db, *"abcd")
    reader.execute("delete from interlock.outbox where id in (1, 3)")
    assert names(reader, position) == ["b", "d"]
    position._next_sweep = 0.0
    assert names(reader, position) == []
    query = "select number from interlock.outbox_commits order by number"
    assert reader.execute(query).fetchall() == [(2,), (4,)]


def test_calls_of_one_statement_keep_the_order_of_the_list(
    connect: Connect, reader: psycopg.Connection[Any], position: Position
) -> None:
    db = connect()
    sent = outbox.send_many(db, note, ([name] for name in "cab"))
    assert [row.known for row in sent] == [False] * 3
    assert outbox.send_many(db, note, []) == []
    outbox.send_many(db, note, [{"name": "d"}])
    db.commit()
    assert names(reader, position) == list("cabd")


def test_an_outbox_of_version_1_keeps_its_rows_and_their_order(
    connect: Connect, reader: psycopg.Connection[Any]
) -> None:
    reader.execute("drop schema interlock cascade")
    every = schema.statements("interlock")
    for text in every[: 1 + every.index('update "interlock".outbox_meta set version = 1;')]:
        reader.execute(text.encode())
    slow, quick = connect(), connect()
    send(slow, "b", "c")
    send(quick, "a")
    quick.commit()
    slow.commit()
    outbox.send(quick, note.options(delay=60, dedup="one"), "d")
    send(quick, "x", "e")
    quick.commit()
    reader.execute("update interlock.outbox set state = 'dead', attempts = 3 where number = 5")
    assert schema.migrate(reader, "interlock") == (1, schema.VERSION)
    send(quick, "f")
    assert outbox.send(quick, note.options(dedup="one"), "y").known
    quick.commit()
    position = Position(reader, "interlock", 100)
    rows = position.read(100)
    assert names(reader, Position(reader, "interlock", 100)) == list("abcdef")
    assert [row.number for row in rows] == [1, 2, 3, 4, 6, 7]
    assert [0 < (row.delay or 0) <= 60 for row in rows] == [False] * 3 + [True] + [False] * 2


def test_the_oldest_commit_that_is_left_is_one_that_was_read_and_has_a_row_that_is_not_dead(
    connect: Connect, reader: psycopg.Connection[Any], position: Position
) -> None:
    slow, quick = connect(), connect()
    send(slow, "a", early=True)
    send(quick, "b")
    quick.commit()
    assert position.find_oldest() is None
    (first,) = position.read(100)
    assert position.find_oldest() == first.number
    # A row that fills a gap is older.
    slow.commit()
    (gap,) = position.read(100)
    assert position.find_oldest() == gap.number < first.number
    reader.execute("update interlock.outbox set state = 'dead' where id = %s", (gap.id,))
    assert position.find_oldest() == first.number
    reader.execute("delete from interlock.outbox where id = %s", (first.id,))
    assert position.find_oldest() is None


def test_commits_that_are_handled_while_others_are_read_are_deleted(
    connect: Connect, reader: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.outbox.postgres.position.SWEEP", 4)
    position = Position(reader, "interlock", 1000)
    db = connect(autocommit=True)
    for _ in range(60):
        send(db, "a", "b")
        position.read(2)
        # The last six are with their handlers.
        reader.execute("delete from interlock.outbox where id < (select max(id) - 5 from "
                       "interlock.outbox)")  # fmt: skip
    found = reader.execute("select count(*) from interlock.outbox_commits").fetchone()
    assert found is not None and found[0] <= 24


def test_a_sweep_begins_where_the_last_one_kept_a_commit_or_at_a_gap_that_was_filled(
    connect: Connect, reader: psycopg.Connection[Any], position: Position
) -> None:
    slow, quick = connect(), connect(autocommit=True)
    send(slow, "a", early=True)
    send(quick, *"bcd")

    def read_and_sweep() -> list[str]:
        position._next_sweep = 0.0
        return names(reader, position)

    assert names(reader, position) == list("bcd")
    reader.execute("delete from interlock.outbox where id in (2, 3)")
    assert read_and_sweep() == []
    numbers = "select array_agg(number order by number) from interlock.outbox_commits"
    assert reader.execute(numbers).fetchone() == ([4],)
    assert position._first == 3
    slow.commit()
    assert read_and_sweep() == ["a"]
    reader.execute("delete from interlock.outbox where id in (1, 4)")
    assert read_and_sweep() == []
    assert reader.execute(numbers).fetchone() == (None,)
    assert position._first == 4
