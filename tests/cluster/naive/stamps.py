"""Stamps: the order of changes, by hybrid logical clocks with the data centre as tie-break."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["NEVER", "HybridClock", "Stamp", "hybrid", "packed", "unpacked"]

Stamp = tuple[int, str]
"""A reading of a hybrid clock (ms since 1970, times 65,536, plus a counter), and a data centre."""

NEVER = b""
"""A packed stamp that is before all others."""


class HybridClock:
    """A clock that never gives a stamp twice, and none that is before one it has seen.

    It is ahead of the time of day only as far as a stamp was that it has seen, or as more than
    65,536 stamps were taken in a millisecond. For use by one thread at a time.

    Args:
        dc: the name of the data centre, 1 to 32 letters, digits, ``-`` or ``_``.
        now_ms: gives the time of day, in ms since 1970. Default: the system's.

    Raises:
        ValueError: ``dc`` is not a valid name.
    """

    def __init__(self, dc: str, now_ms: Callable[[], int] | None = None) -> None:
        if not (1 <= len(dc) <= 32 and dc.isascii() and not set(dc) - _LETTERS):
            raise ValueError(
                f"HybridClock(): dc is {dc!r}; allowed: 1 to 32 letters, digits, '-' and '_'"
            )
        self.dc = dc
        self.writer = dc
        """The writer as stamps name it: the data centre, and the term of its primary."""
        self._now_ms = _wall_ms if now_ms is None else now_ms
        self._last = 0

    def next(self, now_ms: int | None = None) -> Stamp:
        """Return a stamp later than all before.

        Args:
            now_ms: the time of day, in ms since 1970. Default: as the clock's own source says.
        """
        physical = (self._now_ms() if now_ms is None else now_ms) << COUNTER_BITS
        last = self._last + 1
        self._last = last = physical if physical > last else last
        return last, self.writer

    def begin_term(self, token: int) -> None:
        """Have stamps name a primary's term: who was primary before may have set others."""
        digits = ""
        while token:
            token, digit = divmod(token, 36)
            digits = DIGITS[digit] + digits
        self.writer = f"{self.dc}.{digits}"

    def saw(self, stamp: Stamp) -> None:
        """Note a stamp of another: all that come are later."""
        if stamp[0] > self._last:
            self._last = stamp[0]

    @property
    def ms(self) -> int:
        """The time up to which stamps were given or seen, in ms since 1970; 0 at first."""
        return self._last >> COUNTER_BITS


def packed(stamp: Stamp) -> bytes:
    """Return a stamp as bytes, which are in the same order as stamps."""
    return stamp[0].to_bytes(8, "big") + stamp[1].encode()


def unpacked(text: bytes) -> Stamp:
    """Return the stamp of packed bytes; ``(0, "")`` of none."""
    return int.from_bytes(text[:8], "big"), text[8:].decode()


def hybrid(ms: int) -> int:
    """Return the first reading of a hybrid clock in a millisecond since 1970."""
    return ms << COUNTER_BITS


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


COUNTER_BITS = 16
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
