"""The names of the tasks that a queue's messages call, for display."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.cli.queue import show

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator
    from interlock.client.wire.records import Stored
    from interlock.explanation import ExplainNode


class Called:
    """Fetches messages, each once, until their payloads reach a bound."""

    def __init__(self, operator: Operator, queue: str) -> None:
        self._operator = operator
        self._queue = queue
        self._known: dict[int, Stored | None] = {}
        self._left = MOST_BYTES

    def name(self, node: ExplainNode) -> str:
        """Return the name of the task that a message calls, for people; empty if it calls none."""
        return self.task(node.id) or ""

    def task(self, id: int) -> str | None:
        """Return the task that a message calls; None if it calls none, or was not fetched."""
        message = self._message(id)
        return task_of(message.payload) if message is not None else None

    def keys(self, node: ExplainNode) -> str:
        """Return a message's keys on one line; empty if it has none, or was not fetched."""
        message = self._message(node.id)
        return show.keys_text(message.keys, message.shared) if message is not None else ""

    def _message(self, id: int) -> Stored | None:
        if id not in self._known and self._left > 0:
            found = self._known[id] = self._operator.peek(self._queue, id)
            self._left -= len(found.payload) if found is not None else 0
        return self._known.get(id)


def task_of(payload: bytes) -> str | None:
    """Return the task that a payload calls; None if it is not a call."""
    from interlock.app import envelope
    from interlock.errors import PayloadError

    try:
        return envelope.read(payload).task
    except PayloadError:
        return None


MOST_BYTES = 16_000_000
"""Bytes of payloads: each message is fetched with its own."""
