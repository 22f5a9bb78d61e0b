"""The view of the workers: all announced ones, and their handlers."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import DataTable, Static

from interlock.client.wire.worker_directory import state_text
from interlock.errors import InterlockError
from interlock.top.board import Board, WorkerLook
from interlock.top.stacks import Stacks
from interlock.top.text import cell, duration, one_line
from interlock.top.view import Table, View

__all__ = ["WorkersView"]


class WorkersView(View):
    """All workers, and the handlers of the one under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "app.pop_screen", "back"),
        ("k", "stacks", "stacks"),
    ]

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self._seen: list[WorkerLook] = []

    def parts(self) -> ComposeResult:
        """Return both lists."""
        yield Table("workers", WORKER)
        yield Static(Text("its handlers", style="bold"))
        yield Table("running", RUNNING)

    def look(self) -> list[WorkerLook]:
        """Ask for the announcements."""
        return self.board.workers()

    def show(self, seen: list[WorkerLook]) -> None:
        """Show a row for each."""
        self._seen = seen
        self.head(f"{len(seen)} workers" if seen else "no worker has announced itself")
        self.query_one("#workers", Table).show(
            [(f"{one.queue} {one.name}", worker_row(one)) for one in seen]
        )
        self._show_running()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Show the messages of the chosen worker."""
        if event.data_table.id == "workers":
            self._show_running()

    def action_stacks(self) -> None:
        """Ask the worker under the cursor for the stacks of its handlers."""
        found = self._chosen()
        if found is None:
            return
        if not self.app.write:
            self.notify("this view is read-only; start it with --write", severity="warning")
            return
        self.run_worker(self._stacks(found), exit_on_error=False)

    async def _stacks(self, found: WorkerLook) -> None:
        self.notify("asked; it answers within seconds")
        try:
            answer = await asyncio.to_thread(self.board.stacks, found.queue, found.name)
        except InterlockError as error:
            self.notify(one_line(str(error), 300), severity="error", markup=False)
            return
        if answer is None:
            self.notify("it has not answered", severity="warning")
        elif self.is_current:
            self.app.push_screen(Stacks(found.name, answer))

    def _chosen(self) -> WorkerLook | None:
        chosen = self.query_one("#workers", Table).chosen
        return next((one for one in self._seen if f"{one.queue} {one.name}" == chosen), None)

    def _show_running(self) -> None:
        found = self._chosen()
        running = found.said.get("running") if found else None
        rows = [one for one in running if isinstance(one, dict)] if type(running) is list else []
        self.query_one("#running", Table).show(
            [(str(at), running_row(one)) for at, one in enumerate(rows)]
        )


def worker_row(one: WorkerLook) -> list[Text]:
    """Return the cells of a worker, whatever it announced."""
    said = one.said
    running = said.get("running")
    busy = len(running) if isinstance(running, list) else 0
    return [
        cell(one.name), cell(one.queue), cell(said.get("app", "")), cell(state_text(said)),
        cell(f"{busy}/{said.get('concurrency', '')}", right=True),
        cell(said.get("handled", ""), right=True), cell(said.get("failed", ""), right=True),
        cell(duration(one.age)),
    ]  # fmt: skip


def running_row(one: dict[str, Any]) -> list[Text]:
    """Return the cells of a handler."""
    took = one.get("seconds")
    keys = one.get("keys")
    return [
        cell(one.get("id", "")), cell(one.get("task", "")), cell(one.get("queue", "")),
        cell(one_line(", ".join(map(str, keys)), 40) if isinstance(keys, list) else ""),
        cell(one.get("attempt", "")),
        cell(duration(took) if isinstance(took, int | float) else ""),
    ]  # fmt: skip


WORKER = ("worker", "queue", "app", "state", "busy", "handled", "failed", "heard of")
RUNNING = ("id", "task", "queue", "keys", "attempt", "for")
