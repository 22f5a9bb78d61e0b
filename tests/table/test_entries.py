"""The calls of a table that are entered straight answer as the ordinary way does."""

from __future__ import annotations

import gc
import sys
import uuid
from collections.abc import Iterator
from typing import Annotated, Any

import pytest

from interlock.table.kinds import F32, F64, I8, I16, I32, I64, U8, U16, U32, U64
from interlock.table.row import Row, Size
from interlock.table.schema import Schema
from interlock.table.table import SharedTable


class Presence(Row):
    app_id: U32
    background: bool = False
    unread: U32 = 0
    load: F64 = 0.0
    token: Annotated[str, Size(8)] = ""
    blob: Annotated[bytes, Size(3)] = b""


ONE = Presence(app_id=666, background=True, unread=3, load=0.5, token="häß", blob=b"\0a")


class Text(str):
    """A str with a class of its own: only the ordinary way takes it."""

    __slots__ = ()


class Number(int):
    """An int with a class of its own."""


@pytest.fixture
def name() -> Iterator[str]:
    chosen = f"test-{uuid.uuid4().hex}"
    yield chosen
    SharedTable.remove(chosen)


@pytest.fixture
def table(name: str) -> SharedTable[Presence]:
    return SharedTable.open(name, Presence, capacity=100)


def test_a_default_of_none_is_a_default(table: SharedTable[Presence]) -> None:
    for column in ("unread", "token", Text("unread")):
        with pytest.raises(KeyError, match="no"):
            table.get_column("no", column)
        assert table.get_column("no", column, None) is None
        assert table.get_column(Text("no"), column, None) is None
        assert table.get_column("no", column, 0) == 0
    with pytest.raises(TypeError, match="2 defaults"):
        table.get_column("no", "unread", 1, 2)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        table.get_column("no", "unread", default=1)  # type: ignore[call-overload]


@pytest.mark.parametrize("key", ["7", b"7", 7, Text("7"), Number(7)])
def test_every_form_of_a_key_is_the_same_key_in_every_call(
    table: SharedTable[Presence], key: Any
) -> None:
    table[key] = ONE
    assert list(table) == ["7"]
    assert key in table
    assert table[key] == table.get(key) == ONE
    assert table.get_many([key, "no"]) == [ONE, None]
    assert table.get_many((key,), "token") == [ONE.token]
    assert table.incr(key, "unread") == 4
    assert table.incr(key, "unread", Number(2)) == 6
    assert table.incr(key, "load", 0.25) == 0.75
    table.set_column(key, "background", False)
    table.set_column(key, "token", Text("x"))
    table.set_column(key, "blob", bytearray(b"y"))
    assert table.get_column(key, "background") is False
    assert (table.get_column(key, "token"), table.get_column(key, "blob")) == ("x", b"y")
    assert table.set(key, ONE) is True
    table.set_bytes(key, table.get_bytes(key, b""))
    assert table["7"] == ONE
    del table[key]
    assert key not in table and table.get(key) is None and table.get_bytes(key, 5) == 5


@pytest.mark.parametrize("number", [0, -1, -(2**63), 2**63 - 1, 2**63, -(2**70), 10**20])
def test_an_int_key_equals_its_decimal_text(table: SharedTable[Presence], number: int) -> None:
    table[number] = ONE
    assert list(table) == [str(number)]
    assert number in table and str(number) in table and table[str(number).encode()] == ONE


@pytest.mark.parametrize("key", ["", b"", "\ud800", True, None, 1.5, ("a",), [], "x" * 33])
def test_an_invalid_key_is_refused_by_every_call(table: SharedTable[Presence], key: Any) -> None:
    row = bytes(8 + 4 + 4 + 1 + 10 + 5)
    for call in (
        lambda: table[key],
        lambda: table.__setitem__(key, ONE),
        lambda: table.__delitem__(key),
        lambda: key in table,
        lambda: table.get(key),
        lambda: table.set(key, ONE),
        lambda: table.get_column(key, "unread", 1),
        lambda: table.set_column(key, "unread", 1),
        lambda: table.incr(key, "unread"),
        lambda: table.get_bytes(key),
        lambda: table.set_bytes(key, row),
        lambda: table.get_many([key]),
    ):
        with pytest.raises((TypeError, ValueError)):
            call()
    assert len(table) == 0


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("unread", -1),
        ("unread", 2**32),
        ("unread", 2**70),
        ("unread", True),
        ("unread", 1.0),
        ("background", 1),
        ("load", True),
        ("load", "1"),
        ("token", "123456789"),
        ("token", "\ud800"),
        ("token", b"a"),
        ("blob", "a"),
        ("blob", b"four"),
        ("nothing", 1),
    ],
)
def test_a_value_a_column_cannot_hold_does_not_change_the_row(
    table: SharedTable[Presence], column: str, value: Any
) -> None:
    table["a"] = ONE
    with pytest.raises((TypeError, ValueError)):
        table.set_column("a", column, value)
    if column != "nothing":
        fields = {name: getattr(ONE, name) for name in Schema.of(Presence).names}
        with pytest.raises((TypeError, ValueError)):
            table["a"] = Presence(**(fields | {column: value}))
    assert table["a"] == ONE


def test_a_sum_beyond_the_range_and_a_column_without_sums_are_refused(
    table: SharedTable[Presence],
) -> None:
    table["a"] = ONE
    for by in (2**32, -4, 2**70, -(2**70)):
        with pytest.raises(OverflowError):
            table.incr("a", "unread", by)
    for column in ("token", "blob", "background"):
        with pytest.raises((TypeError, ValueError)):
            table.incr("a", column)
    with pytest.raises(KeyError):
        table.incr("b", "unread")
    with pytest.raises(KeyError):
        table.set_column("b", "unread", 1)
    assert table.incr("a", "unread", 2**32, overflow="saturate") == 2**32 - 1
    assert table["a"].app_id == 666


