"""One queue of timers: what is due is fired, and no entry is without a timer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from interlock.app.timetable import timer as timers
from interlock.app.timetable.entry import MOST, Entry, moment
from interlock.app.timetable.timer import Timer
from interlock.engine import batch as batches
from interlock.engine import wire
from interlock.engine.batch import LeasedBatch
from interlock.errors import EngineUnavailable, Full, ShutDown
from interlock.retry import Retry

if TYPE_CHECKING:
    from interlock.engine.queue import RemoteQueue

__all__ = ["Keeper"]

LEASE = 30.0
_log = logging.getLogger("interlock.timetable")


class Keeper:
    """The timers of the entries whose tasks are on one queue. For one thread."""

    def __init__(
        self,
        name: str,
        entries: Mapping[str, Entry],
        open_queue: Callable[..., Any],
        lease: float = LEASE,
    ) -> None:
        """Open it.

        Args:
            name: of the tasks' queue.
            lease: seconds after which a killed worker's timer goes to another.
        """
        self.entries = entries
        self.queue: RemoteQueue[bytes] = open_queue(
            timers.queue_name(name), lease=lease, slow_wait=0, warn_depth=0, warn_lane_depth=0
        )
        """The queue in which timers are put, and looked at."""
        self.waiting = self.queue._again()
        """The same, by which they are leased: to close it ends the wait."""

    def step(self, until: float) -> bool:
        """Wait for a timer that is due, and do what it says; False: there was none until then.

        Args:
            until: by time.monotonic(); 0 for not at all.

        Raises:
            Full, ShutDown: the queue of the calls takes none; the timer is leased again later.
            EngineUnavailable: the engine did not answer.
        """
        _, batch = batches.exchange(self.waiting, (), 1, until, "keyed")
        if batch is None:
            return False
        self._handle(batch)
        return True

    def plan(self) -> None:
        """Put the timer of each entry that has none."""
        pending = self.pending()
        missing = [
            entry
            for entry in self.entries.values()
            if not any(one.name == entry.name and one.is_of(entry) for one in pending)
        ]
        if not missing:
            return
        now = self._now()
        if now is None:
            # Somebody has paused the queue; then nothing is due either.
            return
        began = time.monotonic()
        for entry in missing:
            tick = entry.schedule.after(now)
            self._put(entry, tick, 0, tick - now - (time.monotonic() - began))

    def pending(self) -> list[Timer]:
        """Return the timers that are there, the next one first."""
        found = []
        after: int | None = None
        while page := self.queue.messages(PAGE, after=after):
            found += [one for each in page if (one := timers.decode(each.payload)) is not None]
            after = page[-1].id
        return sorted(found, key=lambda one: one.tick)

    def _handle(self, batch: LeasedBatch) -> None:
        began = time.monotonic()
        (place,) = batch.places
        message, now = batch.message(place), _time_of(batch)
        found = timers.decode(message.payload)
        if found is None:
            _log.error("message %d in queue %r is no timer; it goes", message.id, self.queue.name)
            self._settle(batch, ("ACK", batch.token, message.id))
            return
        entry = self.entries.get(found.name)
        if entry is None or not found.is_of(entry):
            self._leave(batch, message, found)
            return
        if found.tick - now > EARLY:
            # The engine's clock was set back, or somebody has it at once.
            self._settle(
                batch, wire.nacking(batch.token, message.id, found.tick - now, "it is not time yet")
            )
            return
        try:
            last = self._fire(entry, found, now)
        except (Full, ShutDown, EngineUnavailable):
            # It stays where it is; the same calls are sent again, as far as they are not known.
            self._settle(batch, wire.releasing(batch.token, message.id))
            raise
        now = max(now, found.tick)
        tick = entry.schedule.after(now)
        self._put(entry, tick, last, tick - now - (time.monotonic() - began))
        self._settle(batch, ("ACK", batch.token, message.id))

    def _fire(self, entry: Entry, found: Timer, now: float) -> int:
        """Send what is due; return the last tick that was fired."""
        due = entry.due(found.tick, max(now, found.tick))
        if due.dropped:
            what = f"only the last {MOST} are" if entry.missed == "all" else (
                "the last one is" if due.ticks else "none is"
            )  # fmt: skip
            _log.warning(
                "timetable entry %r missed ticks since %s; %s made up for (missed=%r)",
                entry.name, moment(found.tick), what, entry.missed,
                extra={"entry": entry.name, "missed": entry.missed},
            )  # fmt: skip
        for tick in due.ticks:
            self._send(entry, tick)
        return due.ticks[-1] if due.ticks else found.last

    def _send(self, entry: Entry, tick: int) -> None:
        name = timers.call_name(entry, tick)
        try:
            job = entry.send(tick, dedup=name, window=timers.window(entry, tick))
        except (Full, ShutDown, EngineUnavailable):
            raise
        except Exception:
            # A program's own code has raised; the next tick may do better.
            _log.exception(
                "the call of timetable entry %r at %s cannot be sent; that tick is lost",
                entry.name, moment(tick), extra={"entry": entry.name, "tick": tick},
            )  # fmt: skip
            return
        _log.debug(
            "timetable entry %r: tick %s is message %d in queue %r%s",
            entry.name, moment(tick), job.id, entry.queue, ", known" if job.known else "",
            extra={"entry": entry.name, "tick": tick, "id": job.id, "queue": entry.queue},
        )  # fmt: skip

    def _leave(self, batch: LeasedBatch, message: wire.Handed, found: Timer) -> None:
        """Leave it to a worker of another release; drop it when none has come for it."""
        if message.attempt <= MOST_LEFT:
            delay = min(2.0 ** (message.attempt - 1), LONGEST_LEFT)
            why = "the app of this worker has no such entry"
            self._settle(batch, wire.nacking(batch.token, message.id, delay, why))
            return
        _log.info(
            "timetable entry %r (%s) is gone: no worker has it any more",
            found.name, found.schedule, extra={"entry": found.name},
        )  # fmt: skip
        self._settle(batch, ("ACK", batch.token, message.id))

    def _put(self, entry: Entry, tick: int, last: int, delay: float) -> None:
        self.queue._sent(
            timers.encode(timers.timer(entry, tick, last)),
            PATIENCE,
            keys=entry.name,
            delay=max(delay, 0.0),
            dedup=timers.timer_name(entry, tick),
            window=timers.window(entry, tick),
            quiet=True,
            retry=FOR_EVER,
        )

    def _settle(self, batch: LeasedBatch, settlement: wire.Settlement) -> None:
        (place,) = batch.places
        batch.settled(int(batch.reply[place]))
        # What is lost is another's now, and what cannot be told runs out by itself.
        batches.settle(self.queue, [settlement])

    def _now(self) -> float | None:
        """Return the engine's time: that of the lease of a message that is put for it alone.

        None: it is not handed out.
        """
        for pause in PAUSES:
            if pause:
                time.sleep(pause)
            # Without a key, so that nobody who waits for timers takes it; of two that ask at once
            # one may be handed the other's, and the other looks again.
            self.queue._sent(b"", PATIENCE, dedup="clock", window=0.0, quiet=True)
            _, batch = batches.exchange(self.waiting, (), 1, 0.0, "unkeyed")
            if batch is not None:
                self._settle(batch, ("ACK", batch.token, int(batch.reply[batch.places[0]])))
                return _time_of(batch)
        return None


def _time_of(batch: LeasedBatch) -> float:
    """Return the engine's time at which it was leased, in seconds since 1970."""
    deadline = int(batch.reply[batch.places[0] - DEADLINE])
    return (deadline - wire.micros(batch.grant.handle.lease)) / 1e6


DEADLINE = 3
"""The deadline of a lease stands so far before its first message."""
EARLY = 1.0
"""Seconds by which a timer may be before its time."""
MOST_LEFT = 100
"""Times that a timer goes back before it is nobody's: several minutes, and many workers."""
LONGEST_LEFT = 5.0
PATIENCE = 5.0
PAGE = 1000
PAUSES = (0.0, 0.05, 0.2)
"""Seconds."""
FOR_EVER = Retry(attempts=None, first=1, longest=60)
