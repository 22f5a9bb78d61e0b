"""A table that hubs serve in the tests."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

from interlock import Row, Size
from interlock.table.kinds import F32, F64, I8, U32, U64

COLUMNS = (
    "app_id: U32, background: bool, unread: U32, small: I8, large: U64, score: F64, narrow: F32, "
    "token: str[8], raw: bytes[4]"
)


class Presence(Row):
    app_id: U32
    background: bool = False
    unread: U32 = 0
    small: I8 = 0
    large: U64 = 0
    score: F64 = 0.0
    narrow: F32 = 0.0
    token: Annotated[str, Size(8)] = ""
    raw: Annotated[bytes, Size(4)] = b""


def new_name() -> str:
    """A name that no other table of this machine has."""
    return f"test-{uuid.uuid4().hex[:12]}"


def entry(name: str, **more: Any) -> dict[str, Any]:
    """An entry of the configuration, small enough that its rows are counted at once."""
    return {"name": name, "columns": COLUMNS, "capacity": 1000, **more}
