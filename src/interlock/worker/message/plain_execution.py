"""A plain call that a process of a pool handles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.client.wire import messages as wire
from interlock.retry import Retry
from interlock.worker.message.execution import Execution, TaskLease, lease_at
from interlock.worker.message.tasks import PlainCall

if TYPE_CHECKING:
    from interlock.client.faces.batch import LeasedBatch
    from interlock.worker.message.source import Source

__all__ = ["PlainExecution"]


class PlainExecution(Execution):
    """A plain call for a process of a pool, which gets the message as the engine sent it.

    The worker decodes nothing of it but its id. Its lease is made on request, as for a log line;
    most messages are handled and settled without. Only the process has its ``invocation``.
    """

    __slots__ = ("_held", "call", "id", "place")

    def __init__(
        self, batch: LeasedBatch, place: int, call: PlainCall, source: Source, offered: float
    ) -> None:
        self.batch, self.place, self.call, self.source = batch, place, call, source
        self.id = int(batch.reply[place])
        self.offered = offered
        self.started = self.ended = self.at = None
        self.number = 0
        self._held: TaskLease | None = None
        self._unclaimed = [None]

    @property
    def held(self) -> TaskLease:  # type: ignore[override]
        """The lease; the same object each time."""
        if self._held is None:
            held = lease_at(self.source.name, self.batch, self.place)
            held.task = self.call.task
            self._held = held
        return self._held

    @property
    def timeout(self) -> None:
        """See ``Execution``: a plain call has none."""
        return

    @property
    def retry(self) -> Retry:
        """See ``Execution``."""
        return self.call.retry

    @property
    def size(self) -> int:
        """See ``Execution``."""
        return len(self.batch.reply[self.place + wire.PAYLOAD])

    @property
    def over(self) -> bool:
        """See ``Execution``."""
        return self._held is not None and self._held._over

    @property
    def lost(self) -> bool:
        """See ``Execution``."""
        return self.over or self.batch.is_lost(self.id)

    def acking(self) -> wire.Settlement:
        """Return the settlement of the message once its handler has returned; the message is no
        longer renewed."""
        self.batch.settled(self.id)
        return ("ACK", self.batch.token, self.batch.reply[self.place])
