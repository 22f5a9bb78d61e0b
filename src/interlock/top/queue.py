"""The view of one queue: states, hot keys, held and dead messages, and operations on them."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Static

from interlock.errors import InterlockError
from interlock.runtime.queue_figures import RATED
from interlock.top.board import ACTIONS, Action, Board, Entry, QueueLook
from interlock.top.confirmation import Confirmation
from interlock.top.text import cell, keys, number, one_line
from interlock.top.view import Table, View

__all__ = ["QueueView"]


class QueueView(View):
    """One queue."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "app.pop_screen", "back"),
        ("tab", "app.focus_next", "next list"),
        ("r", "act('r')", "retry, requeue"),
        ("s", "act('s')", "skip"),
        ("b", "act('b')", "bury"),
        ("x", "act('x')", "discard"),
    ]

    def __init__(self, board: Board, name: str) -> None:
        super().__init__(board)
        self.queue = name

    def parts(self) -> ComposeResult:
        """Return its lists."""
        yield Static(id="states")
        with Horizontal():
            with Vertical(id="left"):
                yield Static(Text("hot keys", style="bold"))
                yield Table("hot", ("key", "depth"))
            with Vertical(id="right"):
                yield Static(Text("held", style="bold"))
                yield Table("held", ENTRY)
                yield Static(Text("dead", style="bold"))
                yield Table("dead", ENTRY)

    def look(self) -> QueueLook:
        """Poll the engine for all of it."""
        return self.board.queue(self.queue)

    def show(self, seen: QueueLook) -> None:
        """Show it."""
        counts = seen.stats
        closed = f"  {seen.paused} paused" if seen.paused else ""
        closed += "".join(f"  {word}" for word in ("sealed", "full") if counts.get(word))
        self.head(f"{self.queue}  {counts['unsettled']:,} messages{closed}")
        self.stalled(map(str, seen.stall or ()))
        states = [f"{name.replace('_', ' ')} {counts[name]:,}" for name in STATES]
        totals = [f"{name} {counts[name]:,}" for name in RATED]
        text = Text("   ".join(states) + "\n")
        text.append("   ".join(totals), style="dim")
        self.query_one("#states", Static).update(text)
        self.query_one("#hot", Table).show(
            [(key.hex(), [cell(keys([key])), number(depth)]) for key, depth in seen.hot]
        )
        for name, entries in (("held", seen.held), ("dead", seen.dead)):
            self.query_one(f"#{name}", Table).show([(str(one.id), row(one)) for one in entries])

    def action_act(self, key: str) -> None:
        """Ask for confirmation of the key's operation on the message under the cursor."""
        table = self.focused
        if not isinstance(table, Table) or table.id not in ("held", "dead"):
            self.notify("select a held or dead message first")
            return
        action = next((one for one in ACTIONS if (one.key, one.of) == (key, table.id)), None)
        if action is None:
            words = ", ".join(f"{one.key} {one.word}" for one in ACTIONS if one.of == table.id)
            self.notify(f"not for what is {table.id}; allowed: {words}")
            return
        if table.chosen is None:
            return
        if not self.app.write:
            self.notify("this view is read-only; start it with --write", severity="warning")
            return
        self.run_worker(self._confirmed(action, int(table.chosen)), exit_on_error=False)

    async def _confirmed(self, action: Action, id: int) -> None:
        question = f"{action.word.capitalize()} message {id} of {self.queue}?"
        meaning = f"{action.meaning[:1].upper()}{action.meaning[1:]}."
        if not await self.app.push_screen_wait(Confirmation(question, meaning)):
            return
        try:
            done = await asyncio.to_thread(self.board.act, action, self.queue, id)
        except InterlockError as error:
            self.notify(one_line(str(error), 300), severity="error", markup=False)
            return
        if done:
            self.notify(f"{action.word}: message {id}")
        else:
            self.notify(f"message {id} is not {action.of} any more", severity="warning")
        await self.refresh_now()


def row(one: Entry) -> list[Text]:
    """Return the cells of a message."""
    return [cell(one.id), cell(one.task), cell(keys(one.keys)), number(one.attempt),
            cell(one.error)]  # fmt: skip


STATES = ("delayed", "waiting", "ready", "leased", "backing_off", "held", "parked", "dead")
ENTRY = ("id", "task", "keys", "attempt", "error")
