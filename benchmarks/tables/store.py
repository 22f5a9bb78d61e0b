"""Stores of rows, as every side of the table "State table" is one; ours, and that in a dict."""

from __future__ import annotations

import os
import random
import struct
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from interlock import U32, Row, SharedTable, Size

ROWS = 100_000
"""Rows of each store; a table of this capacity has 91 % of its slots full."""

LAYOUT = struct.Struct("<IIB67s")
"""A row as bytes, for stores that know nothing else: the 76 that a table of `Device` keeps."""

UNREAD = struct.Struct("<I")
UNREAD_AT = 4


class Device(Row):
    """A row of 76 bytes: a user's device, as a push service keeps it."""

    app_id: U32
    unread: U32
    background: bool
    token: Annotated[str, Size(65)]


class Store:
    """Rows of 100,000 users, loaded when it is made.

    Each operation is the plainest loop that its kind allows, with methods looked up once. It
    returns what it read, to be checked after the clock has stopped."""

    name: ClassVar[str]
    share: ClassVar[float] = 1.0
    """The part of a round's operations that it does: fewer where each takes long."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.load({key: token(key) for key in keys})

    def load(self, tokens: dict[str, str]) -> None:
        """Set the row of each key, with this token, its unread count 0."""
        raise NotImplementedError

    def get_column(self, keys: Sequence[str]) -> list[int]:
        """Return the unread count of each."""
        raise NotImplementedError

    def set_column(self, keys: Sequence[str], value: int) -> None:
        """Set the unread count of each."""
        raise NotImplementedError

    def incr(self, keys: Sequence[str]) -> None:
        """Raise the unread count of each by 1."""
        raise NotImplementedError

    def get_row(self, keys: Sequence[str]) -> list[Any]:
        """Return each row as this store keeps it, as bytes where it can."""
        raise NotImplementedError

    def rows_of(self, keys: Sequence[str]) -> list[Any]:
        """Return a row of its own for each, in the form in which `set_row` takes it."""
        return [packed(token(key)) for key in keys]

    def set_row(self, keys: Sequence[str], rows: Sequence[Any]) -> None:
        """Set each row as a whole."""
        raise NotImplementedError

    def miss(self, keys: Sequence[str]) -> list[Any]:
        """Look for keys that are not there; return what was found."""
        raise NotImplementedError

    def get_many(self, batches: Sequence[list[str]]) -> list[list[int]]:
        """Return the unread counts of batches of keys."""
        raise NotImplementedError

    def close(self) -> None:
        """Give back all that it took."""


def keys_of(seed: int) -> list[str]:
    """Return as many user ids as a store has rows, of nine digits."""
    return [str(number) for number in random.Random(seed).sample(range(10**8, 10**9), ROWS)]


def token(key: str) -> str:
    """Return a device token of 64 letters."""
    return f"{key:0>64}"


def packed(text: str, unread: int = 0) -> bytes:
    """Return a row as bytes."""
    return LAYOUT.pack(666, unread, 0, struct.pack("<H65s", len(text), text.encode()))


class Table(Store):
    """Ours."""

    name = "ours"

    def __init__(self, keys: Sequence[str], place: str | None = None) -> None:
        self.place = place or f"bench-{uuid.uuid4().hex}"
        self.table = SharedTable.open(self.place, Device, capacity=len(keys) or ROWS)
        if place is None:
            super().__init__(keys)

    def load(self, tokens: dict[str, str]) -> None:
        for key, text in tokens.items():
            self.table[key] = Device(app_id=666, unread=0, background=False, token=text)

    def get_column(self, keys: Sequence[str]) -> list[int]:
        get = self.table.get_column
        return [get(key, "unread") for key in keys]

    def set_column(self, keys: Sequence[str], value: int) -> None:
        put = self.table.set_column
        for key in keys:
            put(key, "unread", value)

    def incr(self, keys: Sequence[str]) -> None:
        incr = self.table.incr
        for key in keys:
            incr(key, "unread")

    def get_row(self, keys: Sequence[str]) -> list[Any]:
        get = self.table.get_bytes
        return [get(key) for key in keys]

    def set_row(self, keys: Sequence[str], rows: Sequence[Any]) -> None:
        put = self.table.set_bytes
        for key, row in zip(keys, rows, strict=True):
            put(key, row)

    def miss(self, keys: Sequence[str]) -> list[Any]:
        get = self.table.get
        return [get(key) for key in keys]

    def get_many(self, batches: Sequence[list[str]]) -> list[list[int]]:
        get = self.table.get_many
        return [get(batch, "unread") for batch in batches]

    def close(self) -> None:
        SharedTable.remove(self.place)


class Objects(Table):
    """Ours, with rows as objects of their class."""

    name = "row objects"

    def get_row(self, keys: Sequence[str]) -> list[Any]:
        table = self.table
        return [table[key] for key in keys]

    def rows_of(self, keys: Sequence[str]) -> list[Any]:
        return [Device(app_id=666, unread=0, background=False, token=token(key)) for key in keys]

    def set_row(self, keys: Sequence[str], rows: Sequence[Any]) -> None:
        table = self.table
        for key, row in zip(keys, rows, strict=True):
            table[key] = row


class Dict(Store):
    """A dict of dicts, and for whole rows one of bytes, in one process."""

    name = "dict"

    def load(self, tokens: dict[str, str]) -> None:
        self.rows = {
            key: {"app_id": 666, "unread": 0, "background": False, "token": text}
            for key, text in tokens.items()
        }
        self.bytes = {key: packed(text) for key, text in tokens.items()}

    def get_column(self, keys: Sequence[str]) -> list[int]:
        rows = self.rows
        return [rows[key]["unread"] for key in keys]  # type: ignore[misc]

    def set_column(self, keys: Sequence[str], value: int) -> None:
        rows = self.rows
        for key in keys:
            rows[key]["unread"] = value

    def incr(self, keys: Sequence[str]) -> None:
        rows = self.rows
        for key in keys:
            rows[key]["unread"] += 1  # type: ignore[operator]

    def get_row(self, keys: Sequence[str]) -> list[Any]:
        rows = self.bytes
        return [rows[key] for key in keys]

    def set_row(self, keys: Sequence[str], rows: Sequence[Any]) -> None:
        kept = self.bytes
        for key, row in zip(keys, rows, strict=True):
            kept[key] = row

    def miss(self, keys: Sequence[str]) -> list[Any]:
        get = self.rows.get
        return [get(key) for key in keys]

    def get_many(self, batches: Sequence[list[str]]) -> list[list[int]]:
        rows = self.rows
        return [[rows[key]["unread"] for key in batch] for batch in batches]  # type: ignore[misc]


def in_memory(name: str) -> str:
    """Return a path for a store's files: in shared memory where the machine has it."""
    folder = "/dev/shm" if os.path.isdir("/dev/shm") else "/tmp"
    return f"{folder}/interlock-bench-{name}-{uuid.uuid4().hex}"
