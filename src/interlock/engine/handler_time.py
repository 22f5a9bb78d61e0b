"""The time that handlers take, and what follows from it: how many messages are leased at once.

A call to the engine takes longer than a handler that only computes a little. While such handlers
run, one thread leases batches and runs them, with the next calls under way already; a thread for
each handler would cost more than the handler. That ends with the first that takes longer.
"""

from __future__ import annotations

__all__ = ["HandlerTime"]


class HandlerTime:
    """The usual time of handlers. Whoever leases uses it, one thread at a time."""

    def __init__(self, places: int = 1) -> None:
        self.quick = False
        """They take so little that they are run in batches."""
        self.ahead = AHEAD if places > 1 else 1
        """The number of calls that are under way then."""
        self._usual = QUICK
        """Seconds that a handler takes, the last ones counting most."""
        self._held_up = 0
        self._wanted = 0

    @property
    def batch_size(self) -> int:
        """The number of messages for which a call asks."""
        if not self.quick:
            return 1
        return max(1, min(MOST_LEASED, int(LONGEST_BATCH / max(self._usual, 1e-7))))

    def ended(self, seconds: float) -> None:
        """Count a handler that by itself took so long."""
        # What takes long by itself is noticed while it runs; here it counts no more than what
        # happens to any thread of a busy machine.
        self._usual += (min(seconds, MOST) - self._usual) / SPAN
        if self.quick:
            self.quick = self._usual <= QUICK
        elif self._wanted:
            self._wanted -= 1
        else:
            self.quick = self._usual < QUICK / 2

    def batch_ended(self, seconds: float, count: int) -> None:
        """Count so many handlers that, one after the other, took so long."""
        if count == 1:
            self.ended(seconds)
        elif count:
            weight = min(count / SPAN, 1 / 4)
            self._usual += (min(seconds / count, MOST) - self._usual) * weight
            if self._usual > QUICK:
                self.slow()

    def slow(self, held_up: bool = False) -> None:
        """Note that they are quick no more; ``held_up``: one kept the thread that runs batches."""
        if held_up:
            # Where that happens again and again it is not worth the change.
            self._held_up = min(self._held_up + 1, 10)
            self._wanted = SPAN * 2**self._held_up
        self._usual = QUICK
        self.quick = False


QUICK = 100e-6
"""Seconds: less than what a handler takes that asks anybody over a network."""
MOST = 10 * QUICK
SPAN = 32
MOST_LEASED = 128
"""Messages of one lease: a call for so many costs the engine a third, for each, of one for 16."""
LONGEST_BATCH = 0.01
"""Seconds that a batch is to take: what is leased and has not begun holds its lanes closed."""
LONGEST_RUN = 0.05
"""Seconds after which a batch is left: what has not begun goes to other places, or back."""
LATE = 0.02
"""Seconds after which a handler counts as one that keeps the thread of a batch."""
LOOK = 0.01
"""Seconds between two looks for that."""
AHEAD = 2
"""Calls that are under way while handlers run. Of two the engine always has one to work at; but it
may take them up in either order, so where there is one place, which sees messages in the order of
the queue, it is one."""
