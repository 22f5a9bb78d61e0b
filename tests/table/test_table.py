"""A table as its users see it: a mapping of keys to rows, in memory that processes share."""

from __future__ import annotations

import copy
import datetime as dt
import multiprocessing
import os
import pickle
import threading
import uuid
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Annotated, Any

import pytest

from interlock import Key
from interlock.errors import NotATable, SchemaMismatch, TableFull
from interlock.table.kinds import F64, I8, U8, U32, U64
from interlock.table.row import Row, Size
from interlock.table.table import SharedTable


class Presence(Row):
    app_id: U32
    background: bool = False
    unread: U32 = 0
    token: Annotated[str, Size(8)] = ""


class Wide(Row):
    small: U8 = 0
    signed: I8 = 0
    large: U64 = 0
    load: F64 = 0.0
    blob: Annotated[bytes, Size(3)] = b""


class Single(Row):
    count: U64


@pytest.fixture
def name() -> Iterator[str]:
    chosen = f"test-{uuid.uuid4().hex}"
    yield chosen
    SharedTable.remove(chosen)


@pytest.fixture
def table(name: str) -> SharedTable[Presence]:
    return SharedTable.open(name, Presence, capacity=1000)


ONE = Presence(app_id=666, background=True, unread=3, token="t")
TWO = Presence(app_id=1)


def test_a_table_is_a_mutable_mapping(table: SharedTable[Presence]) -> None:
    assert isinstance(table, MutableMapping)
    table["a"] = ONE
    table["b"] = TWO
    assert table["a"] == ONE
    assert (len(table), "a" in table, "c" in table) == (2, True, False)
    assert sorted(table) == sorted(table.keys()) == ["a", "b"]
    assert dict(table.items()) == dict(table) == {"a": ONE, "b": TWO} == table
    assert set(table.values()) == {ONE, TWO}
    assert (table.get("a"), table.get("c"), table.get("c", TWO)) == (ONE, None, TWO)
    assert table.pop("a") == ONE
    assert table.pop("a", None) is None
    assert table.setdefault("b", ONE) == TWO
    assert table.setdefault("c", ONE) == ONE == table["c"]
    table.update({"d": ONE}, e=TWO)
    assert table.popitem()[1] in (ONE, TWO)
    del table["b" if "b" in table else "c"]
    table.clear()
    assert dict(table) == {}
    assert not table
    with pytest.raises(KeyError):
        table.popitem()


def test_str_int_and_bytes_keys_share_one_namespace(table: SharedTable[Presence]) -> None:
    table[7] = ONE
    table[b"\xff\x00"] = TWO
    assert table["7"] == table[b"7"] == ONE
    assert set(table) == {"7", b"\xff\x00"}
    table[-(2**70)] = TWO
    assert table[str(-(2**70))] == TWO


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table["no"],
        lambda table: table.pop("no"),
        lambda table: table.__delitem__("no"),
        lambda table: table.get_column("no", "unread"),
        lambda table: table.set_column("no", "unread", 1),
        lambda table: table.incr("no", "unread"),
        lambda table: table.compare_and_set("no", "unread", 0, 1),
        lambda table: table.ttl("no"),
        lambda table: table.idle("no"),
    ],
)
def test_a_missing_row_raises_key_error_as_dict_does(
    table: SharedTable[Presence], call: Callable[[Any], object]
) -> None:
    with pytest.raises(KeyError, match="no"):
        call(table)
    assert len(table) == 0


def test_a_column_can_be_changed_alone(table: SharedTable[Presence]) -> None:
    table["a"] = ONE
    assert table.incr("a", "unread") == 4
    assert table.incr("a", "unread", -4) == 0
    table.set_column("a", "token", "häß")
    table.set_column("a", "background", False)
    assert table.get_column("a", "token") == "häß"
    assert table["a"] == Presence(app_id=666, background=False, unread=0, token="häß")
    assert table.patch("a", unread=9, token="")
    assert table["a"] == Presence(app_id=666, unread=9)
    assert not table.patch("b", unread=9)
    assert table.compare_and_set("a", "unread", 9, 10)
    assert not table.compare_and_set("a", "unread", 9, 11)
    assert table.compare_and_set("a", "token", "", "new")
    assert (table.get_column("a", "unread"), table.get_column("a", "token")) == (10, "new")
    assert table.get_column("b", "unread", 5) == 5


