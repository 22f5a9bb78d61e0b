"""Refuses additions to an app while processes of a pool run, which would not receive them."""

from __future__ import annotations

import itertools

__all__ = ["Pools"]

_numbers = itertools.count()
"""Numbers of apps and pools, in the order in which they were made."""
_running: set[int] = set()


class Pools:
    """The running pools of processes, whose app is as it was when they began."""

    def __init__(self) -> None:
        self._made = next(_numbers)
        self._own: set[int] = set()

    def begin(self) -> int:
        """Note that a worker of the app begins a pool; return its number."""
        number = next(_numbers)
        self._own.add(number)
        _running.add(number)
        return number

    def end(self, number: int) -> None:
        """Note that this pool starts no further process."""
        self._own.discard(number)
        _running.discard(number)

    def check(self, what: str, sends: bool = False) -> None:
        """Raise RuntimeError if a running pool would lack this.

        Args:
            what: the call that would add it.
            sends: it affects sends, which handlers of all apps may make.
        """
        if self._own:
            whose = "this app"
        elif sends and any(number > self._made for number in tuple(_running)):
            whose = "another app, which may send through this one,"
        else:
            return
        raise RuntimeError(
            f"{what}: a worker of {whose} runs its handlers in processes, which are started "
            "without it; add it before the worker starts"
        )
