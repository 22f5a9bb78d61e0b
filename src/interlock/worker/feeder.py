"""Takes from one queue for the handlers that are idle, and settles what they have done.

One call does both as long as there is work: what was settled since the last call goes out with the
request for more. While handlers are quick (see ``Pace``), the next calls are under way already, and
the thread that takes runs the handlers. When the queue has nothing, the feeder waits there for
work, and settlements go out by a second thread at once.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interlock.errors import EngineUnavailable, InterlockError, LeaseLost, ShutDown
from interlock.failure import text_of
from interlock.message import Kind
from interlock.worker.handle import Outcome
from interlock.worker.pace import Pace
from interlock.worker.work import details

if TYPE_CHECKING:
    from interlock.worker.slots import Slots

__all__ = ["Feeder"]

_log = logging.getLogger("interlock.worker")

Pending = list[tuple[Any, Outcome, Any]]


@dataclass(slots=True)
class Asked:
    """A call that is under way, and that nobody waits for yet."""

    answer: Callable[[], tuple[list[str], Sequence[Any]]]
    pending: Pending
    places: int
    began: float


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
        kind: Kind = "any",
    ) -> None:
        """``dispatch`` is given leases, and whether they are to be given back unbegun; it answers
        how many of them take no place in the pool. ``lease``: how many seconds they last;
        ``kind``: of what messages."""
        self.name = name
        self.slots = slots
        """Its places in the pool."""
        self._kind: Kind = kind
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
        self._pending: Pending = []
        self._parked = False
        self._away = False
        """The thread that takes runs a handler."""
        self._stopping = False
        self._ended = False
        self._failures = 0
        self.full: Callable[[], bool] = lambda: False
        """Tells whether so much is set aside that nothing more should be leased."""
        self.work: Callable[[], None] = lambda: None
        """Handles what was handed out, where that is not done by other threads."""
        self.leave: Callable[[], None] = lambda: None
        """Called by the thread that did, when it ends."""
        self.pace: Pace | None = None
        """None: it never leases ahead, and its thread runs no handler but in a pool of one."""
        self.taker = 0
        """The thread that takes."""
        self._asked: collections.deque[Asked] = collections.deque()
        self._more = True
        """The last answer was full, so there may be more."""
        self._shy = 0
        """The number of times not to lease ahead, because the last time there was nothing."""
        self._taking = self._thread("feed", self._feed)
        self._settling = self._thread("settle", self._settle_while_parked)

    def start(self) -> None:
        """Begins to take."""
        self._taking.start()
        self._settling.start()

    def _thread(self, what: str, run: Callable[[], None]) -> threading.Thread:
        name = f"interlock-{what}-{self.name}"
        if self._kind != "any":
            name += f"-{self._kind}"
        return threading.Thread(target=self._guard, args=(run,), name=name, daemon=True)

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
        except Exception as error:
            # Whatever cannot be said to an engine: a message that is not settled is renewed, and
            # its lanes stay closed.
            text = "message %d in queue %r cannot be settled as its handler ended; it has failed"
            _log.exception(text, held.id, held.queue, extra=details(held))
            outcome = Outcome("nack", error=text_of(error), expected="retried")
            settlement = outcome.settlement(lease)
        with self._slots.lock:
            self._pending.append((held, outcome, settlement))
            if ring:
                self._ring()

    def ring_to_settle(self) -> None:
        """Rings for what was queued without a ring, so that it goes out."""
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
            self._taking.join(0.05)
        self._settling.join(max(0.0, until - time.monotonic()))
        return not self._pending and not self._takes() and not self._settling.is_alive()

    def relieve(self, taker: int) -> bool:
        """A handler keeps the thread that takes, if that is still this one: another takes from
        now on, and this one ends with its handler. False: it is none of that."""
        with self._slots.lock:
            if self.taker != taker or self._away:
                return False
            self.taker = 0
            self._taking = self._thread("feed", self._feed)
            self._taking.start()
            return True

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
        return self._taking.is_alive() and not self._away

    # -- The thread that takes --------------------------------------------------------------------

    def _feed(self) -> None:
        me = self.taker = threading.get_ident()
        while True:
            if self.pace is not None and self.pace.quick:
                self._ask_ahead(self.pace.ahead)
            self.work()
            with self._slots.lock:
                # Else a handler took so long that another thread took over.
                if self.taker != me:
                    return
                asked = self._asked.popleft() if self._asked else None
            if asked is not None:
                self._take_answer(asked)
                continue
            work = self._next_call()
            if work is None:
                return
            pending, places = work
            began = time.monotonic()
            leases = self._exchange(pending, places)
            self._more = bool(leases) and len(leases) == places
            self._handed_out(leases, places, began)
            if not leases and not self._stopping:
                self._wait_for_work()

    def _next_call(self) -> tuple[Pending, int] | None:
        with self._slots.lock:
            while not self._stopping:
                places = 0 if self.full() else self._slots.take(self._bell)
                if places or self._pending:
                    return self._taken(), places
                self._bell.wait()
            return None

    def _ask_ahead(self, most: int) -> None:
        while len(self._asked) < most and self._more:
            with self._slots.lock:
                if self._stopping or self.full():
                    return
                if self._shy:
                    self._shy -= 1
                    return
                places = self._slots.take_ahead()
                if not places:
                    return
                pending = self._taken()
            began = time.monotonic()
            settlements = [settlement for _, _, settlement in pending]
            try:
                answer = self._queue._exchange_ahead(settlements, places)
            except (ShutDown, EngineUnavailable):
                # Who asks and waits finds out what it is.
                with self._slots.lock:
                    self._slots.give(places)
                    self._pending[:0] = pending
                self._more = False
                return
            self._asked.append(Asked(answer, pending, places, began))

    def _take_answer(self, asked: Asked) -> None:
        leases: Sequence[Any] = ()
        try:
            answers, leases = asked.answer()
        except ShutDown:
            pass
        except EngineUnavailable as error:
            self._again(asked.pending, error)
        else:
            self._reached()
            self._told(asked.pending, answers)
        self._more = len(leases) == asked.places
        if not leases:
            # Likely all that is there stands behind what is handled now.
            self._shy = SHY
        self._handed_out(leases, asked.places, asked.began)

    def _exchange(self, pending: Pending, places: int) -> Sequence[Any]:
        settlements = [settlement for _, _, settlement in pending]
        try:
            if not places:
                answers, leases = self._queue.settle(settlements), ()
            else:
                answers, leases = self._queue.exchange(settlements, places, False, kind=self._kind)
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
            _, leases = self._queue.exchange((), places, True, wait, kind=self._kind)
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

    def _taken(self) -> Pending:
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

    def _again(self, pending: Pending, error: BaseException) -> None:
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
        finally:
            self.leave()


LONGEST_WAIT = 10.0
"""Seconds for which a call waits for work."""
TIGHT_WAIT = 0.05
"""The same where other queues wait for the place that it keeps."""
SEALED_WAIT = 1.0
MOST_SETTLED = 1024
SHY = 64
LONGEST_NAP = 5.0
