"""The retry policy (contract, clause 10): validated here, applied by the engine."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from typing import Literal

__all__ = ["Retry", "Seconds"]

Seconds = float | dt.timedelta


@dataclass(frozen=True, slots=True, init=False)
class Retry:
    """The policy for a message whose handling failed.

    Args:
        attempts: attempts in all, 1 or more; ``None`` tries for ever. Default 5.
        first: seconds of backoff after the first failure. Default 1.
        factor: growth of each further backoff, 1 or more. Default 2.
        longest: the longest backoff, seconds. Default 60.
        jitter: randomise each backoff between half and all of its plain length, so that messages
            that failed together do not come back together. Default True.
        on: exceptions that are retried; any other one gives the message up at once. Default all
            of ``Exception``.
        then: fate of a message whose attempts are used up: ``"dead"`` (a dead letter, and its lanes
            move on) or ``"hold"`` (its lanes stay closed until an operator calls ``retry``,
            ``skip`` or ``bury``). Default ``"dead"``.

    Raises:
        ValueError, TypeError: an argument is out of range; the error names it.

    ``Retry(attempts=None, first=0)`` retries immediately and for ever.
    """

    attempts: int | None
    first: float
    factor: float
    longest: float
    jitter: bool
    on: tuple[type[Exception], ...]
    then: Literal["dead", "hold"]

    def __init__(
        self,
        attempts: int | None = 5,
        *,
        first: Seconds = 1,
        factor: float = 2,
        longest: Seconds = 60,
        jitter: bool = True,
        on: tuple[type[Exception], ...] = (Exception,),
        then: Literal["dead", "hold"] = "dead",
    ) -> None:
        if attempts is not None:
            attempts = whole(attempts, "Retry(): attempts", "int or None")
        if attempts is not None and not 1 <= attempts < 2**31:
            raise ValueError(
                f"Retry(): attempts is {attempts}; allowed: 1 or more, or None for ever"
            )
        if isinstance(factor, bool) or not isinstance(factor, int | float):
            raise TypeError(f"Retry(): factor is {type(factor).__name__}; allowed: a number")
        try:
            factor = float(factor)
        except OverflowError:
            factor = math.inf
        if not 1 <= factor < math.inf:
            raise ValueError(f"Retry(): factor is {factor}; allowed: 1 or more")
        if then not in ("dead", "hold"):
            raise ValueError(f"Retry(): then is {then!r}; allowed: 'dead', 'hold'")
        if not isinstance(on, tuple):
            raise TypeError(
                f"Retry(): on is {on!r}; allowed: a tuple of classes of exceptions, such as "
                f"(OSError,)"
            )
        for kind in on:
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise TypeError(f"Retry(): on holds {kind!r}; allowed: classes of exceptions")
        for name, value in (
            ("attempts", attempts),
            ("first", seconds(first, "Retry(): first")),
            ("factor", factor),
            ("longest", seconds(longest, "Retry(): longest")),
            ("jitter", bool(jitter)),
            ("on", on),
            ("then", then),
        ):
            object.__setattr__(self, name, value)

    def _native(self) -> tuple[int | None, int, float, int, bool, bool]:
        """Return the policy as the core takes it: times in µs."""
        dead = self.then == "dead"
        first, longest = _micros(self.first), _micros(self.longest)
        return self.attempts, first, self.factor, longest, self.jitter, dead


def seconds(value: Seconds, name: str) -> float:
    """Return a time as a number of seconds; ``name`` is the argument's name for the error."""
    if isinstance(value, dt.timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(
            f"{name} is {type(value).__name__}; allowed: seconds as a number, or a timedelta"
        )
    if not value >= 0:
        raise ValueError(f"{name} is {value}; allowed: 0 or more")
    try:
        return float(value)
    except OverflowError:
        # An integer beyond any float means no limit, as infinity does.
        return math.inf


def whole(value: object, name: str, allowed: str = "int") -> int:
    """Return a whole number as a plain int.

    A subclass of int may print itself otherwise. ``name`` is the argument's name for the error.
    """
    # By its class itself: an instance may claim another class.
    if not issubclass(type(value), int) or isinstance(value, bool):
        raise TypeError(f"{name} is {type(value).__name__}; allowed: {allowed}")
    return int.__int__(value)  # type: ignore[arg-type]


def _micros(value: float) -> int:
    return round(min(value, 1e12) * 1e6)
