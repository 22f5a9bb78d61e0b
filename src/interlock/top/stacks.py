"""The stacks of a worker's handlers, in its answer to a request."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from interlock.top.text import duration, one_line

__all__ = ["Stacks", "stacks_text"]


class Stacks(ModalScreen[None]):
    """Shows them until it is closed."""

    DEFAULT_CSS = """
    Stacks { align: center middle; }
    Stacks > VerticalScroll {
        width: 90%; height: 80%; padding: 1 2; border: heavy $primary; background: $surface;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [("escape,q", "app.pop_screen", "close")]

    def __init__(self, name: str, answer: object) -> None:
        super().__init__()
        self._worker, self._told = name, answer

    def compose(self) -> ComposeResult:
        """Lay it out."""
        with VerticalScroll():
            yield Static(Text(one_line(self._worker, 200), style="bold"))
            yield Static(stacks_text(self._told), id="stacks")


def stacks_text(answer: object) -> Text:
    """Return an answer as text, in any form."""
    found = answer.get("stacks") if isinstance(answer, dict) else None
    entries = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    text = Text()
    for one in entries:
        text.append(head(one) + "\n", style="bold")
        for line in str(one.get("stack", "")).splitlines():
            text.append(one_line(line, 200) + "\n")
        text.append("\n")
    return text if entries else Text("no handler runs")


def head(one: dict[str, Any]) -> str:
    """Return the first line of a stack."""
    took = one.get("seconds")
    since = f" for {duration(took)}" if isinstance(took, int | float) else ""
    return one_line(f"message {one.get('id', '')} {one.get('task', '')}{since}", 200)
