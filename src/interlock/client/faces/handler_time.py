"""The duration of handlers, and its consequence: the number of messages leased at once.

A call to the engine takes longer than a short computation. While handlers are that quick, one
thread leases batches and runs them, with the next calls in flight; a thread for each handler would
cost more than the handler. The first slow handler ends that mode.
"""

from __future__ import annotations

__all__ = ["HandlerTime"]


class HandlerTime:
    """The typical duration of handlers. One leasing thread uses it at a time."""

    def __init__(self, places: int = 1, processes: int = 1) -> None:
        self._processes = processes
        """Number of processes in which handlers run, each one at a time."""
        self.quick = False
        """Handlers are quick enough to be run in batches."""
        self.computing = False
        """Handlers of a pool of threads keep the interpreter to themselves while they run: several
        threads run them no sooner than one."""
        self.ahead = AHEAD if places > 1 else 1
        """Number of calls that are in flight then."""
        self._usual = QUICK
        """Duration of a handler in seconds, as an average that favours the last ones."""
        self._average = MOST_AVERAGE
        """Duration of a handler in a pool, in seconds, as an average of the last ones."""
        self._apart = MOST_AVERAGE
        """Seconds between the ends of two handlers of a pool that has work, as such an average."""
        self._held_up = 0
        self._wanted = 0

    @property
    def batch_size(self) -> int:
        """Number of messages that a call requests."""
        if not self.quick:
            return 1
        usual = self._average if self.computing else self._usual
        return max(1, min(MOST_LEASED, int(LONGEST_BATCH / max(usual, 1e-7))))

    @property
    def leased_ahead(self) -> int:
        """Number of messages that a pool may hold beyond those for which a handler is idle."""
        if self._average > BRIEF:
            return 0
        # Handlers that wait run side by side. Those that compute wait for each other, which makes
        # each of them seem slow. Only in processes do they certainly run side by side.
        each = min(self._average / self._processes, self._apart)
        return min(MOST_LEASED, int(LONGEST_BATCH / max(each, 1e-7)))

    def ended(self, seconds: float) -> None:
        """Count a handler that took this long by itself."""
        self._average += (min(seconds, MOST_AVERAGE) - self._average) / SPAN
        # A slow handler is noticed while it runs; here it counts no more than the delays of any
        # thread on a busy machine.
        self._usual += (min(seconds, MOST) - self._usual) / SPAN
        if self.quick:
            self.quick = self._usual <= QUICK or self._computes(1)
        elif self._wanted:
            self._wanted -= 1
        else:
            self.quick = self._usual < QUICK / 2 or self._computes(2)

    def pool_ended(self, seconds: float, count: int) -> None:
        """Count this many handlers of a pool that ended within this time, while it had work."""
        weight = min(count / SPAN, 1 / 4)
        self._apart += (min(seconds / count, MOST_AVERAGE) - self._apart) * weight

    def batch_ended(self, seconds: float, count: int) -> None:
        """Count this many handlers that took this long in total, one after another."""
        if count == 1:
            self.ended(seconds)
        elif count:
            weight = min(count / SPAN, 1 / 4)
            self._usual += (min(seconds / count, MOST) - self._usual) * weight
            if self.computing:
                self._average += (min(seconds / count, MOST_AVERAGE) - self._average) * weight
            if self._usual > QUICK and not self._computes(1):
                self.slow()

    def slow(self, held_up: bool = False) -> None:
        """Note that handlers are no longer quick; ``held_up``: one held up the batch thread."""
        if held_up:
            # If that happens repeatedly, the change of mode is not worthwhile.
            self._held_up = min(self._held_up + 1, 10)
            self._wanted = SPAN * 2**self._held_up
        self._usual = QUICK
        self.quick = self.computing = False

    def _computes(self, margin: float) -> bool:
        """Return whether handlers only compute, and briefly enough to run in batches."""
        return self.computing and self._average <= COMPUTED / margin


QUICK = 100e-6
"""Seconds: less than a handler takes that makes any call over a network."""
MOST = 10 * QUICK
COMPUTED = 1e-3
"""The same of handlers that only compute: another thread could not run them earlier."""
BRIEF = 2e-3
"""Seconds: handlers that take longer on average are leased one message each."""
MOST_AVERAGE = 2 * BRIEF
SPAN = 32
MOST_LEASED = 128
"""Messages of one lease: for each, such a call costs the engine a third of one for 16."""
LONGEST_BATCH = 0.01
"""Target duration of a batch in seconds: leased messages that have not begun keep their lanes
closed."""
LONGEST_RUN = 0.05
"""Seconds after which a batch is abandoned: messages that have not begun go to other places, or
back."""
LATE = 0.02
"""Seconds after which a handler counts as holding up the thread of a batch."""
LOOK = 0.01
"""Shortest time in seconds between two checks of what a worker holds."""
AHEAD = 2
"""Calls that are in flight while handlers run. With two, the engine always has one to work on; but
it may process them in either order, so with a single place, which sees messages in the order of the
queue, there is one."""
