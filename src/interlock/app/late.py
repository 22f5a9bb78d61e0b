"""Refuses what a program adds to an app while processes of a pool run, which would not get it."""

from __future__ import annotations

import itertools

__all__ = ["Pools"]

_numbers = itertools.count()
"""Of apps and of pools, in the order in which they were made."""
_running: set[int] = set()


class Pools:
    """The pools of processes that run and have got an app as it was when they began."""

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
        """Note that this pool starts no process any more."""
        self._own.discard(number)
        _running.discard(number)

    def check(self, what: str, sends: bool = False) -> None:
        """Raise RuntimeError where a pool would lack this.

        Args:
            what: the call that would add it.
            sends: it is for sends, which handlers of all apps may do.
        """
        if self._own:
            whose = "this app"
        elif sends and any(number > self._made for number in tuple(_running)):
            whose = "another app, which may send through this one,"
        else:
            return
        raise RuntimeError(
            f"{what}: a worker of {whose} runs its handlers in processes, which would not get "
            f"that any more; add it before the worker starts"
        )
