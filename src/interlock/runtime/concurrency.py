"""Limits (contract, clauses 26 and 27): names, how many of their messages run at once, and how many
start in a time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

from interlock.runtime.limits import (
    MAX_BATCH,
    MAX_COUNT,
    MAX_LIMIT_NAMES,
    MAX_LIMITS,
    MAX_SPAN,
    MAX_TEXT,
    MAX_WEIGHT,
)

__all__ = ["Behind", "Limits", "Names", "Rate", "Weights"]

Names = str | Iterable[str]
"""One name of a limit, or several."""
Behind = Literal["wait", "bury", "cancel", "park"]
"""The outcome for a message while it waits on a key behind a failure."""

MAX_LABEL = 256
"""Bytes of the label of a run."""
_BETWEEN = "\x1f"
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


@dataclass(frozen=True, slots=True, init=False)
class Rate:
    """A number of messages of a limit name that may start in a time: ``Rate(10)`` is 10 a second.

    Args:
        n: messages in that time, 1 or more.
        per: the time, seconds or a timedelta; at least a microsecond for each of them. Default 1.
        burst: messages that may start at once after a pause; 1 spreads them evenly. Default 1.

    Raises:
        TypeError, ValueError: an argument has a wrong type or is out of range.

    In any time of s seconds at most burst + s × n ÷ per messages start. Each attempt counts. The
    time between two messages, per ÷ n, is rounded up to a whole microsecond.
    """

    n: int
    per: float
    burst: int

    def __init__(self, n: int, per: float | dt.timedelta = 1, burst: int = 1) -> None:
        for name, number in (("n", n), ("burst", burst)):
            if not isinstance(number, int) or isinstance(number, bool):
                raise TypeError(f"Rate(): {name} is {type(number).__name__}; allowed: int")
            if not 1 <= number <= MAX_COUNT:
                raise ValueError(f"Rate(): {name} is {number}; allowed: 1 to {MAX_COUNT:,}")
        if isinstance(per, dt.timedelta):
            per = per.total_seconds()
        if isinstance(per, bool) or not isinstance(per, int | float):
            raise TypeError(
                f"Rate(): per is {type(per).__name__}; allowed: seconds as a number, or a timedelta"
            )
        # Nothing that is not a number is 0 or more.
        micros = round(min(per, 1e10) * 1e6) if per >= 0 else 0
        if not n <= micros <= MAX_SPAN:
            raise ValueError(
                f"Rate(): per is {per} s for {n:,} messages; allowed: a microsecond or more for "
                f"each, at most {MAX_SPAN // 10**6:,} s"
            )
        if -(-micros // n) * burst > MAX_SPAN:
            raise ValueError(
                f"Rate(): burst is {burst:,} at {n:,} in {per} s, which takes more than "
                f"{MAX_SPAN // 10**6:,} s to come back; allowed: less"
            )
        object.__setattr__(self, "n", int(n))
        object.__setattr__(self, "per", micros // 10**6 if micros % 10**6 == 0 else micros / 1e6)
        object.__setattr__(self, "burst", int(burst))

    def __str__(self) -> str:
        """Return the rate as the command line takes it: ``10/1s:20``."""
        whole, rest = divmod(round(self.per * 1e6), 10**6)
        part = f".{rest:06}".rstrip("0") if rest else ""
        return f"{self.n}/{whole}{part}s:{self.burst}"

    @classmethod
    def read(cls, text: str) -> Rate:
        """Return a rate from ``N/TIME``, or ``N/TIME:BURST``; TIME such as ``1s``, ``0.5s``, ``h``.

        Raises:
            ValueError: the text is not of this form, or a number is out of range.
        """
        count, _, rest = text.partition("/")
        time, colon, burst = rest.partition(":")
        unit = _UNITS.get(time[-1:])
        number = time[:-1] or "1"
        digits = text.isascii() and number.replace(".", "", 1).isdecimal()
        if unit is None or not digits or not count.isdecimal() or bool(colon) != burst.isdecimal():
            raise ValueError(
                f"{text!r} is not a rate; allowed: N/TIME or N/TIME:BURST, as 10/1s:20, with a "
                "TIME in s, m, h or d"
            )
        return cls(int(count), float(number) * unit, int(burst or 1))

    def _text(self) -> str:
        """Return the rate in the form of the engines: the time in µs."""
        return f"{self.n}/{round(self.per * 1e6)}:{self.burst}"


Limits = Mapping[str, int | Rate]
"""Limit names, or prefixes that end in ``*``, each with a number or a rate."""


def limits_text(limits: object, call: str) -> str:
    """Return declared limits in the form of the engines: sorted entries ``NAME=N``, and
    ``NAME=N/PER:BURST`` for a rate.

    Raises:
        TypeError: it is not a mapping of str to int or Rate.
        ValueError: a name is empty or not Unicode, a number is not 1 or more, or there are too
            many.
    """
    if not isinstance(limits, Mapping):
        raise TypeError(
            f"{call}: limits is {type(limits).__name__}; allowed: a mapping of names to numbers, "
            'such as {"bank": 4, "tenant:*": 2, "api": Rate(10)}'
        )
    entries = []
    for name, most in limits.items():
        _check_name(name, f"{call}: limits")
        if isinstance(most, Rate):
            entries.append((name.encode(), f"{name}={most._text()}"))
            continue
        if not isinstance(most, int) or isinstance(most, bool):
            said = f"{call}: limits[{name!r}] is {type(most).__name__}; allowed: int, Rate"
            raise TypeError(said)
        if not 1 <= most <= MAX_COUNT:
            raise ValueError(
                f"{call}: limits[{name!r}] is {most}; allowed: 1 to {MAX_COUNT:,} (to stop a "
                "queue or a key, pause it)"
            )
        entries.append((name.encode(), f"{name}={most}"))
    text = _BETWEEN.join(entry for _, entry in sorted(entries))
    if len(text.encode()) > MAX_LIMITS:
        raise ValueError(
            f"{call}: limits have {len(text.encode()):,} bytes; allowed: {MAX_LIMITS:,}"
        )
    return text


def limits_of(text: str) -> dict[str, int | Rate]:
    """Return declared limits from their text."""
    entries = (entry.rpartition("=") for entry in text.split(_BETWEEN) if entry)
    return {name: _value_of(value) for name, _, value in entries}


Weights = Mapping[str, int]
"""Groups, or prefixes that end in ``*``, each with the messages of a turn (clause 28)."""


def weights_text(weights: object, call: str) -> str:
    """Return declared weights in the form of the engines: sorted entries ``GROUP=N``.

    Raises:
        TypeError: it is not a mapping of str to int.
        ValueError: a group is empty or not Unicode, a number is not 1 to 1,000, or there are too
            many.
    """
    if not isinstance(weights, Mapping):
        raise TypeError(
            f"{call}: weights is {type(weights).__name__}; allowed: a mapping of groups to "
            'numbers, such as {"acme": 3, "free:*": 1}'
        )
    entries = []
    for group, weight in weights.items():
        _check_name(group, f"{call}: weights")
        if not isinstance(weight, int) or isinstance(weight, bool):
            raise TypeError(f"{call}: weights[{group!r}] is {type(weight).__name__}; allowed: int")
        if not 1 <= weight <= MAX_WEIGHT:
            raise ValueError(
                f"{call}: weights[{group!r}] is {weight}; allowed: 1 to {MAX_WEIGHT:,}"
            )
        entries.append((group.encode(), f"{group}={weight}"))
    text = _BETWEEN.join(entry for _, entry in sorted(entries))
    if len(text.encode()) > MAX_LIMITS:
        raise ValueError(
            f"{call}: weights have {len(text.encode()):,} bytes; allowed: {MAX_LIMITS:,}"
        )
    return text


def weights_of(text: str) -> dict[str, int]:
    """Return declared weights from their text."""
    entries = (entry.rpartition("=") for entry in text.split(_BETWEEN) if entry)
    return {group: int(weight) for group, _, weight in entries}


def group_text(group: object, call: str) -> str:
    """Return the group of a message, checked.

    Raises:
        TypeError: it is not a str.
        ValueError: it is empty, too long or not Unicode, or contains U+001F.
    """
    if not isinstance(group, str):
        raise TypeError(f"{call}: group is {type(group).__name__}; allowed: str")
    if not is_limit_name(group):
        raise ValueError(
            f"{call}: group is {group!r}; allowed: 1 to {MAX_TEXT:,} bytes of UTF-8, without the "
            "character U+001F"
        )
    return group


def _value_of(text: str) -> int | Rate:
    count, slash, rest = text.partition("/")
    per, _, burst = rest.partition(":")
    return (
        Rate(int(count), dt.timedelta(microseconds=int(per)), int(burst)) if slash else int(count)
    )


def names_text(names: object, call: str) -> str:
    """Return the names of a message in the form of the engines: sorted, each once.

    Raises:
        TypeError: it is not a str or an iterable of str.
        ValueError: a name is empty or not Unicode, or there are too many.
    """
    given = [names] if isinstance(names, str) else names
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        raise TypeError(f"{call}: limit is {type(names).__name__}; allowed: str or several of them")
    listed = list(given)
    for name in listed:
        _check_name(name, f"{call}: limit")
    text = _BETWEEN.join(sorted(set(listed), key=str.encode))
    if len(set(listed)) > MAX_LIMIT_NAMES or len(text.encode()) > MAX_TEXT:
        raise ValueError(
            f"{call}: limit has {len(set(listed))} names of {len(text.encode())} bytes; allowed: "
            f"{MAX_LIMIT_NAMES} names, {MAX_TEXT} bytes in all"
        )
    return text


def names_of(text: bytes) -> tuple[str, ...]:
    """Return the names of a message from their text. What is not UTF-8, of a client in another
    language, is kept as lone surrogates."""
    return tuple(text.decode(errors="surrogateescape").split(_BETWEEN)) if text else ()


def joined_names(names: Iterable[str]) -> bytes:
    """Return the text of names that ``names_of`` returned."""
    return _BETWEEN.join(names).encode(errors="surrogateescape")


def group_of(text: bytes) -> str | None:
    """Return the group of a message from its text, like ``names_of``; None: it has none."""
    return text.decode(errors="surrogateescape") or None


def checked_behind(behind: object, call: str) -> Behind:
    """Return one of the words of ``Behind``. Raises TypeError, ValueError."""
    if not isinstance(behind, str):
        raise TypeError(f"{call}: behind is {type(behind).__name__}; allowed: str")
    for word in get_args(Behind):
        if behind == word:
            return cast(Behind, word)
    raise ValueError(f"{call}: behind is {behind!r}; allowed: wait, bury, cancel or park")


def checked_run(run: object, call: str) -> int:
    """Return the number of messages of a run. Raises TypeError, ValueError."""
    if not isinstance(run, int) or isinstance(run, bool):
        raise TypeError(f"{call}: run is {type(run).__name__}; allowed: int")
    if not 2 <= run <= MAX_BATCH:
        raise ValueError(f"{call}: run is {run}; allowed: 2 to {MAX_BATCH:,}")
    return int(run)


def run_text(run: object, label: object, call: str) -> str:
    """Return the run of a message in the form of the engines: ``N:LABEL``.

    Raises:
        TypeError: the number is not an int, or the label not a str.
        ValueError: the number is not 2 to 1,024, or the label has more than 256 bytes.
    """
    if not isinstance(label, str):
        raise TypeError(f"{call}: label is {type(label).__name__}; allowed: str")
    if run is None and label:
        raise ValueError(f"{call}: label without run")
    if len(label.encode()) > MAX_LABEL:
        raise ValueError(
            f"{call}: label has {len(label.encode())} bytes; allowed: up to {MAX_LABEL}"
        )
    return "" if run is None else f"{checked_run(run, call)}:{label}"


def is_limit_name(name: str) -> bool:
    """Return whether a text may be a limit name."""
    return bool(name) and _BETWEEN not in name and _is_utf8(name) and len(name.encode()) <= MAX_TEXT


def _check_name(name: object, argument: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{argument} has a name that is {type(name).__name__}; allowed: str")
    if not name or _BETWEEN in name or not _is_utf8(name):
        raise ValueError(
            f"{argument} has the name {name!r}; allowed: not empty, UTF-8, without the character "
            "U+001F"
        )


def _is_utf8(name: str) -> bool:
    """Return whether a text has no lone surrogate."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
