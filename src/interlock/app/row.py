"""The interface of an outbox as an app sees it: a table whose rows are calls of tasks.

A call that was sent through an outbox has a row in it, which its handling deletes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from interlock.app import envelope
    from interlock.retry import Retry
    from interlock.worker.message.execution import Invocation, TaskLease
    from interlock.worker.worker import BesideRelay

__all__ = ["ROW", "AnyOutbox"]

ROW = "interlock-row"
"""The header that names the row of a call, written by the relay."""


class AnyOutbox(Protocol):
    """An outbox; see ``interlock.outbox.Outbox``."""

    def invocation(
        self,
        task: Any,
        hooks: Any,
        retry: Retry,
        lease: TaskLease,
        read: envelope.Envelope,
    ) -> Invocation:
        """Return the invocation of a call that has a row, or whose task takes a transaction."""

    def relay(self, client: Callable[[], Any]) -> BesideRelay:
        """Return the part of a worker that puts the rows into the engine.

        Args:
            client: returns a client of the app's engine, to be closed by the caller.
        """
