"""The confirmation before an operation."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from interlock.top.text import one_line

__all__ = ["Confirmation"]


class Confirmation(ModalScreen[bool]):
    """Asks whether to do it; ``y`` for yes, any key that leaves is a no."""

    DEFAULT_CSS = """
    Confirmation { align: center middle; }
    Confirmation > Vertical {
        width: 70; max-width: 90%; height: auto; padding: 1 2;
        border: heavy $warning; background: $surface;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("y", "answer(True)", "yes"),
        ("n,escape,q", "answer(False)", "no"),
    ]

    def __init__(self, question: str, meaning: str) -> None:
        super().__init__()
        self._question, self._meaning = question, meaning

    def compose(self) -> ComposeResult:
        """Lay it out."""
        with Vertical():
            yield Static(Text(one_line(self._question, 200), style="bold"), id="question")
            yield Static(Text(self._meaning))
            yield Static(Text("y: yes    n: no", style="dim"))

    def action_answer(self, yes: bool) -> None:
        """Answer, and close it."""
        self.dismiss(yes)