def test_packed_bytes_of_a_row_are_read_and_others_are_refused(
    table: SharedTable[Presence],
) -> None:
    table["a"] = ONE
    row = table.get_bytes("a", b"")
    assert len(row) == 8 + 4 + 4 + 1 + (2 + 8) + (2 + 3)
    table.set_bytes("b", row)
    assert table["b"] == ONE
    text = 8 + 4 + 4 + 1
    wrong = {
        "longer than its size": row[:text] + b"\x09" + row[text + 1 :],
        "UTF-8": row[: text + 2] + b"\xff" + row[text + 3 :],
        "behind its end": row[: text + 9] + b"x" + row[text + 10 :],
        "neither true nor false": row[: text - 1] + b"\x02" + row[text:],
        "a row of 31 bytes": row[:-1],
    }
    for match, given in wrong.items():
        with pytest.raises(ValueError, match=match):
            table.set_bytes("b", given)
    for other in (None, "text", bytearray(row), memoryview(row)):
        with pytest.raises(TypeError, match="allowed: bytes"):
            table.set_bytes("b", other)  # type: ignore[arg-type]
    assert table["b"] == ONE


class Integers(Row):
    a: U8 = 0
    b: I8 = 0
    c: U16 = 0
    d: I16 = 0
    e: U32 = 0
    f: I32 = 0
    g: U64 = 0
    h: I64 = 0


@pytest.mark.parametrize(
    ("column", "least", "most"),
    [
        ("a", 0, 2**8 - 1),
        ("b", -(2**7), 2**7 - 1),
        ("c", 0, 2**16 - 1),
        ("d", -(2**15), 2**15 - 1),
        ("e", 0, 2**32 - 1),
        ("f", -(2**31), 2**31 - 1),
        ("g", 0, 2**64 - 1),
        ("h", -(2**63), 2**63 - 1),
    ],
)
def test_a_column_of_integers_is_raised_to_the_ends_of_its_range_and_no_further(
    name: str, column: str, least: int, most: int
) -> None:
    table = SharedTable.open(name, Integers, capacity=10)
    around = {other: 7 for other in "abcdefgh" if other != column}
    for end, step in ((most, 1), (least, -1)):
        table["a"] = Integers(**around, **{column: end - step})
        assert table.incr("a", column, step) == end == table.get_column("a", column)
        for by in (step, 2 * step, 2**64 * step):
            with pytest.raises(OverflowError):
                table.incr("a", column, by)
        assert table["a"] == Integers(**around, **{column: end})
    table.set_column("a", column, 1)
    assert table.incr("a", column) == 2
    assert table["a"] == Integers(**around, **{column: 2})


class Checked(Row):
    count: U64
    made = 0

    def __post_init__(self) -> None:
        Checked.made += 1


class Wider(Presence):
    extra: U8 = 0


class Sly(Presence):
    """A subclass may answer for its columns itself."""

    def __getattribute__(self, name: str) -> Any:
        return 99 if name == "unread" else super().__getattribute__(name)


def test_the_constructor_and_methods_of_a_row_class_are_used(name: str) -> None:
    table = SharedTable.open(name, Checked, capacity=10)
    table["a"] = Checked(count=1)
    before = Checked.made
    assert table["a"].count == 1
    assert Checked.made == before + 1


def test_a_row_of_a_subclass_is_read_by_its_attributes(table: SharedTable[Presence]) -> None:
    table["a"] = Wider(app_id=1, unread=2, extra=3)
    assert table["a"] == Presence(app_id=1, unread=2)
    table["a"] = Sly(app_id=5)
    assert (table["a"].app_id, table["a"].unread) == (5, 99)
    with pytest.raises(TypeError, match="Presence"):
        table["a"] = ()  # type: ignore[assignment]


def test_rows_are_instances_of_their_class(table: SharedTable[Presence]) -> None:
    table["a"] = ONE
    row = table["a"]
    assert type(row) is Presence and repr(row) == repr(ONE) and hash(row) == hash(ONE)
    with pytest.raises(AttributeError):
        row.unread = 4  # type: ignore[misc]
    assert not gc.is_tracked(row)


def test_calls_keep_no_references_to_their_arguments(table: SharedTable[Presence]) -> None:
    key, default, token = "k" * 5, object(), "t" * 7
    row = Presence(app_id=1, token=token)
    missing = [key + "no"]
    held = (key, default, token, row, Presence)
    counts = [sys.getrefcount(one) for one in held]
    for _ in range(100):
        table[key] = row
        table.set(key, row)
        table.set_column(key, "token", token)
        table.get(missing[0], default)
        table.get_column(missing[0], "token", default)
        table.get_many([key, *missing])
        table.get_column(key, "token")
        table.set_bytes(key, table.get_bytes(key, b""))
        assert table[key] == row and key in table
        with pytest.raises(ValueError, match="bytes"):
            table.set_column(key, "token", "too long a text")
    assert [sys.getrefcount(one) for one in held] == counts


class Halves(Row):
    half: F32 = 0.0
    many: I64 = 0


def test_numbers_are_returned_in_the_type_of_their_column(name: str) -> None:
    table = SharedTable.open(name, Halves, capacity=10)
    table["a"] = Halves(half=0.1, many=-(2**63))
    assert table.get_column("a", "half") == pytest.approx(0.1, rel=1e-6)
    assert table.incr("a", "many", 2**63 - 1) == -1
    table.set_column("a", "half", 2)
    assert table["a"] == Halves(half=2.0, many=-1)
    for value in (float("nan"), float("inf")):
        table.set_column("a", "half", value)
        assert str(table.get_column("a", "half")) == str(value)
