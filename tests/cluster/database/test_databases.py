"""The checks of a database behind a table, on each kind and each way of partitions."""

from __future__ import annotations

import contextlib
import random
import time
from typing import Annotated

import pytest

from interlock import U8, U32, U64, Flags, Row, SchemaMismatch, Size, Sum
from interlock.cluster.database import Database, DatabaseUnavailable, LogMark, SavedRow
from interlock.cluster.rules import state_rules
from tests.cluster.database.conftest import Place
from tests.cluster.database.rows import (
    NAIVE,
    RULES,
    Presence,
    deleted,
    mark,
    pairs,
    rows,
    saved,
    state_of,
)
from tests.cluster.naive.state import TableRules


def loaded(database: Database) -> tuple[LogMark, dict[bytes, bytes]]:
    found = [pair for batch in database.rows() for pair in pairs(batch)]
    assert len(dict(found)) == len(found)
    return database.mark(), dict(found)


def test_saved_rows_are_loaded(place: Place) -> None:
    database = place.open()
    database.migrate()
    assert database.migrations() == []
    assert loaded(database) == (LogMark(), {})
    written = rows(12_000)
    saved(database, written[:9_000], mark(7))
    saved(database, written[9_000:], mark(9))
    found, states = loaded(place.open())
    assert found == mark(9)
    assert states == {row.key: row.state for row in written}


def test_rows_can_be_queried_by_sql(place: Place) -> None:
    database = place.open()
    database.migrate()
    token = "\0'\"\\\t\n é \U0001f600"
    saved(
        database,
        [
            SavedRow(b"a", state_of(5, token=token, expires_at=12345), 1),
            SavedRow(b"b", deleted(), 2),
            SavedRow(b"\0\xff", state_of(2), 3),
        ],
        mark(3, epoch=4),
    )
    columns = "app_id, background, unread, devices, big, low, ratio, token, raw"
    own = "interlock_alive, interlock_expires, interlock_epoch, interlock_seq"
    found = place.ask(f"SELECT interlock_key, {columns}, {own} FROM {{t}} ORDER BY interlock_key")
    key, *values, alive, expires, by, seq = found[1]
    assert (key, bool(alive), expires, by, seq) == (b"a", True, 12345, 4, 1)
    app_id, background, unread, devices, big, low, ratio, text, raw = values
    assert (app_id, bool(background), unread, devices, low, ratio) == (5, True, 5, 5, -5, 0.625)
    # Values that the database's own type cannot hold are stored as text, or as a symbol.
    assert int(big) == 2**64 - 6
    assert text.replace("\u2400", "\0") == token
    assert raw == b"\0" + token.encode()
    assert found[2][:1] == (b"b",) and set(found[2][1:10]) == {None} and not found[2][10]
    assert found[0][0] == b"\0\xff"


def test_rows_are_overwritten_and_deleted(place: Place) -> None:
    database = place.open()
    database.migrate()
    saved(database, rows(100), mark(1))
    new, dead = state_of(77, token="new"), deleted()
    saved(
        database,
        [SavedRow(b"key:1", new, 2), SavedRow(b"key:2", dead, 2), SavedRow(b"key:3", None, 2)],
        mark(2),
    )
    _, states = loaded(database)
    assert (states[b"key:1"], states[b"key:2"], len(states)) == (new, dead, 99)
    assert b"key:3" not in states


def test_a_writer_with_an_outdated_mark_overwrites_nothing(place: Place) -> None:
    old, new = place.open(), place.open()
    old.migrate()
    assert old.save([SavedRow(b"a", (first := state_of(1)), 10)], mark(10), LogMark())
    # Another has written meanwhile.
    assert new.save([SavedRow(b"b", first, 11)], mark(11), mark(10))
    assert not old.save([SavedRow(b"a", state_of(2), 11)], mark(12), mark(10))
    assert loaded(old) == (mark(11), {b"a": first, b"b": first})
    # Another history counts on from less: an engine had lost its tail.
    second = state_of(3)
    assert new.save([SavedRow(b"a", second, 9)], mark(9, epoch=1), mark(11))
    assert loaded(new) == (mark(9, epoch=1), {b"a": second, b"b": first})


