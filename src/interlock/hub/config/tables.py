"""State tables that a hub serves, declared as `[[table]]` tables, and how they are opened."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from interlock import _core
from interlock.errors import InterlockError
from interlock.hub.config.checks import YEAR, file, one_of, seconds, whole
from interlock.hub.config.invalid_value import InvalidValue
from interlock.hub.config.table_lists import Key, ListOf

logger = logging.getLogger("interlock.hub")


@dataclass(frozen=True)
class ServedTable:
    """A table that is served by its name."""

    name: str
    columns: str
    """In the text form that a table keeps: `unread: U32, token: str[32]`."""

    capacity: int
    key_size: int
    ttl: float
    """Default seconds that a row lives; 0 for ever."""

    on_full: str
    writers: int
    mode: str
    """Octal digits."""

    path: str
    """File of the table; empty: in the machine's shared memory, by its name."""

    def table(self) -> dict[str, object]:
        """Return it as a `[[table]]` table with the same meaning."""
        return asdict(self)

    @property
    def identity(self) -> tuple[object, ...]:
        """Settings that every table under this name must share."""
        return self.name, self.columns, self.key_size, self.path

    def describe(self) -> str:
        """Return a line for people."""
        place = self.path or "shared memory"
        return f"table {self.name} in {place}: {self.columns}; capacity {self.capacity}"


class NotServed(Exception):
    """A table cannot be served. `index`: its place in the list."""

    def __init__(self, index: int, table: ServedTable, reason: str) -> None:
        self.index = index
        self.table = table
        super().__init__(reason)


def opened(
    tables: Sequence[ServedTable],
    before: Sequence[ServedTable] = (),
    open_before: _core.HubTables | None = None,
    keepers: Mapping[str, _core.TableKeeper] | None = None,
) -> _core.HubTables:
    """Open tables, or create the missing ones.

    Unchanged tables that were open before stay open. `keepers`: processes that write to tables
    instead of the hub, by table name; unchanged since then.

    Raises:
        NotServed: one has other columns, is not a table, or does not fit.
    """
    found = _core.HubTables()
    known = {table.name: table.identity for table in before}
    for index, table in enumerate(tables):
        if (
            open_before is not None
            and known.get(table.name) == table.identity
            and found.keep(open_before, table.name)
        ):
            continue
        keeper = None if keepers is None else keepers.get(table.name)
        try:
            there = found.open(
                table.name,
                table.path or table.name,
                bool(table.path),
                table.columns,
                table.capacity,
                table.key_size,
                table.ttl or None,
                table.on_full == "evict",
                table.writers,
                int(table.mode, 8),
                keeper,
            )
        except (InterlockError, OSError, ValueError) as error:
            reason = str(error) if not isinstance(error, OSError) else error.strerror or str(error)
            raise NotServed(index, table, " ".join(reason.split())) from None
        # A table that a node keeps grows with its rows.
        capacity = table.capacity if keeper is None else there[0]
        wanted = (capacity, table.on_full == "evict", table.ttl or None)
        if there != wanted:
            capacity, evicts, ttl = there
            logger.warning(
                "table %s exists and keeps the settings of its creator: capacity %d, on_full "
                "%r, ttl %s",
                table.name,
                capacity,
                "evict" if evicts else "raise",
                ttl or 0,
            )
    return found


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or value.startswith("."):
        raise InvalidValue
    if not 1 <= len(value.encode()) <= LONGEST_NAME or any(char in ":/ " for char in value):
        raise InvalidValue
    return value


def _columns(value: object) -> str:
    # Imported here: a hub without tables does not need it.
    from interlock.table.schema import Schema

    try:
        if isinstance(value, type):
            return str(Schema.of(value))
        if not isinstance(value, str):
            raise InvalidValue
        return str(Schema.parse(value))
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidValue):
            raise
        raise InvalidValue("", value, f"{COLUMNS} ({error})") from None


def _mode(value: object) -> str:
    if not isinstance(value, str) or len(value) not in (3, 4) or set(value) - set("01234567"):
        raise InvalidValue
    return value


def _made(values: Mapping[str, Any], _given: frozenset[str]) -> ServedTable:
    return ServedTable(**values)


LONGEST_NAME = 200
COLUMNS = "a text such as `unread: U32, online: bool, token: str[32]`, or a class made from Row"

TABLES = ListOf(
    "table",
    (
        Key(
            "name",
            _name,
            f"a text of up to {LONGEST_NAME} bytes without spaces, colons and slashes, no dot "
            "first",
            "name for clients and in shared memory",
            required=True,
        ),
        Key("columns", _columns, COLUMNS, "columns of the table", required=True),
        Key(
            "capacity",
            whole(1, 2**40),
            f"a whole number of rows, from 1 to {2**40}",
            "number of rows that fit",
            100_000,
        ),
        Key(
            "key_size",
            whole(1, 1024),
            "a whole number of bytes, from 1 to 1024",
            "maximum length of a key",
            32,
        ),
        Key(
            "ttl",
            seconds,
            f"a number of seconds from 0 to {YEAR}",
            "default lifetime of a row; 0: no expiry",
            0.0,
        ),
        Key(
            "on_full",
            one_of("evict", "raise"),
            "evict, raise",
            "when full, overwrite the least recently accessed row, or refuse",
            "evict",
        ),
        Key(
            "writers",
            whole(1, 4095),
            "a whole number from 1 to 4095",
            "maximum number of writing threads, of all processes",
            1024,
        ),
        Key(
            "mode",
            _mode,
            'octal digits such as "660"',
            "file permissions, for who may open it on this machine",
            "600",
        ),
        Key(
            "path",
            file,
            "the path of a file",
            'file of the table; "" for shared memory',
            "",
        ),
    ),
    _made,
    ServedTable,
)
