"""Statements on the connections of several libraries: one query, one row.

Statements have ``{}`` for each value; each library gets the placeholders that it takes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["aone", "one"]

Row = Sequence[Any] | None


def one(db: Any, statement: str, values: Sequence[Any]) -> Row:
    """Run a statement on a synchronous connection; return its first row, if there is one.

    Args:
        db: a connection, cursor or session of psycopg, psycopg2, sqlite3 or SQLAlchemy, or
            Django's ``connection``.

    Raises TypeError if it is something else, or asynchronous.
    """
    found = _run(db, statement, values)
    if inspect.isawaitable(found):
        if inspect.iscoroutine(found):
            found.close()
        raise TypeError(
            f"{_name(db)} is asynchronous; await asend(), or give a synchronous connection"
        )
    row: Row = found
    return row


async def aone(db: Any, statement: str, values: Sequence[Any]) -> Row:
    """Run a statement on an asynchronous connection; return its first row, if there is one.

    Args:
        db: a connection or cursor of psycopg or aiosqlite, a connection of asyncpg, or a connection
            or session of SQLAlchemy.

    Raises TypeError if it is something else, or synchronous.
    """
    found = _run(db, statement, values, blocking=False)
    if not inspect.isawaitable(found):
        raise TypeError(f"{_name(db)} is synchronous; call send(), or give an asynchronous one")
    row: Row = await found
    return row


def _run(db: Any, statement: str, values: Sequence[Any], blocking: bool = True) -> Any:
    # By the module of the class, so that no library is imported for this.
    modules = {each.__module__.partition(".")[0] for each in type(db).__mro__}
    if "sqlalchemy" in modules:
        return _sqlalchemy(db, statement, values, blocking)
    if "asyncpg" in modules:
        numbered = (f"${number}" for number, _ in enumerate(values, start=1))
        return db.fetchrow(statement.format(*numbered), *values)
    cursor: Callable[..., Any] | None = getattr(db, "cursor", None)
    if "psycopg" in modules:
        from psycopg.rows import tuple_row

        connection = db if cursor is not None else db.connection
        made = connection.cursor(row_factory=tuple_row)
        text = statement.format(*["%s"] * len(values))
        if inspect.iscoroutinefunction(made.execute):
            return _awaited(made, text, values)
        if not blocking:
            return None
        return made.execute(text, values).fetchone()
    if "aiosqlite" in modules:
        connection = db if cursor is not None else db._conn
        return _fetched(connection, statement.format(*["?"] * len(values)), values)
    mark = "?" if "sqlite3" in modules else "%s"
    if cursor is None and hasattr(db, "execute") and hasattr(db, "connection"):
        # A cursor of the DB-API, or of Django.
        cursor = db.connection.cursor
    if cursor is None:
        raise TypeError(
            f"{_name(db)} is given; allowed: a connection, cursor or session of psycopg, asyncpg, "
            "sqlite3, aiosqlite, SQLAlchemy or Django"
        )
    if not blocking:
        return None
    made = cursor()
    # Whatever the program made of the rows of its own cursors.
    if mark == "?":
        made.row_factory = None
    try:
        made.execute(statement.format(*[mark] * len(values)), list(values))
        return made.fetchone()
    finally:
        made.close()


def _sqlalchemy(db: Any, statement: str, values: Sequence[Any], blocking: bool) -> Any:
    from sqlalchemy import text

    names = [f"v{number}" for number, _ in enumerate(values)]
    # Escaped: text() would take a cast for a parameter.
    query = text(statement.replace("::", r"\:\:").format(*(f":{name}" for name in names)))
    given = dict(zip(names, values, strict=True))
    if inspect.iscoroutinefunction(db.execute):
        return _first(db, query, given)
    return db.execute(query, given).first() if blocking else None


async def _first(db: Any, query: Any, given: dict[str, Any]) -> Any:
    return (await db.execute(query, given)).first()


async def _awaited(cursor: Any, text: str, values: Sequence[Any]) -> Any:
    return await (await cursor.execute(text, values)).fetchone()


async def _fetched(connection: Any, text: str, values: Sequence[Any]) -> Any:
    rows = list(await connection.execute_fetchall(text, values))
    return rows[0] if rows else None


def _name(db: Any) -> str:
    return f"{type(db).__module__}.{type(db).__qualname__}"
