"""The tables of PostgreSQL behind one state table, and their partitions.

By time a row is in the partition of the day, or month, of its last change: a row that changes
later moves there, and partitions that are old enough hold nothing that changed since.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from interlock.cluster.database.columns import (
    KEY,
    Dialect,
    changes,
    check_part,
    quoted,
    row_columns,
)
from interlock.errors import SchemaMismatch
from interlock.table.kinds import KINDS
from interlock.table.schema import Schema

DAY = "interlock_day"
DIALECT = Dialect(
    types={kind: rule.postgresql for kind, rule in KINDS.items()},
    wider=(
        ("smallint", "integer", "bigint", "numeric(20,0)", "numeric"),
        ("real", "double precision"),
    ),
    own={
        KEY: "bytea",
        "interlock_alive": "boolean",
        "interlock_expires": "bigint",
        "interlock_forget": "bigint",
        "interlock_epoch": "bigint",
        "interlock_seq": "bigint",
        "interlock_layout": "integer",
        "interlock_state": "bytea",
    },
    can_widen=True,
)


class Tables:
    """The names and statements of one table's tables."""

    def __init__(
        self, url: str, name: str, schema: Schema, partitions: str | None, part: str
    ) -> None:
        self._url = url
        self._part = part
        self.name = name
        self.partitions = partitions
        self.columns = row_columns(schema, DIALECT)
        self.rows = quoted(name)
        self.mark = quoted(f"{name}_mark")
        self.layouts = quoted(f"{name}_layouts")
        self.stage = quoted(f"{name}_stage")
        self._schema = schema

    @property
    def by_time(self) -> bool:
        """A row's partition is that of its last change."""
        return self.partitions is not None and self.partitions.startswith("time:")

    @property
    def types(self) -> dict[str, str]:
        """The columns that are written, with their types, in the order in which they are."""
        day = {DAY: "date"} if self.by_time else {}
        own = {name: kind for name, kind in DIALECT.own.items() if name != KEY}
        return {KEY: "bytea", **day, **self.columns, **own}

    def migrations(self, connection: Any) -> list[str]:
        """Return the statements that make the tables, or bring them to the row's class.

        Raises:
            SchemaMismatch: they cannot be brought there.
        """
        there = dict(
            connection.execute(
                "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
                "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped "
                "ORDER BY attnum",
                (self.rows,),
            ).fetchall()
        )
        if not there:
            return self._new()
        there.pop(DAY, None)
        found = changes(self.name, self._schema, DIALECT, there)
        asked = f"SELECT partitions, part FROM {self.mark}"
        ((partitions, part),) = connection.execute(asked).fetchall()
        check_part(self._url, self.name, part, self._part)
        if self.partitions is None:
            # As it was created.
            self.partitions = partitions or None
        elif self.partitions != partitions:
            raise SchemaMismatch(
                f"{self.name} has partitions {partitions or 'none'!r} in the database, and "
                f"{self.partitions!r} were asked for: copy its rows to a new table for that"
            )
        return found

    def _new(self) -> list[str]:
        primary, by = KEY, ""
        columns = [f"{KEY} bytea NOT NULL"]
        if self.by_time:
            primary, by = f"{KEY}, {DAY}", f" PARTITION BY RANGE ({DAY})"
            columns.append(f"{DAY} date NOT NULL")
        elif self.partitions is not None:
            by = f" PARTITION BY HASH ({KEY})"
        columns += [f"{quoted(name)} {kind}" for name, kind in self.columns.items()]
        columns += [
            f"{name} {kind}" + ("" if name == "interlock_expires" else " NOT NULL")
            for name, kind in DIALECT.own.items()
            if name != KEY
        ]
        columns.append(f"PRIMARY KEY ({primary})")
        found = [f"CREATE TABLE {self.rows} ({', '.join(columns)}){by}"]
        if by and not self.by_time:
            assert self.partitions is not None
            count = int(self.partitions.partition(":")[2])
            found += [
                f"CREATE TABLE {quoted(f'{self.name}_p{n}')} PARTITION OF {self.rows} "
                f"FOR VALUES WITH (MODULUS {count}, REMAINDER {n})"
                for n in range(count)
            ]
        return [
            *found,
            f"CREATE INDEX {quoted(f'{self.name}_forget')} ON {self.rows} (interlock_forget) "
            f"WHERE interlock_forget > 0",
            f"CREATE TABLE {self.mark} (id integer PRIMARY KEY CHECK (id = 1), "
            f"mark text NOT NULL, partitions text NOT NULL, part text NOT NULL)",
            f"INSERT INTO {self.mark} VALUES (1, '{{}}', '{self.partitions or ''}', "
            f"'{self._part}')",
            f"CREATE TABLE {self.layouts} (id serial PRIMARY KEY, layout text NOT NULL UNIQUE)",
        ]

    def day(self, ms: int) -> dt.date:
        """Return the first day of the partition in which a row is that last changed then."""
        day = dt.datetime.fromtimestamp(ms / 1000, dt.UTC).date()
        return day.replace(day=1) if self.partitions == "time:month" else day

    def partition(self, day: dt.date) -> list[str]:
        """Return the statements that make a partition of time."""
        name = quoted(f"{self.name}_p{day:%Y%m%d}")
        days = 1 if self.partitions == "time:day" else 31
        end = day + dt.timedelta(days)
        end = end if days == 1 else end.replace(day=1)
        # Attached afterwards, which lets others read meanwhile.
        return [
            f"CREATE TABLE IF NOT EXISTS {name} (LIKE {self.rows} INCLUDING ALL)",
            f"ALTER TABLE {self.rows} ATTACH PARTITION {name} "
            f"FOR VALUES FROM ('{day}') TO ('{end}')",
        ]

    def upserts(self) -> list[str]:
        """Return the statements that take what is staged over."""
        names = [quoted(name) for name in self.types]
        primary = f"{KEY}, {DAY}" if self.by_time else KEY
        sets = ", ".join(f"{name} = excluded.{name}" for name in names[1:])
        newer = "({0}.interlock_epoch, {0}.interlock_seq)"
        upsert = (
            f"INSERT INTO {self.rows} AS t ({', '.join(names)}) SELECT {', '.join(names)} "
            f"FROM {self.stage} s{{}} ON CONFLICT ({primary}) DO UPDATE SET {sets} "
            f"WHERE {newer.format('excluded')} >= {newer.format('t')}"
        )
        if not self.by_time:
            return [upsert.format("")]
        there = (
            f" WHERE NOT EXISTS (SELECT 1 FROM {self.rows} o WHERE o.{KEY} = s.{KEY} "
            f"AND {newer.format('o')} > {newer.format('s')})"
        )
        return [
            # A staged table is of no known size; each of its rows is looked up.
            "SET LOCAL enable_hashjoin = off",
            "SET LOCAL enable_mergejoin = off",
            f"DELETE FROM {self.rows} t USING {self.stage} s WHERE t.{KEY} = s.{KEY} "
            f"AND t.{DAY} <> s.{DAY} AND {newer.format('t')} <= {newer.format('s')}",
            upsert.format(there),
        ]
