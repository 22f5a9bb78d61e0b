"""Accounts and a rate in one SQLite file, written as a handler of a keyed message should: fenced.

A handler reads first and writes what it computed later, so a handler that was stopped in between
writes what is long wrong, if nothing keeps it from that. What keeps it is the token of its lease: a
row knows the highest token it was written with and takes no lower one.

What comes of all operations depends on their order: a transfer is refused where the account has too
little, and how much is moved depends on the rate.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ACCOUNTS = 8
EACH = 10_000
"""Cents that an account begins with."""
RATE = "rate"
FIRST_RATE = 100
BUSY_SECONDS = 30.0
"""A process may be stopped while it has the file locked."""


@dataclass(frozen=True)
class Operation:
    """The operation that a message asks for. A barrier asks for nothing."""

    name: str
    """Id within the business: no two operations have the same."""
    kind: str
    """transfer, rate or barrier."""
    source: str = ""
    target: str = ""
    amount: int = 0

    @property
    def keys(self) -> tuple[str, ...]:
        return {"transfer": (self.source, self.target), "rate": (RATE,)}.get(self.kind, ())

    @property
    def shared(self) -> tuple[str, ...]:
        return (RATE,) if self.kind == "transfer" else ()

    def conflicts(self, other: Operation) -> bool:
        """They may not be handled at the same time."""
        if "barrier" in (self.kind, other.kind):
            return True
        mine, its = set(self.keys), set(other.keys)
        return bool(mine & its or mine & set(other.shared) or its & set(self.shared))

    def effect(self, state: dict[str, int]) -> dict[str, int]:
        """The values that it changes, given the state that it finds."""
        if self.kind == "rate":
            return {RATE: self.amount}
        if self.kind == "barrier":
            return {}
        moved = self.amount * state[RATE] // 100
        if state[self.source] < moved:
            return {}
        return {self.source: state[self.source] - moved, self.target: state[self.target] + moved}


class Stale(Exception):
    """The row was written with a higher token: the lease is long lost."""


def names(accounts: int = ACCOUNTS) -> list[str]:
    return [f"account-{number}" for number in range(accounts)]


def first_state(accounts: int = ACCOUNTS) -> dict[str, int]:
    return {**dict.fromkeys(names(accounts), EACH), RATE: FIRST_RATE}


def make(path: Path, accounts: int = ACCOUNTS) -> None:
    with sqlite3.connect(path) as bank:
        bank.execute("CREATE TABLE state (name TEXT PRIMARY KEY, value INT, token INT)")
        bank.execute("CREATE TABLE applied (name TEXT PRIMARY KEY, id INT, token INT)")
        rows = [(name, value, 0) for name, value in first_state(accounts).items()]
        bank.executemany("INSERT INTO state VALUES (?, ?, ?)", rows)
    bank.close()


class Bank:
    """One process's hold of the file."""

    def __init__(self, path: Path, fenced: bool = True) -> None:
        # A crash of the machine is not what is tried here: what the system has is safe.
        self._file = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        self._file.execute("PRAGMA synchronous=OFF")
        self._fenced = fenced

    def apply(self, what: Operation, id: int, token: int, between: Callable[[], None]) -> str:
        """Do it once: `applied`, or `known` if it was done before.

        Args:
            between: called when all is read and nothing is written.

        Raises:
            Stale: it must not be done any more.
        """
        effect = what.effect(self.state())
        between()
        self._file.execute("BEGIN IMMEDIATE")
        try:
            answer = self._write(what, id, token, effect)
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")
        return answer

    def _write(self, what: Operation, id: int, token: int, effect: dict[str, int]) -> str:
        if self._fenced:
            for name in what.keys:
                (stored,) = self._file.execute(
                    "SELECT token FROM state WHERE name=?", (name,)
                ).fetchone()
                if stored > token:
                    raise Stale(f"{name} was written with token {stored}, this is {token}")
            if self._file.execute("SELECT 1 FROM applied WHERE name=?", (what.name,)).fetchone():
                return "known"
        for name in what.keys:
            self._file.execute("UPDATE state SET token=? WHERE name=?", (token, name))
        for name, value in effect.items():
            self._file.execute("UPDATE state SET value=? WHERE name=?", (value, name))
        self._file.execute(
            "INSERT OR REPLACE INTO applied VALUES (?, ?, ?)", (what.name, id, token)
        )
        return "applied"

    def state(self) -> dict[str, int]:
        return dict(self._file.execute("SELECT name, value FROM state").fetchall())

    def applied(self) -> dict[str, int]:
        """The message that each operation was done for."""
        return dict(self._file.execute("SELECT name, id FROM applied").fetchall())

    def close(self) -> None:
        self._file.close()


def operation(said: dict[str, Any]) -> Operation:
    return Operation(**said)
