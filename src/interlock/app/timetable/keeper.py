"""One queue of timers: fires what is due, and keeps a timer for each entry."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from interlock import _core
from interlock.app.timetable import timer as timers
from interlock.app.timetable.entry import MOST, Entry, moment
from interlock.app.timetable.timer import Timer
from interlock.app.timetable.timetable import listed, scanned, sent_of
from interlock.client.connection.refusals import HalfParked, UnknownDedup
from interlock.client.faces import batch as batches
from interlock.client.faces.batch import LeasedBatch
from interlock.client.wire import messages as wire
from interlock.errors import EngineUnavailable, Full, ShutDown

if TYPE_CHECKING:
    from interlock.client.faces.queue import RemoteQueue

__all__ = ["Keeper"]

LEASE = 30.0
_log = logging.getLogger("interlock.timetable")


class Keeper:
    """The timers of the entries whose tasks are on one queue. For use by one thread."""

    def __init__(
        self,
        name: str,
        entries: Mapping[str, Entry],
        open_queue: Callable[..., Any],
        lease: float = LEASE,
        tasks: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Open the queue.

        Args:
            name: name of the tasks' queue.
            tasks: the app's tasks by their names, for stored entries.
            lease: seconds after which a killed worker's timer is leased by another.
        """
        self.name = name
        self.entries = entries
        self._tasks = tasks
        self._open_queue = open_queue
        self._calls: Any = None
        """The tasks' queue, opened when calls are counted."""
        self.queue: RemoteQueue[bytes] = open_queue(
            timers.queue_name(name), lease=lease, slow_wait=0, warn_depth=0, warn_lane_depth=0
        )
        """The queue into which timers are put, and whose timers are listed."""
        self.waiting = self.queue._again()
        """A second handle, through which they are leased: closing it ends the wait."""
        self._clock = _core.WallClock()
        """Corrects the clock of an engine that does not correct it itself."""

    def step(self, until: float) -> bool:
        """Wait for a due timer, and act on it; False: no timer was due until then.

        Args:
            until: end of the wait, by time.monotonic(); 0: do not wait.

        Raises:
            Full, ShutDown: the tasks' queue refuses the call; the timer is leased again later.
            EngineUnavailable: the engine did not answer.
        """
        _, batch = batches.exchange(self.waiting, (), 1, until, "keyed")
        if batch is None:
            return False
        self._handle(batch)
        return True

    def plan(self) -> None:
        """Put the timer of each entry that has none, or whose timer waits too long."""
        stored = [one for one in listed(self.queue) if not one[1].change]
        found = self._now()
        if found is None:
            # The queue is paused; then nothing is due either.
            return
        (due_by, now), began = found, time.monotonic()
        known = [(one, timer, entry) for one, timer in stored if (entry := self._entry_of(timer))]
        for one, timer, entry in known:
            # The queue's clock was ahead at the time of the put, and was corrected.
            if (one.due or 0) > due_by + FAR * 1e6:
                self._again(entry, timer, one.id, now - began + time.monotonic())
                self.queue.cancel(one.id)
        has_timer = {entry.name for _, timer, entry in known if timer.stored is None}
        for entry in self.entries.values():
            if entry.name not in has_timer:
                tick = entry.schedule.after(now)
                self._put(entry, tick, 0, tick - now - (time.monotonic() - began))

    def pending(self) -> list[Timer]:
        """Return the existing timers, the next one first."""
        found = (timer for _, timer in listed(self.queue) if not timer.change)
        return sorted(found, key=lambda timer: timer.tick)

    def _entry_of(self, found: Timer) -> Entry | None:
        """Return the entry of a timer or a change; None: the app of this worker lacks it."""
        if found.stored is None:
            entry = self.entries.get(found.name)
            return entry if entry is not None and found.is_of(entry) else None
        try:
            return timers.entry_of(found, self._tasks, self.name)
        except ValueError as error:
            _log.warning(
                "stored timetable entry %r cannot be served here: %s",
                found.name, error, extra={"entry": found.name},
            )  # fmt: skip
            return None

    def _handle(self, batch: LeasedBatch) -> None:
        began = time.monotonic()
        (place,) = batch.places
        message, now = batch.message(place), self._date(batch)
        found = timers.decode(message.payload)
        if found is None and (unread := timers.unread(message.payload)):
            self._leave(batch, message, unread)
            return
        if found is None:
            _log.error(
                "message %d in queue %r is not a timer; dropping it", message.id, self.queue.name
            )
            self._settle(batch, ("ACK", batch.token, message.id))
            return
        if found.change == "set" and found.stored is not None:
            found.stored.number = message.id
        entry = self._entry_of(found)
        if found.change == "remove" or (found.change and entry):
            self._apply(batch, message, found, entry, now)
            return
        if entry is None:
            self._leave(batch, message, found)
            return
        if found.tick - now > EARLY:
            self._wait(batch, message, entry, found, now)
            return
        try:
            last, sent = self._fire(entry, found, now)
        except HalfParked as error:
            # Until an operator opens the key of this call: the calls of other entries have room.
            _log.warning(
                "timetable entry %r waits: %s; trying again in %.3g s",
                entry.name, error, HALF_PARKED_PAUSE, extra={"entry": entry.name},
            )  # fmt: skip
            self._settle(batch, wire.deferring(batch.token, message.id, HALF_PARKED_PAUSE))
            return
        except (Full, ShutDown, EngineUnavailable):
            # It stays in place; the same calls are sent again, unless they are known.
            self._settle(batch, wire.releasing(batch.token, message.id))
            raise
        now = max(now, found.tick)
        tick = entry.schedule.after(now)
        delay = tick - now - (time.monotonic() - began)
        self._put(entry, tick, last, delay, sent=sent, behind=found)
        self._settle(batch, ("ACK", batch.token, message.id))

    def _apply(
        self, batch: LeasedBatch, message: wire.Handed, found: Timer, entry: Entry | None,
        now: float,
    ) -> None:  # fmt: skip
        """Apply a change of a stored entry: its other timers wait behind it, for the same key."""
        before = [found]
        for one, timer in listed(self.queue, found.name):
            if timer.stored is None or timer.change:
                continue
            # Those of this change, or of a later one, were put by a worker that took over. After an
            # import timers have new ids, but the old numbers of their changes.
            if min(one.id, timer.stored.number) < message.id:
                self.queue.cancel(one.id)
                before.append(timer)
        if entry is not None:
            began = time.monotonic()
            last = found.last if found.last - now <= SET_BACK else 0
            tick = entry.schedule.after(max(now, last))
            sent = sent_of(before) if entry.copies else None
            delay = tick - now - (time.monotonic() - began)
            self._put(entry, tick, last, delay, sent=sent, behind=found)
        _log.info(
            "stored timetable entry %r is %s", found.name,
            f"set: {found.schedule}, task {found.task}" if entry else "removed",
            extra={"entry": found.name},
        )  # fmt: skip
        self._settle(batch, ("ACK", batch.token, message.id))

    def _wait(
        self, batch: LeasedBatch, message: wire.Handed, entry: Entry, found: Timer, now: float
    ) -> None:
        """Return a timer whose tick is not due yet."""
        if entry.stored and self._is_replaced(message.id, entry.name):
            self._settle(batch, ("ACK", batch.token, message.id))
            return
        if _tick_of(entry, found, now) != found.tick or message.attempt > MOST_LEFT / 2:
            # Or workers of other releases have returned it so often that they would soon drop it.
            self._again(entry, found, message.id, now)
            self._settle(batch, ("ACK", batch.token, message.id))
            return
        delay = min(found.tick - now, LONGEST_SLEEP)
        self._settle(batch, wire.deferring(batch.token, message.id, delay))

    def _is_replaced(self, id: int, name: str) -> bool:
        """Return whether a change waits behind this timer or change, which replaces it."""
        # A change that waits has a place behind it.
        known = scanned(self.queue, "key", name)
        return any(timer.change and one.id > id for one, timer in known)

    def _again(self, entry: Entry, found: Timer, id: int, now: float) -> None:
        """Replace the timer of this id by one for the tick that is next by now."""
        tick = _tick_of(entry, found, now)
        if tick != found.tick:
            _log.warning(
                "timetable entry %r: the engine's clock was set back; the next tick is %s, not %s",
                entry.name, moment(tick), moment(found.tick), extra={"entry": entry.name},
            )  # fmt: skip
        last, again = found.last if found.last <= now else 0, f" again {id}"
        self._put(entry, tick, last, tick - now, again=again, sent=found.sent, behind=found)

    def _fire(self, entry: Entry, found: Timer, now: float) -> tuple[int, list[int]]:
        """Send the calls that are due; return the last tick that was fired, and the ids of calls
        that are unsettled, if their number is bounded."""
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
        sent = self._unsettled(found.sent) if entry.copies else []
        for tick in due.ticks:
            if entry.copies and len(sent) >= entry.copies:
                _log.info(
                    "timetable entry %r: the tick %s is left out, for %d calls are unsettled "
                    "(copies=%d)", entry.name, moment(tick), len(sent), entry.copies,
                    extra={"entry": entry.name, "tick": tick},
                )  # fmt: skip
                continue
            id = self._send(entry, tick)
            if entry.copies and id is not None:
                sent.append(id)
        return due.ticks[-1] if due.ticks else found.last, sent

    def _unsettled(self, ids: list[int]) -> list[int]:
        """Return those of the calls that are unsettled."""
        if self._calls is None and ids:
            self._calls = self._open_queue(self.name)
        return [id for id in ids if self._calls._state_of(id) in UNSETTLED]

    def _send(self, entry: Entry, tick: int) -> int | None:
        name = timers.call_name(entry, tick)
        try:
            job = entry.send(tick, dedup=name, window=timers.window(entry, tick))
        except (Full, ShutDown, EngineUnavailable):
            raise
        except Exception:
            # The program's own code has raised; the next tick may succeed.
            _log.exception(
                "the call of timetable entry %r at %s cannot be sent; that tick is lost",
                entry.name, moment(tick), extra={"entry": entry.name, "tick": tick},
            )  # fmt: skip
            return None
        _log.debug(
            "timetable entry %r: tick %s is message %d in queue %r%s",
            entry.name, moment(tick), job.id, entry.queue, ", known" if job.known else "",
            extra={"entry": entry.name, "tick": tick, "id": job.id, "queue": entry.queue},
        )  # fmt: skip
        return job.id

    def _leave(
        self, batch: LeasedBatch, message: wire.Handed, found: Timer | timers.Unread
    ) -> None:
        """Leave it to a worker of another release; drop it if none has taken it."""
        is_stored = found.stored is not None
        if is_stored and self._is_replaced(message.id, found.name):
            self._settle(batch, ("ACK", batch.token, message.id))
            return
        if message.attempt <= MOST_LEFT or is_stored:
            longest = LONGEST_LEFT if message.attempt <= MOST_LEFT else LONGEST_SLEEP
            delay = min(2.0 ** min(message.attempt - 1, 10), longest)
            if is_stored and message.attempt == OFTEN_LEFT and isinstance(found, timers.Unread):
                _log.warning(
                    "stored timetable entry %r waits for a worker of the newer release that stored "
                    "it", found.name, extra={"entry": found.name},
                )  # fmt: skip
            elif is_stored and message.attempt == OFTEN_LEFT:
                _log.warning(
                    "stored timetable entry %r waits for a worker of queue %r that has task %r; "
                    "if there will be none, remove the entry",
                    found.name, self.name, found.task, extra={"entry": found.name},
                )  # fmt: skip
            why = "the app of this worker has no such entry"
            self._settle(batch, wire.nacking(batch.token, message.id, delay, why))
            return
        _log.info(
            "timetable entry %r (%s) is removed: no worker declares it any more",
            found.name, found.schedule, extra={"entry": found.name},
        )  # fmt: skip
        self._settle(batch, ("ACK", batch.token, message.id))

    def _put(
        self, entry: Entry, tick: int, last: int, delay: float, again: str = "",
        sent: list[int] | None = None, behind: Timer | None = None,
    ) -> None:  # fmt: skip
        """Put a timer, in place of the timer or change `behind` if there is one."""
        timer, dedup = timers.timer(entry, tick, last, sent), timers.timer_name(entry, tick) + again
        timer.dedup = dedup if entry.stored else ""
        handle = self.queue._handle
        message, end, bounded = handle.put_arguments(
            "send()",
            timers.encode(timer),
            True,
            PATIENCE,
            keys=entry.name,
            # A queue's delay is elapsed time. Checking each minute follows a clock that is set, and
            # a machine that slept.
            delay=min(max(delay, 0.0), LONGEST_SLEEP),
            dedup=dedup,
            window=0.0 if entry.stored else timers.window(entry, tick),
            quiet=True,
            retry=timers.FOR_EVER,
            bounded=True,
        )
        if behind is not None and behind.dedup:
            message = wire.follow(message, behind.dedup.encode())
        try:
            self.queue._run(handle, handle.put_message, message, end, bounded)
        except UnknownDedup:
            # This worker was frozen for longer than its lease: others have settled `behind`, and
            # perhaps removed the entry.
            _log.info(
                "timetable entry %r: another worker has taken this one's place", entry.name,
                extra={"entry": entry.name},
            )  # fmt: skip

    def _settle(self, batch: LeasedBatch, settlement: wire.Settlement) -> None:
        (place,) = batch.places
        batch.settled(int(batch.reply[place]))
        # A lost timer belongs to another worker, and one that cannot be returned expires.
        batches.settle(self.queue, [settlement])

    def _now(self) -> tuple[int, float] | None:
        """Return the time of the queue, µs since 1970, and the time for dates, in seconds.

        The first is the lease time of a message that is put for this purpose. None: the message was
        not leased.
        """
        for pause in PAUSES:
            if pause:
                time.sleep(pause)
            # Without a key, so that a waiting timer thread does not take it. If two workers ask at
            # once, one may lease the other's; the other asks again.
            self.queue._sent(b"", PATIENCE, dedup="clock", window=0.0, quiet=True)
            _, batch = batches.exchange(self.waiting, (), 1, 0.0, "unkeyed")
            if batch is not None:
                self._settle(batch, ("ACK", batch.token, int(batch.reply[batch.places[0]])))
                return _leased_at(batch), self._date(batch)
        return None

    def _date(self, batch: LeasedBatch) -> float:
        """Return the time for dates, in seconds since 1970, just after something was leased."""
        handle = self.queue._handle
        told = self.queue._run(handle, handle.engine.date_time, handle.key)
        if told is not None:
            return float(told) / 1e6
        found, followed = self._clock.read(_leased_at(batch), _elapsed())
        if followed:
            _log.warning(
                "the timetable of queue %r follows the engine's clock, which jumped by %s s",
                self.queue.name, f"{followed / 1e6:+.3f}",
            )  # fmt: skip
        return found / 1e6


