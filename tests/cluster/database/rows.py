"""A table's rows for the tests of databases, and changes of them."""

from __future__ import annotations

from typing import Annotated

from interlock import F64, I64, U8, U32, U64, Flags, Row, Size, Sum
from interlock.cluster.database import Database, LogMark, SavedRow
from interlock.cluster.rules import state_rules
from tests.cluster.naive.stamps import HybridClock
from tests.cluster.naive.state import TableRules


class Presence(Row):
    app_id: U32
    background: bool = False
    unread: Annotated[U32, Sum] = 0
    devices: Annotated[U8, Flags] = 0
    big: U64 = 0
    low: I64 = 0
    ratio: F64 = 0.0
    token: Annotated[str, Size(32)] = ""
    raw: Annotated[bytes, Size(64)] = b""


RULES = state_rules(Presence)
NAIVE = TableRules(Presence)
CLOCK = HybridClock("east")


def state_of(number: int, *, token: str = "t", expires_at: int = 0) -> bytes:
    """The state of a row that was set as a whole."""
    values = (number % 2**32, number % 2 == 1, number % 1000, number % 256,
              2**64 - 1 - number, -number, number / 8, token, b"\0" + token.encode())  # fmt: skip
    return NAIVE.set(None, values, CLOCK.next(), 1, expires_at)


def deleted() -> bytes:
    return NAIVE.deleted(CLOCK.next())


def mark(number: int, epoch: int = 0) -> LogMark:
    return LogMark(epoch, position=number, checksum=number, number=number, time=number)


def saved(database: Database, rows: list[SavedRow], at: LogMark) -> None:
    """Write behind what is there, whatever that is."""
    assert database.save(rows, at, database.mark())


def rows(count: int, start: int = 0, seq: int = 1) -> list[SavedRow]:
    return [SavedRow(b"key:%d" % n, state_of(n), seq) for n in range(start, start + count)]


def pairs(batch: list[tuple[bytes, bytes]] | bytes) -> list[tuple[bytes, bytes]]:
    """Return the keys and states of a batch, of whatever form it is."""
    if not isinstance(batch, bytes):
        return batch
    found, at = [], 0
    while at < len(batch):
        assert batch[at : at + 2] == b"\0\2"
        at, fields = at + 2, []
        for _ in range(2):
            size = int.from_bytes(batch[at : at + 4], "big")
            fields.append(batch[at + 4 : at + 4 + size])
            at += 4 + size
        found.append((fields[0], fields[1]))
    return found
