"""Concurrency limits (contract, clause 26): names, and how many of their messages run at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from interlock.runtime.limits import MAX_COUNT, MAX_LIMIT_NAMES, MAX_LIMITS, MAX_TEXT

__all__ = ["Names"]

Names = str | Iterable[str]
"""One name of a concurrency limit, or several."""

_BETWEEN = "\x1f"


def limits_text(limits: object, call: str) -> str:
    """Return declared limits in the form of the engines: sorted entries ``NAME=N``.

    Raises:
        TypeError: it is not a mapping of str to int.
        ValueError: a name is empty, a number is not 1 or more, or there are too many.
    """
    if not isinstance(limits, Mapping):
        raise TypeError(
            f"{call}: limits is {type(limits).__name__}; allowed: a mapping of names to numbers, "
            'such as {"bank": 4, "tenant:*": 2}'
        )
    entries = []
    for name, most in limits.items():
        _check_name(name, f"{call}: limits")
        if not isinstance(most, int) or isinstance(most, bool):
            raise TypeError(f"{call}: limits[{name!r}] is {type(most).__name__}; allowed: int")
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


def limits_of(text: str) -> dict[str, int]:
    """Return declared limits from their text."""
    entries = (entry.rpartition("=") for entry in text.split(_BETWEEN) if entry)
    return {name: int(most) for name, _, most in entries}


def names_text(names: object, call: str) -> str:
    """Return the names of a message in the form of the engines: sorted, each once.

    Raises:
        TypeError: it is not a str or an iterable of str.
        ValueError: a name is empty, or there are too many.
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


def _check_name(name: object, argument: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"{argument} has a name that is {type(name).__name__}; allowed: str")
    if not name or _BETWEEN in name:
        raise ValueError(
            f"{argument} has the name {name!r}; allowed: not empty, without the character U+001F"
        )
