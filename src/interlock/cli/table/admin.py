"""`interlock table create`, `list`, `info`, `resize`, `reset`, `remove`: a table as a whole."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag, positive, seconds
from interlock.cli.queue.confirmation import YES, refused
from interlock.cli.table.subcommand import (
    BROKEN,
    attach,
    declare,
    emit,
    failed,
    names,
    place,
    reason,
    schema,
)
from interlock.cli.tables import printable, table
from interlock.table.kinds import NUMBERS, ranges

if TYPE_CHECKING:
    from interlock.table.stats import TableStats
    from interlock.table.table import SharedTable

CAPACITY = Flag("--capacity", "number of rows that fit (100000)", "N", positive, 100_000)
KEY_SIZE = Flag("--key-size", "maximum bytes of a key (32)", "N", positive, 32)
TTL = Flag("--ttl", "default lifetime of a row in seconds (no expiry)", "S", seconds)
ON_FULL = Flag(
    "--on-full", "when full, overwrite the least recently accessed row, or refuse (evict)",
    default="evict", choices=("evict", "raise"),
)  # fmt: skip
ROOM = Flag("--capacity", "number of rows that fit", "N", positive, required=True)
DROP = Flag("--drop", "drop live rows that do not fit")
BAR = 40


def add_to(commands: Any) -> None:
    """Declare the subcommands."""
    declare(
        commands,
        "create",
        create,
        "create a table, or check that it exists with these columns",
        (CAPACITY, KEY_SIZE, TTL, ON_FULL),
        arguments=(
            ("NAME", "the table", None),
            ("COLUMN", "NAME:TYPE, such as unread:U32, background:bool, token:str:32", "+"),
        ),
        about=f"Types are {ranges(NUMBERS)}, bool, str:SIZE and bytes:SIZE.",
    )
    declare(commands, "list", list_all, "list the tables in shared memory", arguments=())
    declare(commands, "info", info, "show columns, load and counters")
    declare(
        commands,
        "resize",
        resize,
        "change the capacity of a table in use",
        (ROOM, DROP),
        about="If the rows do not fit it is refused, unless --drop drops the least recently "
        "accessed ones.",
    )
    declare(commands, "reset", reset, "delete all rows", (YES,))
    declare(
        commands,
        "remove",
        remove,
        "remove a table",
        (YES,),
        about="Programs that have it open keep using it; its memory is freed after the last "
        "one ends.",
    )


def create(given: argparse.Namespace) -> int:
    """Create it."""
    from interlock.table.schema import Schema
    from interlock.table.table import SharedTable

    columns = Schema.parse(", ".join(map(column_text, given.column)))
    made = SharedTable.open(
        place(given.name),
        columns.row(),
        capacity=given.capacity,
        key_size=given.key_size,
        ttl=given.ttl,
        on_full=given.on_full,
    )
    if given.json:
        emit(facts(given.name, made) | {"created": made.created})
    else:
        there = "" if made.created else "  was there"
        print(f"{printable(given.name)}  {made.schema}  capacity {made.capacity:,}{there}")
    return 0


def column_text(word: str) -> str:
    """Return a column in schema form: token:str:32 is token: str[32]."""
    name, _, kind = word.partition(":")
    kind, _, size = kind.partition(":")
    return f"{name}: {kind}[{size}]" if size else f"{name}: {kind}"


def list_all(given: argparse.Namespace) -> int:
    """List the shared memory; foreign and inaccessible entries are listed with the reason."""
    from interlock.errors import InterlockError
    from interlock.table.table import SharedTable

    found: list[tuple[str, int, str]] = []
    for name in names():
        try:
            opened: SharedTable[Any] = SharedTable.attach(name, mode=0o777)
        except FileNotFoundError:
            continue  # removed since
        except (InterlockError, OSError) as error:
            failed(reason(error), BROKEN)
            continue
        if given.json:
            emit(facts(name, opened))
        found.append((name, opened.capacity, opened.schema))
    if not given.json:
        print(table(("table", "capacity", "columns"), found) if found else "no tables")
    return 0


def info(given: argparse.Namespace) -> int:
    """Print everything known about it."""
    opened = attach(given)
    stats = opened.stats()
    if given.json:
        levels = [{"slots": level.slots, "rows": level.rows} for level in stats.levels]
        counts = {name: getattr(stats, name) for name in COUNTS}
        sizes = {"bytes": stats.bytes, "slot_bytes": stats.slot_bytes}
        emit(facts(given.name, opened) | sizes | {"rows": stats.rows, "levels": levels} | counts)
    else:
        print(page(given.name, opened, stats))
    return 0


def facts(name: str, opened: SharedTable[Any]) -> dict[str, Any]:
    """Return the options a table was created with, for JSON."""
    columns = [
        {"name": column.name, "type": column.kind} | ({"size": column.size} if column.size else {})
        for column in schema(opened).columns
    ]
    return {
        "table": name,
        "path": str(opened.path),
        "columns": columns,
        "capacity": opened.capacity,
        "key_size": opened.key_size,
        "ttl": opened.default_ttl,
        "on_full": opened.on_full,
    }


def page(name: str, opened: SharedTable[Any], stats: TableStats) -> str:
    """Return it for people: a bar for each of the four rows of buckets."""
    share = stats.rows / opened.capacity
    lives = "for ever" if opened.default_ttl is None else f"{opened.default_ttl:g} s"
    lines = [
        f"{printable(name)}  {printable(str(opened.path))}  {stats.bytes:,} bytes, "
        f"{stats.slot_bytes:,} per slot",
        f"columns   {opened.schema}",
        f"rows      {stats.rows:,} of {opened.capacity:,} ({share:.1%}); a row lives {lives}",
        "",
    ]
    for number, level in enumerate(stats.levels, 1):
        filled = round(BAR * level.rows / level.slots)
        bar = "#" * filled + "." * (BAR - filled)
        lines.append(f"level {number}   [{bar}] {level.rows:,} of {level.slots:,}")
    lines += ["", table(("what", "count"), [(COUNTS[key], getattr(stats, key)) for key in COUNTS])]
    return "\n".join(lines)


def resize(given: argparse.Namespace) -> int:
    """Resize it."""
    opened = attach(given)
    done = opened.resize(given.capacity, drop=given.drop)
    if given.json:
        counts = {"moved": done.moved, "expired": done.expired, "dropped": done.dropped}
        emit({"table": given.name, "capacity": opened.capacity} | counts)
    else:
        print(
            f"{printable(given.name)}  capacity {opened.capacity:,}  {done.moved:,} rows moved, "
            f"{done.expired:,} expired, {done.dropped:,} dropped"
        )
    return 0


def reset(given: argparse.Namespace) -> int:
    """Delete all rows."""
    opened = attach(given)
    if code := refused(given, f"delete all rows of {given.name}"):
        return code
    deleted = opened.reset()
    if given.json:
        emit({"table": given.name, "deleted": deleted})
    else:
        print(f"{printable(given.name)}  {deleted:,} rows deleted")
    return 0


def remove(given: argparse.Namespace) -> int:
    """Remove it."""
    from interlock.errors import NotATable
    from interlock.table.table import SharedTable

    what = f"remove the table {given.name}"
    try:
        attach(given)
    except NotATable as error:
        # In shared memory its name shows that it is ours, damaged or not; a path may be any file.
        if "/" in given.name:
            raise
        what = f"{error}; remove it"
    if code := refused(given, what):
        return code
    gone = SharedTable.remove(place(given.name))
    if given.json:
        emit({"table": given.name, "removed": gone})
    elif gone:
        print(f"{printable(given.name)}  removed")
    return 0 if gone else failed(f"no table {given.name!r}", BROKEN)


COUNTS = {
    "expired": "expired, in slots not yet reused",
    "moves": "moved to make room",
    "overwritten_expired": "expired, and overwritten",
    "overwritten": "live, and overwritten",
    "retries": "reads repeated",
    "recovered": "interrupted writes of dead writers completed or undone",
    "held": "held just now",
    "writers": "writing threads",
}
