"""Rows, and the schema that their class declares."""

from __future__ import annotations

import pickle
import re
from typing import Annotated, Any, get_args

import msgspec
import pytest

from interlock.cluster.database import postgresql_schema, sqlite
from interlock.table.kinds import F32, F64, I8, I64, KINDS, U8, U32, Kind, Number
from interlock.table.row import Row, RowType, Size
from interlock.table.schema import Column, Schema


class Presence(Row):
    app_id: U32
    background: bool = False
    unread: U32 = 0
    token: Annotated[str, Size(32)]


class Wide(Presence):
    load: F32
    total: float
    mean: F64
    delta: I8
    balance: I64
    small: U8
    blob: Annotated[bytes, Size(32_768)]


TEXT = "app_id: U32, background: bool, unread: U32, token: str[32]"


def test_a_class_declares_its_columns_in_their_order() -> None:
    assert str(Schema.of(Presence)) == TEXT
    assert str(Schema.of(Wide)) == TEXT + (
        ", load: F32, total: F64, mean: F64, delta: I8, balance: I64, small: U8, blob: bytes[32768]"
    )


@pytest.mark.parametrize("row", [Presence, Wide])
def test_the_text_of_a_schema_is_complete(row: type[Row]) -> None:
    schema = Schema.of(row)
    assert Schema.parse(str(schema)) == schema
    assert Schema.of(schema.row()) == schema


def test_rows_are_values() -> None:
    row = Presence(app_id=666, token="t")
    assert row == Presence(app_id=666, background=False, unread=0, token="t")
    assert hash(row) == hash(msgspec.structs.replace(row))
    assert msgspec.structs.replace(row, unread=1) != row
    assert pickle.loads(pickle.dumps(row)) == row
    assert msgspec.json.decode(msgspec.json.encode(row), type=Presence) == row
    with pytest.raises(AttributeError):
        row.unread += 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        Presence(666, False, 0, "t")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (int, "is int; choose a size: U8"),
        (str, r"without a size; give its maximum bytes: Annotated\[str, Size"),
        (bytes, r"Annotated\[bytes, Size"),
        (list[int], "is list; allowed: U8 to U64"),
        (U32 | None, "a union; a row has a value in every column"),
        (Any, "allowed: U8 to U64"),
        (Annotated[U32, Size(4)], "several sizes"),
        (Annotated[int, Size(4)], "a Size, which is for str and bytes"),
        (Annotated[bool, Size(4)], "a Size, which is for str and bytes"),
    ],
)
def test_a_column_of_an_unsupported_type_is_refused_with_a_clear_error(
    annotation: Any, words: str
) -> None:
    row: Any = RowType("Given", (Row,), {"__annotations__": {"column": annotation}})
    with pytest.raises(TypeError, match=rf"Given.column .*{words}"):
        Schema.of(row)


@pytest.mark.parametrize(
    ("annotation", "default", "error", "words"),
    [
        (U8, -1, ValueError, "a default of -1; allowed: 0 to 255"),
        (U8, 256, ValueError, "a default of 256; allowed: 0 to 255"),
        (I8, -129, ValueError, "a default of -129; allowed: -128 to 127"),
        (U8, True, TypeError, "a default that is bool; allowed: U8"),
        (U8, None, TypeError, "a default that is NoneType; allowed: U8"),
        (bool, 0, TypeError, "a default that is int; allowed: bool"),
        (F32, "1", TypeError, "a default that is str; allowed: F32"),
        (Annotated[str, Size(2)], "ßa", ValueError, "a default of 3 bytes; its size is 2"),
        (Annotated[bytes, Size(2)], "a", TypeError, "a default that is str; allowed: bytes"),
    ],
)
def test_a_default_that_its_column_cannot_hold_is_refused(
    annotation: Any, default: Any, error: type[Exception], words: str
) -> None:
    hints = {"first": U32, "column": annotation}
    row: Any = RowType("Given", (Row,), {"__annotations__": hints, "column": default})
    with pytest.raises(error, match=rf"Given\.column has {words}"):
        Schema.of(row)


def test_defaults_at_the_extremes_of_their_columns_are_accepted() -> None:
    class Ends(Row):
        least: I8 = -128
        most: U8 = 255
        whole: F32 = 1
        text: Annotated[str, Size(2)] = "ß"
        made: U32 = msgspec.field(default_factory=int)

    assert len(Schema.of(Ends).columns) == 5


