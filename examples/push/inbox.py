"""Messages for good, and up to which each user has seen them: SQLite here, your database there."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from frames import Message

SCHEMA = """
CREATE TABLE IF NOT EXISTS message (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT UNIQUE NOT NULL,
    user TEXT NOT NULL,
    sender TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS message_of ON message (user, number);
CREATE TABLE IF NOT EXISTS seen (user TEXT PRIMARY KEY, number INTEGER NOT NULL);
"""


class Inbox:
    """One file, opened by every gateway.

    All that is written for a user is written within the user's lane, by one gateway at a time. Each
    method may be repeated: what a killed gateway had half done is done again by another.
    """

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, isolation_level=None, timeout=30)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.executescript(SCHEMA)

    def add(self, id: str, user: str, sender: str, text: str) -> int:
        """Store a message, unless its id is there, and return its number."""
        self._database.execute(
            "INSERT INTO message (id, user, sender, text) VALUES (?, ?, ?, ?) "
            "ON CONFLICT DO NOTHING",
            (id, user, sender, text),
        )
        return self._number("SELECT number FROM message WHERE id = ?", id)

    def after(self, user: str, number: int, limit: int) -> list[Message]:
        """Return a user's messages with higher numbers, in order."""
        rows = self._database.execute(
            "SELECT number, sender, text FROM message WHERE user = ? AND number > ? "
            "ORDER BY number LIMIT ?",
            (user, number, limit),
        )
        return [Message(*row) for row in rows]

    def see(self, user: str, number: int) -> None:
        """Note that a user has seen the messages up to this one, of those there are."""
        self._database.execute(
            "INSERT INTO seen SELECT ?1, min(?2, ifnull(max(number), 0)) FROM message "
            "WHERE user = ?1 "
            "ON CONFLICT (user) DO UPDATE SET number = max(number, excluded.number)",
            (user, number),
        )

    def unread(self, user: str) -> int:
        """Return how many messages a user has not seen."""
        return self._number(
            "SELECT count(*) FROM message WHERE user = ?1 AND number > "
            "ifnull((SELECT number FROM seen WHERE user = ?1), 0)",
            user,
        )

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _number(self, question: str, argument: str) -> int:
        return int(self._database.execute(question, (argument,)).fetchone()[0])
