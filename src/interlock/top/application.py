"""The application in the terminal: its engine, its interval, and the right to operate."""

from __future__ import annotations

from typing import ClassVar

from textual.app import App
from textual.binding import BindingType

from interlock.top.board import Board
from interlock.top.queues import QueuesView

__all__ = ["Top"]


class Top(App[None]):
    """The view of all queues, in which others are opened."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: 1; padding: 0 1; background: $boost; }
    #trouble, #stalled { display: none; height: auto; padding: 0 1; }
    #states { height: auto; padding: 1; }
    #left { width: 1fr; }
    #right { width: 3fr; }
    #queues, #workers, #held, #dead, #hot, #running { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [("q", "quit", "quit")]

    def __init__(self, board: Board, url: str, *, every: float = 1.0, write: bool = False) -> None:
        """Create it; ``run`` shows it.

        Args:
            url: of the engine, without a password.
            every: seconds between two polls.
            write: messages may be retried, skipped, buried, requeued and discarded.
        """
        super().__init__()
        self.board, self.url, self.every, self.write = board, url, every, write

    def on_mount(self) -> None:
        """Show all queues."""
        self.push_screen(QueuesView(self.board))