def test_the_extremes_of_every_type_are_stored_exactly(name: str) -> None:
    table = SharedTable.open(name, Wide, capacity=10)
    ends = [
        Wide(small=255, signed=127, large=2**64 - 1, load=1e308, blob=b"\x00\xff\x00"),
        Wide(small=0, signed=-128, large=0, load=-0.0, blob=b""),
    ]
    for row in ends:
        table["a"] = row
        assert table["a"] == row
    table["a"] = Wide(load=3)
    assert type(table["a"].load) is float


def test_a_row_may_have_one_column(name: str) -> None:
    table = SharedTable.open(name, Single, capacity=10)
    table["a"] = Single(count=5)
    assert table["a"] == Single(count=5)


WRONG: list[tuple[str, Any, type[Exception], str]] = [
    ("unread", -1, ValueError, "-1 is not in 0 to 4294967295"),
    ("unread", 2**32, ValueError, "4294967296 is not in 0 to"),
    ("unread", 2**200, ValueError, "allowed: 0 to 4294967295"),
    ("unread", 1.0, TypeError, "is float; allowed: int"),
    ("unread", True, TypeError, "is bool; allowed: int"),
    ("unread", None, TypeError, "is NoneType; allowed: int"),
    ("background", 1, TypeError, "is int; allowed: bool"),
    ("token", "123456789", ValueError, "9 bytes; its size is 8"),
    ("token", "ääääß", ValueError, "10 bytes; its size is 8"),
    ("token", "\ud800", ValueError, "lone surrogate"),
    ("token", b"a", TypeError, "is bytes; allowed: str"),
]


@pytest.mark.parametrize(("column", "value", "kind", "words"), WRONG)
def test_a_value_a_column_cannot_hold_is_refused_and_the_row_unchanged(
    table: SharedTable[Presence], column: str, value: Any, kind: type[Exception], words: str
) -> None:
    table["a"] = ONE
    given = {"app_id": 1, column: value}
    for call in (
        lambda: table.set_column("a", column, value),
        lambda: table.patch("a", **{"app_id": 9, column: value}),
        lambda: table.__setitem__("a", Presence(**given)),
        lambda: table.set_many({"a": Presence(**given)}),
        lambda: table.compare_and_set("a", column, value, value),
    ):
        with pytest.raises(kind, match=f"column {column}.*{words}"):
            call()
        assert table["a"] == ONE


def test_a_sum_beyond_its_column_is_refused(table: SharedTable[Presence]) -> None:
    table["a"] = Presence(app_id=2**32 - 1)
    with pytest.raises(OverflowError, match="column app_id"):
        table.incr("a", "app_id")
    with pytest.raises(OverflowError):
        table.incr("a", "unread", -1)
    with pytest.raises(OverflowError):
        table.incr("a", "unread", 10**40)
    assert table["a"] == Presence(app_id=2**32 - 1)
    assert table.incr("a", "app_id", 2, overflow="wrap") == 1
    assert table.incr("a", "app_id", -2, overflow="saturate") == 0
    assert table.incr("a", "app_id", 10**40, overflow="saturate") == 2**32 - 1
    with pytest.raises(ValueError, match="overflow is 'clip'; allowed: 'raise', 'wrap'"):
        table.incr("a", "app_id", 1, overflow="clip")  # type: ignore[arg-type]


@pytest.mark.parametrize("column", ["token", "background"])
def test_incrementing_a_column_that_is_not_a_number_is_refused(
    table: SharedTable[Presence], column: str
) -> None:
    table["a"] = ONE
    with pytest.raises((TypeError, ValueError), match=f"column {column}"):
        table.incr("a", column)
    assert table["a"] == ONE


@pytest.mark.parametrize("key", ["", "x" * 33, b"", "ä" * 17])
def test_a_key_without_bytes_or_with_too_many_is_refused(
    table: SharedTable[Presence], key: Any
) -> None:
    for call in (table.get, table.__contains__, table.pop, table.touch):
        with pytest.raises(ValueError, match="key"):
            call(key)
    with pytest.raises(ValueError, match="key"):
        table[key] = ONE


