"""The base of all views: a screen that is refreshed repeatedly, without delaying keys."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Static

from interlock.errors import InterlockError
from interlock.top.board import Board
from interlock.top.text import one_line

if TYPE_CHECKING:
    from interlock.top.application import Top

__all__ = ["Table", "View"]

_log = logging.getLogger("interlock.top")


class Table(DataTable[Text]):
    """A table whose rows are refreshed: the cursor stays on its row."""

    def __init__(self, id: str, columns: Sequence[str]) -> None:
        super().__init__(id=id, cursor_type="row", zebra_stripes=True)
        for column in columns:
            self.add_column(Text(column), key=column)

    @property
    def chosen(self) -> str | None:
        """The key of the row with the cursor."""
        if not self.row_count or self.cursor_row >= self.row_count:
            return None
        return self.coordinate_to_cell_key((self.cursor_row, 0)).row_key.value  # type: ignore[arg-type]

    def show(self, rows: Sequence[tuple[str, Sequence[Text]]]) -> None:
        """Show these rows, each with its key."""
        known = [key.value for key in self.rows]
        if known == [key for key, _ in rows]:
            columns = list(self.columns)
            for key, cells in rows:
                for column, cell in zip(columns, cells, strict=True):
                    if self.get_cell(key, column) != cell:
                        self.update_cell(key, column, cell, update_width=True)
            return
        chosen, line = self.chosen, self.cursor_row
        self.clear()
        for key, cells in rows:
            self.add_row(*cells, key=key)
        names = [key for key, _ in rows]
        if names:
            self.move_cursor(row=names.index(chosen) if chosen in names else line)


class View(Screen[None]):
    """A view of an engine: ``look`` polls, on a thread, and ``show`` shows the answer."""

    app: Top
    BINDINGS: ClassVar[list[BindingType]] = [("q", "app.quit", "quit")]

    def __init__(self, board: Board) -> None:
        super().__init__()
        self.board = board
        self._busy = asyncio.Lock()

    def compose(self) -> ComposeResult:
        """Lay it out: a head, the parts of the view, the keys."""
        yield Static(id="head")
        yield Static(id="stalled")
        yield from self.parts()
        yield Static(id="trouble")
        yield Footer()

    def parts(self) -> ComposeResult:
        """Return the widgets between head and foot."""
        raise NotImplementedError

    def look(self) -> Any:
        """Poll the engine; on a thread."""
        raise NotImplementedError

    def show(self, seen: Any) -> None:
        """Show the answer."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """Start polling."""
        self.set_interval(self.app.every, self.refresh_soon)
        self.refresh_soon()

    def on_screen_resume(self) -> None:
        """Poll immediately when it is on top again."""
        self.refresh_soon()

    def refresh_soon(self) -> None:
        """Poll, unless it is hidden or a poll is under way."""
        if self.is_current and not self._busy.locked():
            # A coroutine made here would be left over where the screen ends before its worker
            # runs. mypy cannot choose between the two kinds of functions allowed.
            self.run_worker(self.refresh_now, exit_on_error=False)  # type: ignore[arg-type]

    async def refresh_now(self) -> None:
        """Poll now, and show the answer."""
        async with self._busy:
            try:
                seen = await asyncio.to_thread(self.look)
            except InterlockError as error:
                self.trouble(str(error))
                return
            except Exception as error:
                _log.exception("the view could not query the engine")
                self.trouble(f"{type(error).__name__}: {error}")
                return
            if self.is_attached:
                self.trouble("")
                self.show(seen)

    def head(self, text: str) -> None:
        """Set the first line."""
        self.query_one("#head", Static).update(Text(one_line(text, 300), style="bold"))

    def stalled(self, lines: Iterable[str]) -> None:
        """Show the roots, a line each; empty if nothing is blocked."""
        text = "\n".join(f"stalled: {one_line(line, 200)}" for line in lines)
        line = self.query_one("#stalled", Static)
        line.display = bool(text)
        line.update(Text(text, style="bold red"))

    def trouble(self, text: str) -> None:
        """Show an error; an empty text clears it."""
        line = self.query_one("#trouble", Static)
        line.display = bool(text)
        line.update(Text(one_line(text, 500), style="bold red"))
