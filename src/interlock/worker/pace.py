"""Finds whether handlers are so quick that the leasing thread runs them too, and leases ahead.

A call to the engine takes longer than a handler that only computes a little. While such handlers
run, the next calls are under way already, so that engine and worker work at the same time; and a
thread of its own for each handler would cost more than the handler. Both ends with the first
handler that takes longer: what is leased by then goes to the other threads, or back.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["AHEAD", "LATE", "Pace"]


class Pace:
    """Looks at each handler of one worker that has ended. Its methods want the worker's lock."""

    def __init__(self, places: int, changed: Callable[[bool], None]) -> None:
        """``places``: of the pool. ``changed`` is told when handlers have become quick, or are no
        longer."""
        self.quick = False
        """They are."""
        self.ahead = AHEAD if places > 1 else 1
        """The number of calls that are under way then."""
        self._changed = changed
        self._usual = QUICK
        """Seconds that a handler takes, the last ones counting most."""
        self._held_up = 0
        self._wanted = 0

    def ended(self, seconds: float) -> None:
        """A handler took so long."""
        # What takes long by itself is noticed while it runs; here it counts no more than what
        # happens to any thread of a busy machine.
        self._usual += (min(seconds, MOST) - self._usual) / SPAN
        if self.quick:
            if self._usual > QUICK:
                self.slow()
        elif self._wanted:
            self._wanted -= 1
        elif self._usual < QUICK / 2:
            self.quick = True
            self._changed(True)

    def slow(self, held_up: bool = False) -> None:
        """They are so no more; ``held_up``: one kept the thread that leases."""
        if held_up:
            # Where that happens again and again it is not worth the change.
            self._held_up = min(self._held_up + 1, 10)
            self._wanted = SPAN * 2**self._held_up
        self._usual = QUICK
        if self.quick:
            self.quick = False
            self._changed(False)


QUICK = 100e-6
"""Seconds: less than what a handler takes that asks anybody over a network."""
MOST = 10 * QUICK
SPAN = 32
AHEAD = 2
"""Calls that are under way while handlers run. Of two the engine always has one to work at; but it
may take them up in either order, so where there is one place, which sees messages in the order of
the queue, it is one."""
LATE = 0.02
"""Seconds after which somebody else takes over from a thread that runs a handler."""
LOOK = 0.01
"""Seconds between two looks for that."""
