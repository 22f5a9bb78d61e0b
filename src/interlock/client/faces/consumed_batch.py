"""A batch of ``RemoteQueue.consume`` while its handler runs, and the watcher of such batches."""

from __future__ import annotations

import contextlib
import logging
import queue as _queue
import threading
import time
from typing import TYPE_CHECKING, Any

from interlock.client.faces import handler_time
from interlock.client.faces.batch import END, BatchProgress, LeasedBatch, settle
from interlock.client.faces.lease import RemoteLease
from interlock.client.wire import messages as wire
from interlock.errors import InterlockError
from interlock.failure import text_of

if TYPE_CHECKING:
    from interlock.client.faces.queue import RemoteQueue

__all__ = ["NOTHING", "BatchWatch", "ConsumedBatch"]

_log = logging.getLogger("interlock.worker")

NOTHING = object()
"""Stands for a missing payload: there is nothing to handle."""


class ConsumedBatch(BatchProgress):
    """A batch that one thread of a consumer handles."""

    __slots__ = ("_began", "_leases", "_queue", "_taken", "settled")

    def __init__(self, queue: RemoteQueue[Any], batch: LeasedBatch) -> None:
        super().__init__(batch)
        self.settled: list[wire.Settlement] = []
        """Settlements of the handled messages."""
        self._queue = queue
        self._leases: dict[int, RemoteLease[Any]] = {}
        self._taken: _queue.SimpleQueue[int] = _queue.SimpleQueue()
        self._began = 0.0

    def next(self) -> int | None:
        """Take the next message; None: the batch is empty, or another thread has taken the rest."""
        try:
            at = self.waiting.popleft()
        except IndexError:
            # The taker has sent this many of the settlements.
            taken = self._taken.get()
            del self.settled[:taken]
            return None
        if at == END:
            return None
        self.at = at
        return at

    def payload(self, at: int) -> Any:
        """Return the payload of a message. NOTHING: it is lost, or undecodable and settled."""
        batch, handle = self.batch, self._queue._handle
        id = int(batch.reply[at])
        if batch.is_lost(id):
            return NOTHING
        if batch.told_from is not None:
            self._began = time.monotonic()
        try:
            return handle.codec.decode(batch.reply[at + wire.PAYLOAD], id)
        except BaseException as error:
            # A decoder is foreign code, and may raise exceptions that would end a thread.
            handle.log_spoilt(batch.message(at), error)
            self.settled.append(wire.nacking(batch.token, id, None, text_of(error)))
            return NOTHING

    def lease(self, at: int) -> RemoteLease[Any]:
        """Return the lease of a message, made on demand; the same object each time."""
        found = self._leases.get(at)
        if found is None:
            message, handle = self.batch.message(at), self._queue._handle
            payload = handle.codec.decode(message.payload, message.id)
            found = RemoteLease(self._queue, self.batch.grant, message, payload)
            found = self._leases.setdefault(at, found)
        return found

    def handled(self, at: int) -> None:
        """Note the settlement of a message whose handler has returned."""
        batch = self.batch
        if self._leases and at in self._leases:
            self.settled.append(self._leases[at].acking(log=False))
        else:
            self.settled.append(("ACK", batch.token, batch.reply[at]))
        if batch.told_from is not None:
            batch.log_handled(batch.message(at), time.monotonic() - self._began)

    def release_rest(self) -> None:
        """Release the messages that have not begun, with the settlements so far."""
        rest, mine = self.rest()
        self.settled += self._releasing(rest)
        if mine:
            self.waiting.append(END)

    def settlements(self) -> list[wire.Settlement]:
        """Return the settlements at the end; none of the messages is renewed any longer."""
        self.batch.all_settled()
        return self.settled

    def take_rest(self) -> list[wire.Settlement]:
        """Take the settlements so far while one message is handled, for another thread.

        Messages without a settlement are still renewed.
        """
        rest, mine = self.rest()
        if not mine:
            return []
        found = self.settled[:]
        self._taken.put(len(found))
        return found + self._releasing(rest)

    def _releasing(self, rest: list[int]) -> list[wire.Settlement]:
        token, reply = self.batch.token, self.batch.reply
        return [wire.releasing(token, int(reply[at])) for at in rest]


class BatchWatch:
    """Watches the batches of a consumer: if one message takes long, the rest of its batch is
    returned. Its thread starts with the first batch of several messages."""

    def __init__(self, queue: RemoteQueue[Any]) -> None:
        self._queue = queue
        self._bell: _queue.SimpleQueue[bool] = _queue.SimpleQueue()
        self._running: dict[int, ConsumedBatch] = {}
        self._thread: threading.Thread | None = None
        self._asleep = False

    def begin(self, run: ConsumedBatch) -> None:
        """Watch a batch that is about to run."""
        self._running[id(run)] = run
        if self._thread is None:
            name = f"{self._queue.name}-batches"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        elif self._asleep:
            self._bell.put(True)

    def end(self, run: ConsumedBatch) -> None:
        """Stop watching a batch: it has ended."""
        self._running.pop(id(run), None)

    def stop(self) -> None:
        """End the thread; no further batch runs."""
        self._bell.put(False)

    def _run(self) -> None:
        seen: dict[int, tuple[int, float]] = {}
        while True:
            # Announced first: a batch that begins from here on rings.
            self._asleep = True
            wait = handler_time.LOOK if self._running else None
            if wait is not None:
                self._asleep = False
            with contextlib.suppress(_queue.Empty):
                if not self._bell.get(timeout=wait):
                    return
            self._asleep = False
            seen = self._look(seen)

    def _look(self, seen: dict[int, tuple[int, float]]) -> dict[int, tuple[int, float]]:
        now = time.monotonic()
        found: dict[int, tuple[int, float]] = {}
        for key, run in list(self._running.items()):
            at, since = seen.get(key, (END, now))
            if at != run.at:
                since = now
            found[key] = (run.at, since)
            if run.at and now - since > handler_time.LATE:
                settlements = run.take_rest()
                if settlements:
                    self._settle(settlements)
        return found

    def _settle(self, settlements: list[wire.Settlement]) -> None:
        try:
            settle(self._queue, settlements)
        except InterlockError as error:
            # Their leases expire by themselves.
            _log.warning("queue %r: a batch could not be returned: %s", self._queue.name, error)
