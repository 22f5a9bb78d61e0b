"""Takes from one queue for the handlers that are idle, and settles what they have done.

One call does both as long as there is work: what was settled since the last call goes out with the
request for more. When the queue has nothing, the feeder waits there for work, and settlements go
out by a second thread at once.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from interlock.errors import EngineUnavailable, InterlockError, LeaseLost, ShutDown
from interlock.worker.handle import Outcome
from interlock.worker.work import details

if TYPE_CHECKING:
    from interlock.worker.slots import Slots

__all__ = ["Feeder"]

_log = logging.getLogger("interlock.worker")


class Feeder:
    """One queue of a worker."""

    def __init__(
        self,
        name: str,
        queue: Any,
        slots: Slots,
        dispatch: Callable[[Feeder, Sequence[Any], bool], int],
        broken: Callable[[BaseException], None],
        lease: float,
    ) -> None:
        """``dispatch`` is given leases, and whether they are to be given back unbegun; it answers
        how many of them take no place in the pool. ``lease``: how many seconds they last."""
        self.name = name
        self.handed = 0
        """Messages that were leased."""
        self.lost = 0
        """Settlements that came too late."""
        self.connected = threading.Event()
        self._queue = queue
        self._slots = slots
        self._dispatch = dispatch
        self._lease = lease
        self._broken = broken
        self._bell = threading.Condition(slots.lock)
        self._settler_bell = threading.Condition(slots.lock)
        self._pending: list[tuple[Any, Outcome, Any]] = []
        self._parked = False
        self._away = False
        """The thread that takes runs a handler."""
        self._stopping = False
        self._ended = False
        self._failures = 0
        self.full: Callable[[], bool] = lambda: False
        """Whether so much is set aside that nothing more should be leased."""
        self.work: Callable[[], None] = lambda: None
        """Handles what was handed out, where that is not done by other threads."""
        self._threads = [
            threading.Thread(target=self._guard, args=(run,), name=f"interlock-{what}-{name}",
                             daemon=True)
            for what, run in (("feed", self._feed), ("settle", self._settle_while_parked))
        ]  # fmt: skip

    def start(self) -> None:
        """Begins to take."""
        for thread in self._threads:
            thread.start()

    def settle(self, lease: Any, held: Any, outcome: Outcome, ring: bool = True) -> None:
        """Queues a settlement: it goes out with the next call, or at once while the feeder waits
        for work. Without ``ring`` whoever settles sees to that with ``ring_to_settle``."""
        try:
            settlement = outcome.settlement(lease)
        except LeaseLost as lost:
            # Revoked, or run out while the handler ran: somebody decided already.
            self.lost += 1
            _log.warning("%s", lost, extra=details(held))
            return
        with self._slots.lock:
            self._pending.append((held, outcome, settlement))
            if ring:
                self._ring()

    def ring_to_settle(self) -> None:
        """What was queued without a ring goes out."""
        if self._pending:
            with self._slots.lock:
                self._ring()

    def _ring(self) -> None:
        elsewhere = self._parked or self._away or self._stopping
        (self._settler_bell if elsewhere else self._bell).notify()

    def ring(self) -> None:
        """There may be something to do."""
        with self._slots.lock:
            self._bell.notify()

    def stop(self) -> None:
        """Takes no more; a call that waits for work ends now. Settling goes on."""
        with self._slots.lock:
            self._stopping = True
            if self._parked:
                # Only then: a call that settles must not be cut.
                self._queue.close()
            self._bell.notify()
            self._settler_bell.notify()

    def flush(self, timeout: float) -> bool:
        """Ends the threads; waits until all that was to be settled is. After ``stop``."""
        with self._slots.lock:
            self._ended = True
            self._settler_bell.notify()
        until = time.monotonic() + timeout
        # A handler that was given up may keep the thread that takes.
        while self._takes() and time.monotonic() < until:
            self._threads[0].join(0.05)
        self._threads[1].join(max(0.0, until - time.monotonic()))
        return not self._pending and not self._takes() and not self._threads[1].is_alive()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """While the thread that takes runs a handler: what is settled meanwhile goes out by the
        other one."""
        with self._slots.lock:
            self._away = True
            if self._pending:
                self._settler_bell.notify()
        try:
            yield
        finally:
            # What is settled from here on goes out with the next call.
            self._away = False

    def _takes(self) -> bool:
        return self._threads[0].is_alive() and not self._away

    # -- The thread that takes --------------------------------------------------------------------

    def _feed(self) -> None:
        while True:
            self.work()
            work = self._next_call()
            if work is None:
                return
            pending, places = work
            began = time.monotonic()
            leases = self._exchange(pending, places)
            self._handed_out(leases, places, began)
            if not leases and not self._stopping:
                self._wait_for_work()

    def _next_call(self) -> tuple[list[tuple[Any, Outcome, Any]], int] | None:
        with self._slots.lock:
            while not self._stopping:
                places = 0 if self.full() else self._slots.take(self._bell)
                if places or self._pending:
                    return self._taken(), places
                self._bell.wait()
            return None

    def _exchange(self, pending: list[tuple[Any, Outcome, Any]], places: int) -> Sequence[Any]:
        settlements = [settlement for _, _, settlement in pending]
        try:
            if not places:
                answers, leases = self._queue.settle(settlements), ()
            else:
                answers, leases = self._queue.exchange(settlements, places, False)
        except ShutDown:
            return ()
        except EngineUnavailable as error:
            self._again(pending, error)
            return ()
        self._reached()
        self._told(pending, answers)
        return tuple(leases)

    def _wait_for_work(self) -> None:
        with self._slots.lock:
            if self._pending or self._stopping or self.full():
                return
            places = self._slots.take(self._bell, to_wait=True)
            if not places:
                return
            self._parked = True
        leases: Sequence[Any] = ()
        began = time.monotonic()
        try:
            wait = TIGHT_WAIT if self._slots.tight else min(LONGEST_WAIT, self._lease / 3)
            _, leases = self._queue.exchange((), places, True, wait)
            self._reached()
        except ShutDown:
            # Sealed and drained. It may be opened again.
            self._nap(SEALED_WAIT)
        except EngineUnavailable as error:
            self._again([], error)
        finally:
            with self._slots.lock:
                self._parked = False
            self._handed_out(leases, places, began)

    def _handed_out(self, leases: Sequence[Any], places: int, began: float) -> None:
        self.handed += len(leases)
        unused = places - len(leases)
        if leases:
            # No call waits so long: this process was frozen, and so are these leases perhaps over.
            late = time.monotonic() - began > self._lease
            unused += self._dispatch(self, leases, late)
        with self._slots.lock:
            self._slots.give(unused)

    # -- The thread that settles while the other one waits ----------------------------------------

    def _settle_while_parked(self) -> None:
        while True:
            with self._slots.lock:
                while not self._mine():
                    if self._ended and not self._takes():
                        if not self._pending:
                            return
                        break
                    # The other thread's end rings no bell.
                    self._settler_bell.wait(0.05 if self._ended else None)
                pending = self._taken()
            try:
                answers = self._queue.settle([settlement for _, _, settlement in pending])
            except ShutDown:
                continue
            except EngineUnavailable as error:
                self._again(pending, error)
                if self._ended:
                    return
                continue
            self._told(pending, answers)

    def _taken(self) -> list[tuple[Any, Outcome, Any]]:
        """As many settlements as one call takes; with the lock held."""
        pending, self._pending = self._pending[:MOST_SETTLED], self._pending[MOST_SETTLED:]
        return pending

    def _mine(self) -> bool:
        return bool(self._pending) and (self._parked or self._away or self._stopping)

    # -- What both need ---------------------------------------------------------------------------

    def _told(self, pending: Sequence[tuple[Any, Outcome, Any]], answers: Sequence[str]) -> None:
        for (held, outcome, _), answer in zip(pending, answers, strict=True):
            if answer == outcome.expected:
                continue
            if answer == "lost":
                self.lost += 1
                _log.warning(
                    "the lease of message %d in queue %r was lost before it was settled; another "
                    "handles it, or has",
                    held.id, held.queue, extra=details(held),
                )  # fmt: skip
            elif answer in ("dead", "held"):
                _log.error(
                    "message %d in queue %r is %s: its attempts are used up, by the policy it was "
                    "sent with",
                    held.id, held.queue, answer, extra=details(held),
                )  # fmt: skip

    def _reached(self) -> None:
        if self._failures:
            _log.warning("queue %r: the engine is there again", self.name)
            self._failures = 0
        if not self.connected.is_set():
            self.connected.set()

    def _again(self, pending: list[tuple[Any, Outcome, Any]], error: BaseException) -> None:
        """The engine was not reached: what was to be settled is settled with a later call. If it
        had come through after all, it is answered that the lease is gone, which does no harm."""
        self._failures += 1
        nap = min(0.1 * 2 ** min(self._failures, 10), LONGEST_NAP)
        _log.warning("queue %r: %s; trying again in %.3g s", self.name, error, nap)
        with self._slots.lock:
            self._pending[:0] = pending
        self._nap(nap)

    def _nap(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        with self._slots.lock:
            while not self._stopping and (left := until - time.monotonic()) > 0:
                self._bell.wait(left)

    def _guard(self, run: Callable[[], None]) -> None:
        try:
            run()
        except BaseException as error:
            with contextlib.suppress(Exception):
                # What an engine refuses says itself what is wrong; all else is a fault of ours.
                known = isinstance(error, InterlockError)
                _log.error(
                    "queue %r can be served no more: %s", self.name, error, exc_info=not known
                )
            self._broken(error)


LONGEST_WAIT = 10.0
"""Seconds for which a call waits for work."""
TIGHT_WAIT = 0.05
"""The same where other queues wait for the place that it keeps."""
SEALED_WAIT = 1.0
MOST_SETTLED = 1024
LONGEST_NAP = 5.0
