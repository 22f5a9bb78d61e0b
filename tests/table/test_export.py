"""All rows at once: as Arrow, read by pyarrow and polars, and as an array of NumPy."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import polars
import pyarrow as pa
import pytest

from interlock import F32, I8, I16, I32, I64, U8, U16, U32, U64, Row, SharedTable, Size
from tests.seeds import seed


class Everything(Row):
    u8: U8 = 0
    u16: U16 = 0
    u32: U32 = 0
    u64: U64 = 0
    i8: I8 = 0
    i16: I16 = 0
    i32: I32 = 0
    i64: I64 = 0
    f32: F32 = 0.0
    f64: float = 0.0
    flag: bool = False
    text: Annotated[str, Size(9)] = ""
    raw: Annotated[bytes, Size(4)] = b""


LEAST = Everything(i8=-(2**7), i16=-(2**15), i32=-(2**31), i64=-(2**63), f32=-1.5, f64=-1e300)
MOST = Everything(
    u8=2**8 - 1, u16=2**16 - 1, u32=2**32 - 1, u64=2**64 - 1, i8=2**7 - 1, i16=2**15 - 1,
    i32=2**31 - 1, i64=2**63 - 1, f32=1.5, f64=1e300, flag=True, text="häßlich",
    raw=b"\x00\xff\x00z",
)  # fmt: skip


class Count(Row):
    count: U32


class Keyed(Row):
    key: U32


@pytest.fixture
def name() -> Iterator[str]:
    chosen = f"export-{uuid.uuid4().hex}"
    yield chosen
    SharedTable.remove(chosen)


@pytest.fixture
def table(name: str) -> SharedTable[Everything]:
    made = SharedTable.open(name, Everything, capacity=100)
    made.set_many({"least": LEAST, "most": MOST, 7: Everything()})
    return made


def as_dicts(table: SharedTable[Any]) -> dict[Any, dict[str, Any]]:
    names = table.row.__struct_fields__
    return {key: {name: getattr(row, name) for name in names} for key, row in table.items()}


def by_key(rows: list[dict[str, Any]], key: str = "key") -> dict[Any, dict[str, Any]]:
    return {row.pop(key): row for row in rows}


def test_pyarrow_reads_the_extremes_of_every_type(table: SharedTable[Everything]) -> None:
    for given in (table, table.export()):
        read = pa.table(given)
        read.validate(full=True)
        assert by_key(read.to_pylist()) == as_dicts(table)
    types = ["string", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
    types += ["float", "double", "bool", "string", "binary"]
    assert [str(field.type) for field in read.schema] == types
    assert not any(field.nullable for field in read.schema)
    assert pa.schema(table) == read.schema


def test_polars_reads_the_same(table: SharedTable[Everything]) -> None:
    assert by_key(polars.DataFrame(table.export()).to_dicts()) == as_dicts(table)


def test_numpy_has_a_field_for_each_column(table: SharedTable[Everything]) -> None:
    rows = table.to_numpy()
    assert rows.dtype.names == ("key", *Everything.__struct_fields__)
    assert str(rows.dtype["key"]) == "<U32"
    assert by_key(
        [dict(zip(rows.dtype.names, row, strict=True)) for row in rows.tolist()]
    ) == as_dicts(table)
    assert rows["u64"].max() == 2**64 - 1
    rows["u64"] = 0  # is the caller's own


def test_an_empty_table_is_exported_with_its_columns(table: SharedTable[Everything]) -> None:
    table.clear()
    assert pa.table(table).num_rows == len(table.to_numpy()) == 0
    assert polars.DataFrame(table.export()).columns == ["key", *Everything.__struct_fields__]


def test_keys_that_are_not_text_are_exported_as_bytes(table: SharedTable[Everything]) -> None:
    table[b"\xff\x00"] = MOST
    told = r'the key b"\\xff\\x00" is not UTF-8; ask for keys="bytes"'
    with pytest.raises(pa.ArrowInvalid, match=told):
        pa.table(table)
    with pytest.raises(ValueError, match=told):
        table.to_numpy()
    read = pa.table(table.export(keys="bytes", columns=["flag"]))
    assert by_key(read.to_pylist())[b"\xff\x00"] == {"flag": True}
    assert str(table.to_numpy(keys="bytes").dtype["key"]) == "|S32"


def test_an_export_can_choose_and_order_columns(table: SharedTable[Everything]) -> None:
    chosen = table.export(columns=("text", "u8"))
    assert pa.table(chosen).column_names == ["key", "text", "u8"]
    assert chosen.to_numpy().dtype.names == ("key", "text", "u8")
    assert pa.table(table.export(columns=[])).column_names == ["key"]
    with pytest.raises(ValueError, match='no column "no"; there are u8'):
        table.export(columns=["no"])
    with pytest.raises(ValueError, match="each name once"):
        table.export(columns=["u8", "u8"])
    with pytest.raises(TypeError, match="one name; allowed: a sequence"):
        table.export(columns="u8")
    with pytest.raises(ValueError, match="keys is 'text'; allowed: 'str', 'bytes'"):
        table.export(keys="text")  # type: ignore[arg-type]


def test_a_column_called_key_does_not_hide_the_key(name: str) -> None:
    table = SharedTable.open(name, Keyed, capacity=10)
    table["a"] = Keyed(key=5)
    assert pa.table(table).to_pylist() == [{"_key": "a", "key": 5}]
    assert table.to_numpy().dtype.names == ("_key", "key")


def test_an_export_includes_expiry_times(table: SharedTable[Everything]) -> None:
    table.expire("most", 3600)
    table.expire("least", 1e12)  # longer than the clock goes: for ever
    now = dt.datetime.now(dt.UTC)
    rows = by_key(pa.table(table.export(expiry=True, columns=[])).to_pylist())
    assert rows["7"] == {"_expires": None}
    assert abs(rows["most"]["_expires"] - now - dt.timedelta(hours=1)) < dt.timedelta(minutes=1)
    assert pa.table(table.export(expiry=True)).column("_expires").null_count == 2
    times = table.to_numpy(expiry=True)
    assert np.isnat(times["_expires"][times["key"] == "7"]).all()
    soon = times["_expires"][times["key"] == "most"][0]
    assert abs(soon - np.datetime64(now.replace(tzinfo=None))) < np.timedelta64(61, "m")


def test_many_rows_are_exported_in_batches_and_each_stream_has_all(name: str) -> None:
    table = SharedTable.open(name, Count, capacity=150_000)
    table.set_many({number: Count(count=number) for number in range(150_000)})
    view = table.export()
    for _ in range(2):
        read = pa.table(view)
        assert read.column("key").num_chunks == 3
        assert sorted(read.column("count").to_pylist()) == list(range(150_000))
    assert sorted(view.to_numpy()["count"].tolist()) == list(range(150_000))


def test_a_stream_survives_its_table_and_may_be_left_unread(table: SharedTable[Everything]) -> None:
    stream = table.export().__arrow_c_stream__()
    unread = table.export().__arrow_c_stream__()
    schema = table.__arrow_c_schema__()
    SharedTable.remove(table.path)
    del table
    reader = pa.RecordBatchReader._import_from_c_capsule(stream)
    assert reader.read_all().num_rows == 3
    del unread, schema, reader
    with pytest.raises((ValueError, pa.ArrowInvalid)):  # it was moved out
        pa.RecordBatchReader._import_from_c_capsule(stream)


def test_an_export_during_writes_has_each_permanent_row_once(name: str) -> None:
    stay, capacity = 5000, 20_000
    table = SharedTable.open(name, Count, capacity=capacity, on_full="raise")
    table.set_many({f"stay:{number}": Count(count=1) for number in range(stay)})
    ended = threading.Event()

    def fill() -> None:
        number = seed()
        while not ended.is_set():
            # Inserting moves others.
            table.set_many({f"go:{number}:{n}": Count(count=0) for n in range(capacity - stay)})
            for n in range(capacity - stay):
                table.pop(f"go:{number}:{n}")
            number += 1

    filling = threading.Thread(target=fill)
    filling.start()
    try:
        for _ in range(10):
            keys = table.to_numpy(columns=["count"])["key"].tolist()
            assert len(keys) == len(set(keys))
            assert sum(key.startswith("stay:") for key in keys) == stay
    finally:
        ended.set()
        filling.join()


def test_without_numpy_the_error_names_the_package(table: SharedTable[Everything]) -> None:
    program = (
        "import sys; sys.modules['numpy'] = None\n"
        "from interlock import SharedTable\n"
        "table = SharedTable.attach(sys.argv[1])\n"
        "assert 'pyarrow' not in sys.modules and table.__arrow_c_stream__()\n"
        "try: table.to_numpy()\n"
        "except ImportError as error: print(error)\n"
    )
    name = table.path.name.removeprefix("interlock.")
    ended = subprocess.run([sys.executable, "-c", program, name], capture_output=True, text=True)
    assert ended.stderr == ""
    assert ended.stdout == "to_numpy() needs NumPy, which is not installed: pip install numpy\n"
