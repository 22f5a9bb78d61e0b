"""Batches for workers: settled and leased in one call, and read directly from the reply.

No object is made for a message before it is needed, because most messages are handled and settled
within microseconds: a lease object would cost more than the handler.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from interlock.client.requests.lease_renewal import Grant
from interlock.client.wire import messages as wire
from interlock.watch import handled_are_told, log_handled

if TYPE_CHECKING:
    from interlock.client.faces.queue import RemoteQueue
    from interlock.message import Kind

__all__ = [
    "END",
    "Answer",
    "BatchProgress",
    "LeasedBatch",
    "begin_exchange",
    "exchange",
    "settle",
]


class LeasedBatch:
    """The messages that one call has leased, identified by their positions in its reply."""

    __slots__ = (
        "_place_of", "_renewer", "all_first", "grant", "heads", "leased_at", "places", "queue",
        "received", "reply", "token", "told_from",
    )  # fmt: skip

    def __init__(self, queue: RemoteQueue[Any], leased: wire.Leased, started: float) -> None:
        self.queue = queue
        self.reply = leased.reply
        self.places = leased.places()
        """Positions in the order of the leases."""
        self.token = leased.token
        self.received = time.monotonic()
        self.told_from = self.received if handled_are_told() else None
        """The time of the lease, if the handling of its messages is to be logged."""
        self._place_of: dict[int, int] | None = None
        handle, reply = queue._handle, self.reply
        self.leased_at = min(leased.token, leased.deadline - handle._length)
        """The engine's time, µs. A token equals it unless the clock was ahead before: tokens never
        decrease."""
        self._renewer = renewer = queue._sessions.renewer
        self.grant = Grant(handle, leased, started, renewer, self._ids())
        self.all_first = self._all_first()
        """It is certain that none of its messages was leased before."""
        self.heads = len(self.places) if self.all_first else self._heads()
        """Number of its messages that do not ride behind another one in their run."""
        if leased.alone or not self.all_first:
            for place in self.places:
                if leased.alone or reply[place + wire.ATTEMPT] not in wire.FIRST:
                    # An earlier holder in this process has lost it.
                    id = int(reply[place])
                    self.grant.outlived(renewer.lose(queue.name, id, leased.token), id)

    @property
    def alone(self) -> bool:
        """Its only message must be handled alone; see ``Leased``."""
        return self.grant.alone

    def message(self, place: int) -> wire.Handed:
        """Return the message at this position."""
        return wire.handed(self.reply, place)

    def parts(self, place: int) -> list[bytes]:
        """Return the message at this position as the engine sent it; see ``handed``."""
        reply = self.reply
        keys = int(reply[place + wire.EXCLUSIVE]) + int(reply[place + wire.SHARED])
        return list(reply[place : place + wire.FIELDS + keys])

    def runs(self, places: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Return the positions of messages, each with those that follow it in its run."""
        if self.heads == len(self.places):
            return [(place, []) for place in places]
        found: list[tuple[int, list[int]]] = []
        for place in places:
            if self._rides(place):
                found[-1][1].append(place)
            else:
                found.append((place, []))
        return found

    def message_of(self, id: int) -> wire.Handed:
        """Return the message of this id."""
        if self._place_of is None:
            self._place_of = {int(self.reply[place]): place for place in self.places}
        return self.message(self._place_of[id])

    def is_lost(self, id: int) -> bool:
        """Return whether the lease of this message is known to have expired or been revoked."""
        return self.grant.lost or id not in self.grant.out

    def acking(self, places: Sequence[int]) -> list[wire.Settlement]:
        """Return the settlements of the messages that were handled."""
        token, reply = self.token, self.reply
        return [("ACK", token, reply[place]) for place in places]

    def settled(self, id: int) -> None:
        """Stop renewing a message: it is as good as settled."""
        out = self.grant.out
        out.discard(id)
        if not out:
            self._renewer.let_go(self.grant)

    def all_settled(self) -> None:
        """Stop renewing all its messages: see ``settled``."""
        self.grant.out.clear()
        self._renewer.let_go(self.grant)

    def log_handled(self, message: wire.Handed, seconds: float, task: str = "") -> None:
        """Log that a message was handled in this time, unless it is quiet."""
        if self.told_from is None or message.quiet:
            return
        # A sequence is the server's time at which the message took its position.
        waited = max(self.leased_at - message.sequence, 0) / 1e6
        log_handled(
            self.queue.name, message.id, sorted(message.keys | message.shared),
            message.attempt, waited, seconds, token=self.token, task=task,
        )  # fmt: skip

    def _rides(self, place: int) -> bool:
        return self.reply[place + wire.ATTEMPT].startswith(wire.RIDES)

    def _heads(self) -> int:
        places = self.places
        return len(places) - sum(map(self._rides, places))

    def _ids(self) -> set[int]:
        places = self.places
        if type(places) is range:
            return set(map(int, self.reply[places.start : places.stop : places.step]))
        return {int(self.reply[place]) for place in places}

    def _all_first(self) -> bool:
        """Return whether it is certain that none of its messages was leased before."""
        places = self.places
        if type(places) is not range:
            return False
        attempts = self.reply[places.start + wire.ATTEMPT : places.stop : places.step]
        return attempts.count(b"1") == len(places)