@pytest.mark.parametrize("key", [None, 1.5, True, ("a", 1), bytearray(b"a"), object()])
def test_a_key_of_another_type_is_refused(table: SharedTable[Presence], key: Any) -> None:
    for call in (table.get, table.__contains__, table.pop, table.ttl):
        with pytest.raises(TypeError, match="allowed: str, bytes, int"):
            call(key)


def test_an_unknown_column_is_named_with_the_existing_ones(
    table: SharedTable[Presence],
) -> None:
    table["a"] = ONE
    for call in (
        lambda: table.get_column("a", "tokens"),
        lambda: table.set_column("a", "tokens", ""),
        lambda: table.incr("a", "tokens"),
        lambda: table.patch("a", tokens=""),
    ):
        with pytest.raises(ValueError, match='no column "tokens"; there are app_id, background'):
            call()
    with pytest.raises(TypeError, match="column is int; allowed: str"):
        table.get_column("a", 1)  # type: ignore[call-overload]
    # Not the same object as the table's own name.
    assert table.get_column("a", "".join(["un", "read"])) == 3


@pytest.mark.parametrize("row", [None, 5, {"app_id": 1}, Wide(), Presence])
def test_a_value_that_is_not_a_row_of_the_table_is_refused(
    table: SharedTable[Presence], row: Any
) -> None:
    with pytest.raises(TypeError, match=r"the row is .*; allowed: Presence"):
        table["a"] = row
    assert "a" not in table


def test_ttl_methods_have_the_names_and_results_of_redis(table: SharedTable[Presence]) -> None:
    table["a"] = ONE
    assert table.ttl("a") is None
    assert table.expire("a", 100)
    left = table.ttl("a")
    assert left is not None
    assert 99 < left <= 100
    assert table.expire("a", dt.timedelta(hours=1))
    assert table.persist("a")
    assert not table.persist("a")
    assert table.ttl("a") is None
    assert table.set("a", TWO, ttl=50)
    assert table.ttl("a") is not None
    assert table.expire("a", 0)
    assert "a" not in table
    assert list(table) == []
    assert not table.expire("a", 5)
    assert not table.touch("a")


def test_a_row_can_be_set_only_if_it_exists_or_is_missing(table: SharedTable[Presence]) -> None:
    assert not table.set("a", ONE, only="present")
    assert table.set("a", ONE, only="absent")
    assert not table.set("a", TWO, only="absent")
    assert table["a"] == ONE
    assert table.set("a", TWO, only="present")
    with pytest.raises(ValueError, match="allowed: 'absent', 'present'"):
        table.set("a", ONE, only="always")  # type: ignore[arg-type]


def test_many_rows_are_read_and_written_by_one_call(table: SharedTable[Presence]) -> None:
    rows = {f"k{n}": Presence(app_id=n) for n in range(500)}
    table.set_many(rows)
    assert dict(table) == rows
    keys: list[Key] = ["k1", b"k2"]
    assert table.get_many([*rows, "no"]) == [*rows.values(), None]
    assert table.get_many(key for key in keys) == [rows["k1"], rows["k2"]]
    assert table.get_many([]) == []
    with pytest.raises(TypeError, match=r"keys\[1\] is NoneType"):
        table.get_many(["a", None])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="allowed: an iterable of keys"):
        table.get_many(5)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="the row is None"):
        table.set_many({"k1": None})  # type: ignore[dict-item]


def test_a_full_table_overwrites_or_refuses(name: str) -> None:
    table = SharedTable.open(name, Single, capacity=1, on_full="raise")
    rows = {number: Single(count=number) for number in range(10_000)}
    with pytest.raises(TableFull):
        table.set_many(rows)
    assert len(table) >= 1
    assert table.stats().overwritten == 0
    SharedTable.remove(name)
    table = SharedTable.open(name, Single, capacity=1)
    for number in range(10_000):
        table[number] = Single(count=number)
        assert table[number].count == number
    stats = table.stats()
    assert stats.overwritten > 0
    assert stats.rows == len(table) <= stats.slots


