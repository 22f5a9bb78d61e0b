"""Layouts: how states were laid out when they were written, so that another row's class reads them.

A state has its columns' cells one behind the other. The database keeps the text of each layout that
any of its states has; a state of another one is laid out anew by the names of the columns.
"""

from __future__ import annotations

from collections.abc import Iterable

from interlock._core import StateRules
from interlock.errors import SchemaMismatch


class Layouts:
    """The layouts of one database's states.

    Args:
        url: of the database, for errors.
        found: the numbers and the texts of those that it has.
    """

    def __init__(self, url: str, rules: StateRules, found: Iterable[tuple[int, str]]) -> None:
        self._url = url
        self._rules = rules
        self._others = {number: text for number, text in found if text != rules.layout}

    def __bool__(self) -> bool:
        """Return whether some states need a new layout: then rows are read with theirs."""
        return bool(self._others)

    def relaid(self, rows: Iterable[tuple[bytes, bytes, int]]) -> list[tuple[bytes, bytes]]:
        """Return keys and states as the rules have them.

        Raises:
            SchemaMismatch: a column cannot hold its value any more.
        """
        return [(key, self._state(key, state, layout)) for key, state, layout in rows]

    def _state(self, key: bytes, state: bytes, number: int) -> bytes:
        layout = self._others.get(number)
        if layout is None:
            return state
        try:
            return self._rules.relaid(layout, state)
        except ValueError as error:
            raise SchemaMismatch(
                f"{self._url}: row {key!r} was written with columns {layout}: {error}. Give the "
                f"column its former type, or change the row first"
            ) from None
