"""psycopg, loaded when it is first needed: senders on other drivers do without it."""

from __future__ import annotations

import os
import re
from typing import Any

from interlock.client.url import without_password
from interlock.runtime.installation import needs

__all__ = ["SCHEMA", "connect", "connect_options", "database_url", "named_url", "psycopg", "quoted",
           "shown", "sqlstate"]  # fmt: skip

SCHEMA = "interlock"
"""Default name of the schema with the tables."""
URL = "INTERLOCK_POSTGRES_URL"


def psycopg() -> Any:
    """Return the module. Raises ImportError, which says how to install it."""
    try:
        import psycopg as found
    except ImportError as error:
        raise ImportError(
            f"a connection to PostgreSQL needs psycopg: {needs('postgresql')} ({error})"
        ) from None
    return found


def connect(url: str, name: str, **options: Any) -> Any:
    """Return a connection that commits each statement; ``name`` is shown by pg_stat_activity."""
    return psycopg().connect(url, **{**connect_options(name), **options})


def connect_options(name: str) -> dict[str, Any]:
    """Return the options of a connection that commits each statement."""
    return {
        "autocommit": True,
        "application_name": name,
        "connect_timeout": CONNECT_TIMEOUT,
        # Whatever the database has: psycopg gives bytes for the texts of SQL_ASCII.
        "client_encoding": "UTF8",
    }


def sqlstate(error: BaseException | None) -> str | None:
    """Return the code of an error of the server, from any library; None: it has none."""
    # SQLAlchemy and Django wrap the driver's error; its code has another name in each library.
    for one in (error, getattr(error, "orig", None), getattr(error, "__cause__", None)):
        found = one
        while found is not None:
            code = getattr(found, "sqlstate", None) or getattr(found, "pgcode", None)
            if code is not None:
                return str(code)
            found = found.__cause__
    return None


def named_url(url: str | None) -> str | None:
    """Return this URL, or the one in the environment, if there is one."""
    return url or os.environ.get(URL) or None


def database_url(url: str | None) -> str:
    """Return this URL, or the one in the environment. Raises ValueError."""
    found = named_url(url)
    if not found:
        raise ValueError(f"no database is named; give its URL, or set {URL}")
    return found


def quoted(name: str) -> str:
    """Return a name as SQL has it. Raises ValueError."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,39}", name):
        raise ValueError(
            f"schema is {name!r}; allowed: up to 40 letters, digits and underscores, no digit first"
        )
    return f'"{name}"'


def shown(url: str) -> str:
    """Return a URL, or a connection string of PostgreSQL, without its password."""
    return re.sub(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]*)", r"\1***", without_password(url))


CONNECT_TIMEOUT = 10
"""Seconds."""
