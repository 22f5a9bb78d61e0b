"""A user's tables, and the types they must have: for mypy --strict and pyright, never run."""

from __future__ import annotations

import datetime as dt
from collections.abc import ItemsView, KeysView, MutableMapping, ValuesView
from pathlib import Path
from typing import Annotated, Any, assert_type

from interlock import (
    F32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Flags,
    Last,
    Max,
    Row,
    SharedTable,
    Size,
    Sum,
    TableStats,
)


class Presence(Row):
    app_id: U32
    background: bool = False
    unread: U32 = 0
    level: U8 = 0
    balance: I64 = 0
    load: F32 = 0.0
    total: float = 0.0
    token: Annotated[str, Size(32)] = ""
    raw: Annotated[bytes, Size(4)] = b""

    def is_idle(self) -> bool:
        return self.background and self.unread == 0


class Merged(Row):
    name: Annotated[str, Size(32), Last] = ""
    unread: Annotated[U32, Sum] = 0
    score: Annotated[float, Sum] = 0.0
    seen: Annotated[U64, Max] = 0
    devices: Annotated[U16, Flags] = 0


class Presences(SharedTable[Presence]):
    def unread(self) -> int:
        return sum(row.unread for row in self.values())


def rows() -> None:
    row = Presence(app_id=666, token="t")
    assert_type(row.unread, int)
    assert_type(row.load, float)
    assert_type(row.background, bool)
    assert_type(row.token, str)
    assert_type(row.raw, bytes)
    assert_type(row.is_idle(), bool)
    assert_type(Merged(unread=1).unread, int)
    assert_type(Merged().score, float)
    match row:
        case Presence(app_id=666, token=token):
            assert_type(token, str)
        case _:
            pass


def tables() -> None:
    table = SharedTable.open(
        "presence", Presence, capacity=100_000, ttl=dt.timedelta(hours=1), on_full="raise"
    )
    assert_type(table, SharedTable[Presence])
    mapping: MutableMapping[str | int | bytes, Presence] = table
    mapping["a"] = Presence(app_id=1)
    table[7] = Presence(app_id=1)
    assert_type(table["a"], Presence)
    assert_type(table.get("a"), Presence | None)
    assert_type(table.get("a", 0), Presence | int)
    assert_type(table.pop("a"), Presence)
    assert_type(table.pop("a", None), Presence | None)
    assert_type(table.get_many(["a", 7]), list[Presence | None])
    assert_type(table.get_many(["a", 7], "unread"), list[Any])
    assert_type(table.get_column("a", "unread"), Any)
    assert_type(table.get_column("a", "unread", None), Any)
    assert_type(table.get_bytes("a"), bytes | None)
    assert_type(table.get_bytes("a", b""), bytes)
    table.set_bytes("b", table.get_bytes("a", b""))
    table.set_many({"a": Presence(app_id=1)})
    assert_type(table.keys(), KeysView[str | int | bytes])
    assert_type(table.values(), ValuesView[Presence])
    assert_type(table.items(), ItemsView[str | int | bytes, Presence])
    assert_type(table.popitem(), tuple[str | int | bytes, Presence])
    assert_type(table.setdefault("a", Presence(app_id=2)), Presence)
    assert_type(table.stats(), TableStats)
    assert_type(table.stats().levels[0].rows, int)
    assert_type(table.row, type[Presence])
    assert_type(table.set("a", Presence(app_id=1), ttl=5, only="absent"), bool)
    assert_type(table.patch("a", unread=0), bool)
    assert_type(table.ttl("a"), float | None)
    assert_type(table.reset(), int)
    assert_type(table.close(), None)
    table.update({"a": Presence(app_id=1)}, b=Presence(app_id=2))
    table |= {"a": Presence(app_id=1)}
    table.export(keys="bytes", columns=["unread"], expiry=True)
    table.to_numpy()
    for key, row in table.scan():
        assert_type(key, str | int | bytes)
        assert_type(row, Presence)
    with SharedTable.attach(Path("/var/lib/presence"), Presence) as other:
        assert_type(other, SharedTable[Presence])
    untyped: SharedTable[Any] = SharedTable.attach("presence")
    assert_type(untyped["a"], Any)
    assert_type(SharedTable.remove("presence"), bool)


def wrong(table: SharedTable[Presence]) -> None:
    """Each line is refused, or its comment would be."""
    Presence(666)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Presence(app_id="666")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    table["a"].unread += 1  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    table[1.5] = Presence(app_id=1)  # type: ignore[index]  # pyright: ignore[reportArgumentType]