def test_an_older_state_of_the_same_epoch_is_not_saved(place: Place) -> None:
    database = place.open()
    database.migrate()
    saved(database, [SavedRow(b"a", (new := state_of(1)), 10)], mark(10))
    saved(database, [SavedRow(b"a", state_of(2), 9)], mark(10))
    assert loaded(database)[1] == {b"a": new}


def test_a_load_reads_a_consistent_snapshot(place: Place) -> None:
    database, other = place.open(), place.open()
    database.migrate()
    saved(database, rows(10_500), mark(1))
    batches = database.rows()
    first = next(batches)
    saved(other, rows(10_500, start=500, seq=2), mark(2))
    found = [*pairs(first), *(pair for batch in batches for pair in pairs(batch))]
    assert len(found) == 10_500
    assert loaded(database)[0] == mark(2)
    assert len(loaded(database)[1]) == 11_000


def test_forgotten_rows_are_deleted(place: Place) -> None:
    database = place.open()
    database.migrate()
    now_ms = int(time.time() * 1000)
    saved(
        database,
        [SavedRow(b"a", state_of(1), 1), SavedRow(b"b", deleted(), 1),
         SavedRow(b"c", state_of(3, expires_at=now_ms + 1000), 1)],
        mark(1),
    )  # fmt: skip
    assert database.forget(now_ms + RULES.age_ms // 2, 10) == 0
    later = now_ms + 2 * RULES.age_ms
    assert [database.forget(later, 1) for _ in range(3)] == [1, 1, 0]
    assert set(loaded(database)[1]) == {b"a"}


def test_random_writes_leave_the_last_value_of_each_key(place: Place) -> None:
    chance = random.Random(20)
    database = place.open()
    database.migrate()
    model: dict[bytes, bytes] = {}
    for seq in range(1, 60):
        some = {b"%d" % chance.randrange(200): seq for _ in range(chance.randrange(40))}
        batch = []
        for key in some:
            kind = chance.random()
            state = None if kind < 0.1 else deleted() if kind < 0.3 else state_of(seq)
            batch.append(SavedRow(key, state, seq))
            model.pop(key, None)
            if state is not None:
                model[key] = state
        saved(database, batch, mark(seq))
        if chance.random() < 0.2:
            assert loaded(database) == (mark(seq), model)
    assert loaded(database) == (mark(59), model)


class Grown(Row):
    """Presence, with columns that came and went, in another order."""

    country: Annotated[str, Size(2)] = "??"
    unread: Annotated[U32, Sum] = 0
    app_id: U64
    seen: U32 = 0
    devices: Annotated[U8, Flags] = 0
    token: Annotated[str, Size(64)] = ""


def test_new_columns_are_added_and_old_columns_stay(place: Place) -> None:
    before, after = place.open(), place.open(state_rules(Grown))
    assert before.migrations() and not any(one.startswith("--") for one in before.migrations())
    before.migrate()
    saved(before, [SavedRow(b"a", state_of(5, token="old"), 1)], mark(1))
    said = after.migrations()
    assert sum("country" in one and "ADD COLUMN" in one for one in said) == 1
    assert sum("seen" in one and "ADD COLUMN" in one for one in said) == 1
    assert {one.split('"')[3] for one in said if one.startswith("--")} == {
        "background", "big", "low", "ratio", "raw",
    }  # fmt: skip
    after.migrate()
    assert all(one.startswith("--") for one in after.migrations())
    rules = TableRules(Grown)
    _, states = loaded(after)
    row = rules.row(states[b"a"], 1)
    assert row == Grown(country="", unread=5, app_id=5, seen=0, devices=5, token="old")
    # Both layouts are there, and both are read; a program with the old class continues, too.
    state = rules.join(None, rules.set(None, ("de", 1, 2, 3, 4, "new"), (9 << 16, "x"), 1))
    saved(after, [SavedRow(b"b", state, 2)], mark(2))
    assert rules.row(loaded(after)[1][b"b"], 1) == Grown(
        country="de", unread=1, app_id=2, seen=3, devices=4, token="new"
    )
    old = NAIVE.row(loaded(before)[1][b"b"], 1)
    assert isinstance(old, Presence) and (old.unread, old.app_id, old.token) == (1, 2, "new")
    (values,) = place.ask("SELECT country, seen, token FROM {t} WHERE interlock_seq = 2")
    assert values == ("de", 3, "new")


class Other(Row):
    app_id: U32
    token: U32 = 0


def test_a_column_of_another_type_is_refused_naming_both_types(place: Place) -> None:
    place.open().migrate()
    other = place.open(state_rules(Other))
    for call in (other.migrations, other.migrate):
        with pytest.raises(SchemaMismatch, match=r"token.*(TEXT|text)") as found:
            call()
        assert "token: U32" in str(found.value)


def test_a_table_of_another_program_is_not_changed(place: Place) -> None:
    place.ask("CREATE TABLE {t} (id INTEGER)")
    with pytest.raises(SchemaMismatch, match="interlock_key"):
        place.open().migrate()


def test_a_table_made_for_one_part_of_the_rows_refuses_another_part(place: Place) -> None:
    place.open(part=(0, 2)).migrate()
    place.open(part=(0, 2)).migrate()
    for part in ((1, 2), (0, 3), (0, 1)):
        with pytest.raises(SchemaMismatch, match="1 of 2"):
            place.open(part=part).migrate()


def test_partitions_of_an_existing_table_cannot_be_changed(place: Place) -> None:
    if place.url.startswith("sqlite"):
        with pytest.raises(ValueError, match="partitions"):
            place.open(partitions="hash:2")
        return
    place.open().migrate()
    with pytest.raises(SchemaMismatch, match="hash:7"):
        place.open(partitions="hash:7").migrate()
    # A program that names none takes them as they are.
    database = place.open(partitions=None)
    saved(database, rows(10), mark(1))
    assert len(loaded(database)[1]) == 10


class Narrow(Row):
    unread: Annotated[U8, Sum] = 0
    token: Annotated[str, Size(4)] = ""


def test_a_value_too_large_for_its_column_is_refused_naming_the_row(place: Place) -> None:
    before, after = place.open(), place.open(state_rules(Narrow))
    before.migrate()
    saved(before, [SavedRow(b"fits", state_of(5), 1)], mark(1))
    after.migrate()
    assert TableRules(Narrow).row(loaded(after)[1][b"fits"], 1) == Narrow(unread=5, token="t")
    saved(before, [SavedRow(b"long", state_of(5, token="12345"), 2)], mark(2))
    with pytest.raises(SchemaMismatch, match=r"b'long'.*column token"):
        loaded(after)
    # It is not lost: who has the former class has it.
    assert len(loaded(before)[1]) == 2


class Reserved(Row):
    interlock_seq: U32 = 0


def test_a_column_name_reserved_by_interlock_is_refused(place: Place) -> None:
    with pytest.raises(ValueError, match="interlock_seq"):
        place.open(state_rules(Reserved))


def test_a_writer_frozen_during_a_write_does_not_block_others(
    place: Place,
) -> None:
    if place.url.startswith("sqlite"):
        return
    frozen, other = place.open(timeout=3), place.open(timeout=20)
    frozen.migrate()
    ended = contextlib.suppress(DatabaseUnavailable)
    with ended, frozen._asked() as connection, connection.transaction():  # type: ignore[attr-defined]
        frozen._mark(connection, " FOR UPDATE")  # type: ignore[attr-defined]
        saved(other, rows(3), mark(1))
    assert len(loaded(other)[1]) == 3
