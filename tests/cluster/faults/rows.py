"""The table of a run: a column of each kind of merge, and how a client reads and writes it."""

from __future__ import annotations

from pathlib import Path

TABLE = "state"
COLUMNS = "count: U64, net: I64, high: U64, marks: U64, last: U64, who: str[24]"
"""For a hub that is no node, whose columns do not merge."""

MODULE = """
from typing import Annotated

from interlock import Flags, Max, Row, Size, Sum
from interlock.table.row import I64, U64


class State(Row):
    count: Annotated[U64, Sum] = 0
    net: Annotated[I64, Sum] = 0
    high: Annotated[U64, Max] = 0
    marks: Annotated[U64, Flags] = 0
    last: U64 = 0
    who: Annotated[str, Size(24)] = ""
"""


def write_module(folder: Path) -> str:
    """Write the module with the row; answers what `--table` is given."""
    path = folder / "state.py"
    path.write_text(MODULE, encoding="utf-8")
    return f"{TABLE}={path}:State"


def shown(reply: object) -> dict[str, int | str] | None:
    """The row of an HGETALL, as a client of RESP3 gets it; None where there is none."""
    if isinstance(reply, dict):
        pairs = list(reply.items())
    else:
        assert isinstance(reply, list), reply
        pairs = list(zip(reply[::2], reply[1::2], strict=True))
    return columns(pairs)


def columns(pairs: list[tuple[bytes, bytes]]) -> dict[str, int | str] | None:
    """A row of its columns and their texts, without those that are 0 or empty."""
    if not pairs:
        return None
    texts = {name.decode(): text.decode() for name, text in pairs}
    found: dict[str, int | str] = {name: int(text) for name, text in texts.items() if name != "who"}
    found = {name: value for name, value in found.items() if value}
    if texts.get("who"):
        found["who"] = texts["who"]
    return found
