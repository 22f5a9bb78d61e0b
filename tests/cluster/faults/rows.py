"""The table of a run: a column of each kind of merge, and how a client reads and writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from interlock import Flags, Max, Row, Size, Sum
from interlock.table.kinds import I64, U64

TABLE = "state"
COLUMNS = "count: U64, net: I64, high: U64, marks: U64, last: U64, who: str[24]"
"""For a hub that is not a node, whose columns do not merge."""
REFERENCE = f"{TABLE}={Path(__file__)}:State"
"""The value of `--table`."""


class State(Row):
    """A row of the table."""

    count: Annotated[U64, Sum] = 0
    net: Annotated[I64, Sum] = 0
    high: Annotated[U64, Max] = 0
    marks: Annotated[U64, Flags] = 0
    last: U64 = 0
    who: Annotated[str, Size(24)] = ""


Shown = dict[str, int | str] | None
"""The columns of a row that are neither 0 nor empty; None for no row."""


def shown(reply: object) -> Shown:
    """The row of an HGETALL, as a client of RESP2 or RESP3 gets it."""
    if isinstance(reply, dict):
        pairs = list(reply.items())
    else:
        assert isinstance(reply, list), reply
        pairs = list(zip(reply[::2], reply[1::2], strict=True))
    if not pairs:
        return None
    texts = {name.decode(): text.decode() for name, text in pairs}
    return _some({name: text if name == "who" else int(text) for name, text in texts.items()})


def columns(row: State | None) -> Shown:
    """A row as a client of the library has it."""
    if row is None:
        return None
    names = ("count", "net", "high", "marks", "last", "who")
    return _some({name: getattr(row, name) for name in names})


def _some(found: dict[str, int | str]) -> dict[str, int | str]:
    return {name: value for name, value in found.items() if value}