class BatchProgress:
    """The messages of a batch that have not begun, and the one that has.

    They are handled one after another, on one thread, which takes each from ``waiting`` before it
    begins it. Another thread that sees a slow handler, or a shutdown, can therefore take the rest
    at any time: both threads read that queue, and each position comes out of it once. Its last item
    is END: the thread that takes END owns the steps after the batch.
    """

    __slots__ = ("at", "batch", "waiting")

    def __init__(self, batch: LeasedBatch) -> None:
        self.batch = batch
        self.waiting: collections.deque[int] = collections.deque(batch.places)
        self.waiting.append(END)
        self.at = END
        """The message that is being handled, or was last."""

    def rest(self) -> tuple[list[int], bool]:
        """Take the messages that have not begun; return whether END was among them."""
        found: list[int] = []
        while True:
            try:
                at = self.waiting.popleft()
            except IndexError:
                return found, False
            if at == END:
                return found, True
            found.append(at)


Answer = tuple[list[bytes], LeasedBatch | None]
"""The engine's answer to each settlement, and the leases."""


def exchange(
    queue: RemoteQueue[Any],
    settlements: Sequence[wire.Settlement],
    limit: int,
    until: float | None = 0.0,
    kind: str = "any",
) -> Answer:
    """Settle, then lease up to ``limit`` messages, in one round trip.

    Args:
        until: end of the wait for a message, by time.monotonic(); None: no limit.
        kind: as of ``RemoteQueue.get``; with a plus behind it, runs are taken.

    Raises:
        ShutDown: the queue is sealed and empty, or its handle was closed.
        EngineUnavailable: the engine did not answer in time.
    """
    handle = queue._handle
    started = time.monotonic()
    found = queue._run(handle, handle.take, settlements, limit, kind, until)
    return _answer(queue, started, *found)


def begin_exchange(
    queue: RemoteQueue[Any], settlements: Sequence[wire.Settlement], limit: int, kind: Kind = "any"
) -> Callable[[], Answer]:
    """Send ``exchange`` now, without waiting; return the function that takes the answer, once, on
    any thread.

    Until then the leases in the answer have no owner and are not renewed. Raises as ``exchange``.
    """
    handle = queue._handle
    started = time.monotonic()
    rest = queue._sessions.begin(handle, handle.take, settlements, limit, kind, 0.0)
    return lambda: _answer(queue, started, *rest())


def _answer(
    queue: RemoteQueue[Any], started: float, answers: list[bytes], leased: wire.Leased
) -> Answer:
    return answers, LeasedBatch(queue, leased, started) if leased.count else None


def settle(queue: RemoteQueue[Any], settlements: Sequence[wire.Settlement]) -> list[bytes]:
    """Settle in one round trip; raises EngineUnavailable. A closed handle works as well."""
    return queue._run(None, queue._handle.settle, settlements)


END = 0
"""No message begins at this position of a reply."""
