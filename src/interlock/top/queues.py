"""The first view: all queues."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from interlock.runtime.queue_figures import RATED
from interlock.top.board import Look
from interlock.top.queue import QueueView
from interlock.top.text import cell, course, number, one_line
from interlock.top.view import Table, View
from interlock.top.workers import WorkersView

__all__ = ["QueuesView"]


class QueuesView(View):
    """All queues, with their depths, states and rates."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "open", priority=True),
        ("o", "order", "order"),
        ("w", "workers", "workers"),
    ]
    by_depth = True

    def parts(self) -> ComposeResult:
        """Return the table."""
        states = [state.replace("backing_off", "backoff") for state in STATES]
        rates = [f"{name}/s" for name in RATED]
        yield Table("queues", ("queue", "course", "depth", *states, *rates, "closed"))

    def look(self) -> Look:
        """Ask for the counts of all queues."""
        return self.board.look()

    def show(self, seen: Look) -> None:
        """Show a row for each."""
        names = list(seen.stats)
        if self.by_depth:
            names.sort(key=lambda name: (-seen.stats[name]["unsettled"], name))
        rows = []
        for name in names:
            counts, rates = seen.stats[name], seen.rates.get(name, {})
            closed = [word for word in ("paused", "sealed", "full") if counts.get(word)]
            rows.append(
                (
                    name,
                    [
                        cell(one_line(name, NAME)),
                        cell(course(seen.depths[name], COURSE), style="cyan"),
                        number(counts["unsettled"]),
                        *(number(counts.get(state, 0)) for state in STATES),
                        *(number(rates.get(rate)) for rate in RATED), cell(", ".join(closed)),
                    ],
                )
            )  # fmt: skip
        self.query_one(Table).show(rows)
        mode = "" if self.app.write else "  (read-only; --write allows changes)"
        self.head(f"{self.app.url}  {len(names)} queues{mode}")
        self.stalled(f"{name}: {roots.summary}" for name, roots in seen.stalls.items())

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the chosen queue."""
        self.action_open()

    def action_open(self) -> None:
        """Open the queue under the cursor."""
        name = self.query_one(Table).chosen
        if name is not None:
            self.app.push_screen(QueueView(self.board, name))

    def action_order(self) -> None:
        """Change between the order by depth and that by name."""
        self.by_depth = not self.by_depth
        self.refresh_soon()

    def action_workers(self) -> None:
        """Show the workers."""
        self.app.push_screen(WorkersView(self.board))


NAME = 40
"""Characters of a queue's name."""
COURSE = 12
"""Characters of the depth's history."""
STATES = ("delayed", "waiting", "ready", "leased", "backing_off", "held", "parked", "dead")
