"""Arguments of a queue's calls on an engine, checked: errors name the call and the argument."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from interlock import _core
from interlock.message import Key
from interlock.retry import Seconds, seconds, whole


def until(call: str, block: bool, timeout: Seconds | None) -> float | None:
    """Return the end of a call's wait, by time.monotonic(); None: no limit."""
    if not block:
        return 0.0
    return None if timeout is None else time.monotonic() + seconds(timeout, f"{call}: timeout")


def check_kind(call: str, kind: object) -> None:
    """Check the word for the messages that a get takes."""
    if not isinstance(kind, str):
        raise TypeError(
            f"{call}: kind is {type(kind).__name__}; allowed: 'any', 'keyed', 'unkeyed'"
        )
    if kind not in ("any", "keyed", "unkeyed", "any+", "keyed+"):
        raise ValueError(f"{call}: kind is {kind!r}; allowed: 'any', 'keyed', 'unkeyed'")


def check_limit(call: str, limit: object, named: str = "limit") -> int:
    """Return the requested number of items, checked, as a plain int."""
    number = whole(limit, f"{call}: {named}")
    if number < 1:
        raise ValueError(f"{call}: {named} is {number}; allowed: 1 or more")
    return number


def check_id(call: str, id: object, named: str = "id") -> int:
    """Return a message's id, checked, as a plain int."""
    return whole(id, f"{call}: {named}")


def check_then(then: object) -> str:
    """Return the word for the outcome of a revoked message, checked."""
    if not isinstance(then, str):
        raise TypeError(
            f"revoke(): then is {type(then).__name__}; allowed: 'retry', 'hold', 'dead', 'skip'"
        )
    if then not in ("retry", "hold", "dead", "skip"):
        raise ValueError(f"revoke(): then is {then!r}; allowed: 'retry', 'hold', 'dead', 'skip'")
    return str(then)


def check_settlements(call: str, settlements: Iterable[Iterable[object]]) -> None:
    """Raise ValueError if one contains text that cannot be encoded."""
    for argument in (argument for one in settlements for argument in one):
        if isinstance(argument, str) and not argument.isascii():
            try:
                argument.encode()
            except UnicodeEncodeError:
                raise ValueError(
                    f"{call}: settlements holds a lone surrogate; allowed: what encodes as UTF-8"
                ) from None


def check_leases(leases: object, kind: type[Any], queue: str) -> list[Any]:
    """Return the leases that ack_many() is given, checked, as a list.

    Raises:
        TypeError, ValueError: one is not a lease, or of another queue.
    """
    if not isinstance(leases, Iterable):
        raise TypeError(
            f"ack_many(): leases is {type(leases).__name__}; allowed: an iterable of leases"
        )
    given = list(leases)
    for place, one in enumerate(given):
        if not isinstance(one, kind):
            raise TypeError(
                f"ack_many(): leases[{place}] is {type(one).__name__}; allowed: a lease of "
                f"queue {queue!r}"
            )
        if one.queue != queue:
            raise ValueError(
                f"ack_many(): leases[{place}] is of queue {one.queue!r}; allowed: a lease of "
                f"queue {queue!r}"
            )
    return given


def canonical(call: str, key: Key | None) -> bytes | None:
    """Return a key as bytes; None for None."""
    return None if key is None else _core.canonical(key, f"{call}: key")