def _tick_of(entry: Entry, found: Timer, now: float) -> int:
    """Return the tick for which an entry's timer should wait.

    Usually this is the timer's own. If the clock was set back by up to `SET_BACK`, the timetable
    waits until the clock reaches the old time, so that no tick fires twice. If by more, the old
    time was wrong.
    """
    begin = max(now, found.last) if found.last - now <= SET_BACK else now
    return min(entry.schedule.after(begin), found.tick)


def _leased_at(batch: LeasedBatch) -> int:
    """Return the queue's time of its lease, µs since 1970."""
    deadline = int(batch.reply[batch.places[0] - DEADLINE])
    return deadline - wire.micros(batch.grant.handle.lease)


def _elapsed() -> int:
    """Return elapsed time in µs, including time in which the machine slept."""
    if sys.platform == "linux":
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    return time.monotonic_ns() // 1000


DEADLINE = 3
"""Offset of a lease's deadline in the reply, before its first message."""
EARLY = 0.001
"""Seconds by which a timer may be early."""
MOST_LEFT = 100
"""Number of returns after which a timer is dropped: several minutes, and many workers."""
LONGEST_LEFT = 5.0
LONGEST_SLEEP = 60.0
"""Seconds after which a timer is checked although its tick is later."""
FAR = 2 * LONGEST_SLEEP
SET_BACK = 3 * 3600
"""Seconds by which a clock may be set back without a tick firing twice: as in Debian's cron."""
OFTEN_LEFT = 10
"""Number of returns at which a stored timer is reported, which is never dropped."""
HALF_PARKED_PAUSE = 5.0
PATIENCE = 5.0
PAUSES = (0.0, 0.05, 0.2)
UNSETTLED = frozenset(("delayed", "waiting", "ready", "leased", "backing_off", "held", "parked"))