@pytest.mark.parametrize("name", ["_x", "class"])
def test_a_column_name_must_be_an_identifier(name: str) -> None:
    row: Any = RowType("Given", (Row,), {"__annotations__": {name: U32}})
    with pytest.raises(TypeError, match=rf"Given\.{name} cannot be a column"):
        Schema.of(row)


def test_rows_of_a_class_made_of_columns_are_pickled_by_these() -> None:
    made = Schema.of(Presence).row()
    assert Schema.of(Presence).row() is made
    row: Any = made(app_id=1, background=False, unread=0, token="t")
    assert pickle.loads(pickle.dumps(row)) == row


def test_rows_support_pattern_matching_and_methods() -> None:
    class Doubled(Presence):
        def twice(self) -> int:
            return self.unread * 2

    row = Doubled(app_id=1, unread=4, token="")
    assert row.twice() == 8
    match row:
        case Presence(unread=4, app_id=app):
            assert app == 1
        case _:
            pytest.fail("no match")
    with pytest.raises(AttributeError):
        row.other = 1  # type: ignore[attr-defined]


def test_an_invalid_row_class_is_refused() -> None:
    class Empty(Row):
        pass

    class Unknown(Row):
        column: Missing  # type: ignore[name-defined]  # noqa: F821

    for given in (object, Presence(app_id=1, token=""), "Presence", None, msgspec.Struct):
        with pytest.raises(TypeError, match=r"a class made from interlock.Row"):
            Schema.of(given)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Empty has no column"):
        Schema.of(Empty)
    with pytest.raises(TypeError, match=r"Unknown: .*'Missing'"):
        Schema.of(Unknown)


@pytest.mark.parametrize("size", [0, -1, 32_769])
def test_a_size_out_of_range_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"bytes is {size}; allowed: 1 to 32,768"):
        Size(size)


@pytest.mark.parametrize("size", [True, 1.0, "1", None])
def test_a_size_of_another_type_is_refused(size: Any) -> None:
    with pytest.raises(TypeError, match=f"bytes is {type(size).__name__}; allowed: int"):
        Size(size)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'' is not a column"),
        ("a: U32,", "'' is not a column"),
        ("a: U33", "'a: U33' is not a column; allowed: NAME: TYPE, of U8"),
        ("a U32", "'a U32' is not a column"),
        ("a: str", "str and bytes have a size"),
        ("a: str[0]", "str and bytes have a size"),
        ("a: str[32769]", "str and bytes have a size"),
        ("a: U32[4]", "others have none"),
        ("class: U32", "a column is called 'class'"),
        ("1a: U32", "a column is called '1a'"),
        ("_a: U32", "a column is called '_a'"),
        ("a: U32, b: bool, a: str[3]", "two columns are called 'a'"),
    ],
)
def test_an_invalid_schema_text_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        Schema.parse(text)


def test_an_unknown_column_is_named_with_the_existing_ones() -> None:
    schema = Schema.of(Presence)
    assert schema.column("token").size == 32
    with pytest.raises(
        ValueError, match="no column 'tokens'; there are app_id, background, unread"
    ):
        schema.column("tokens")


@pytest.mark.parametrize("kind", ["decimal", "U128", "I7", "F16", "u32", ""])
def test_an_unknown_kind_is_refused_and_never_taken_for_an_int(kind: Any) -> None:
    with pytest.raises(ValueError, match=f"the kind of a column is {kind!r}; allowed: U8, U16, "):
        Column("total", kind)
    hinted: Any = RowType(
        "Hinted", (Row,), {"__annotations__": {"total": Annotated[int, Number(kind)]}}
    )
    with pytest.raises(ValueError, match="the kind of a column is"):
        Schema.of(hinted)


def test_the_kinds_are_those_of_the_annotations_and_of_the_text_of_a_schema() -> None:
    assert set(KINDS) == {kind for part in get_args(Kind) for kind in (get_args(part) or (part,))}
    sized = {"str": "[4]", "bytes": "[4]"}
    text = ", ".join(f"c{n}: {kind}{sized.get(kind, '')}" for n, kind in enumerate(KINDS))
    schema = Schema.parse(text)
    assert str(schema) == str(Schema.of(schema.row())) == text
    for column in schema.columns:
        assert type(column.rule.zero) is column.rule.python


def test_each_kind_has_a_type_in_both_databases() -> None:
    assert set(postgresql_schema.DIALECT.types) == set(sqlite.DIALECT.types) == set(KINDS)