def test_reopening_a_table_finds_its_rows(table: SharedTable[Presence], name: str) -> None:
    table["a"] = ONE
    again = SharedTable.open(name, Presence, capacity=5)
    other: SharedTable[Any] = SharedTable.attach(name)
    assert again["a"] == ONE
    assert again.capacity == 1000
    assert other.row.__struct_fields__ == Presence.__struct_fields__
    other["b"] = other.row(app_id=1, background=False, unread=0, token="")
    assert table["b"] == TWO
    assert SharedTable.remove(name)
    assert not SharedTable.remove(name)
    assert table["a"] == ONE
    with pytest.raises(FileNotFoundError):
        SharedTable.attach(name)


def test_opening_with_another_schema_raises_naming_both(
    table: SharedTable[Presence], name: str
) -> None:
    table["a"] = ONE
    words = r"(?s)count: U64.*app_id: U32"
    with pytest.raises(SchemaMismatch, match=words):
        SharedTable.open(name, Single, capacity=5)
    with pytest.raises(SchemaMismatch, match=words):
        SharedTable.attach(name, Single)
    assert table["a"] == ONE


def test_a_table_can_be_stored_in_a_file(tmp_path: Path) -> None:
    place = tmp_path / "table"
    table = SharedTable.open(place, Presence, capacity=10)
    table["a"] = ONE
    del table
    assert SharedTable.open(place, Presence, capacity=10)["a"] == ONE
    assert place.stat().st_mode & 0o777 == 0o600
    noise = tmp_path / "noise"
    noise.write_bytes(os.urandom(5000))
    noise.chmod(0o600)
    with pytest.raises(NotATable, match="noise"):
        SharedTable.open(noise, Presence, capacity=10)
    assert SharedTable.remove(place)


def test_a_pickled_table_refers_to_the_same_table(table: SharedTable[Presence]) -> None:
    table["a"] = ONE
    again = pickle.loads(pickle.dumps(table))
    again.incr("a", "unread")
    assert table["a"].unread == 4
    with pytest.raises(TypeError, match="a table cannot be copied"):
        copy.copy(table)
    with pytest.raises(TypeError, match="a table cannot be copied"):
        copy.deepcopy(table)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"capacity": 0}, ValueError, "capacity is 0; allowed: 1"),
        ({"capacity": "5"}, TypeError, "capacity is str; allowed: int"),
        ({"capacity": 5, "key_size": 1025}, ValueError, "key_size is 1025"),
        ({"capacity": 5, "on_full": "drop"}, ValueError, "on_full is 'drop'"),
        ({"capacity": 5, "ttl": -1}, ValueError, "ttl is -1"),
        ({"capacity": 5, "ttl": "1"}, TypeError, "ttl is str"),
        ({"capacity": 5, "writers": 0}, ValueError, "writers is 0"),
        ({"capacity": 5, "patience": float("nan")}, ValueError, "patience is nan"),
    ],
)
def test_a_wrong_option_is_named(
    name: str, options: Any, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        SharedTable.open(name, Presence, **options)
    assert not SharedTable.remove(name)


@pytest.mark.parametrize("place", ["", "a/b", ".hidden", "x" * 201, "a\0b"])
def test_a_wrong_name_is_refused(place: str) -> None:
    with pytest.raises(ValueError, match="is not a valid name for a table"):
        SharedTable.open(place, Presence, capacity=5)


def _raise(table: SharedTable[Single], times: int) -> None:
    for _ in range(times):
        table.incr("total", "count")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_every_kind_increment_one_counter(name: str, method: str) -> None:
    table = SharedTable.open(name, Single, capacity=10)
    table["total"] = Single(count=0)
    context: Any = multiprocessing.get_context(method)
    started = [context.Process(target=_raise, args=(table, 2000)) for _ in range(3)]
    for process in started:
        process.start()
    _raise(table, 2000)
    for process in started:
        process.join()
        assert process.exitcode == 0
    assert table["total"].count == 8000


def test_threads_increment_one_counter(name: str) -> None:
    table = SharedTable.open(name, Single, capacity=10)
    table["total"] = Single(count=0)
    threads = [threading.Thread(target=_raise, args=(table, 5000)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert table["total"].count == 20_000
