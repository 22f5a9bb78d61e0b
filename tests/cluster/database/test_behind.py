"""The writer of a database, without a database and without a node."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

import pytest

from interlock import _core
from interlock.cluster.database import behind
from interlock.cluster.database.protocol import Database, DatabaseUnavailable, LogMark, SavedRow
from tests.cluster.nodes import eventually


class FullDatabase:
    """Can be read, and refuses the first writes: its disk is full."""

    url = "postgresql://full"

    def __init__(self, refused: int) -> None:
        self.refused = refused
        self.saved: list[SavedRow] = []
        self._mark = LogMark()

    def migrations(self) -> list[str]:
        return []

    def migrate(self) -> None:
        pass

    def mark(self) -> LogMark:
        return self._mark

    def save(self, rows: Sequence[SavedRow], mark: LogMark, before: LogMark) -> bool:
        if self.refused:
            self.refused -= 1
            raise DatabaseUnavailable("No space left on device")
        self.saved += rows
        self._mark = mark
        return True

    def forget(self, now_ms: int, most: int) -> int:
        return 0

    def close(self) -> None:
        pass


class OneRow:
    """A node that has applied one row."""

    def changed(self, since: tuple[int, int, int], most: int, seconds: float) -> Any:
        rows = [(b"k", b"state", 1)] if since[2] < 1 else []
        return (1, 7, 0, 1000, 1), 1, "rows", rows, None


def test_a_full_database_that_can_be_read_is_logged_once_and_written_when_it_has_room(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(behind, "_FIRST", 0.001)
    database = FullDatabase(refused=5)
    writer = behind.WriteBehind(
        [cast(Database, database)], age_ms=1000, takes_all=False, released=lambda: None,
        refused=lambda why: None,
    )  # fmt: skip
    with caplog.at_level(logging.WARNING, "interlock.cluster"):
        writer.start(cast(_core.LogNode, OneRow()))
        try:
            eventually(lambda: bool(database.saved))
            eventually(lambda: writer.figures()[0].error == "")
        finally:
            writer.close()
    assert [row.key for row in database.saved] == [b"k"]
    assert [one.message for one in caplog.records] == [
        "cannot write to the database, rows are waiting: No space left on device"
    ]
