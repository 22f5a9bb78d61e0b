"""Handlers of one consumer, and the one that runs while no other does.

A message of which a lease ran out may be what ends processes: it is handled alone, so that it takes
no other with it (clause 9).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator

__all__ = ["AsyncTurns", "Turns"]


class Turns:
    """Lets several threads lease and handle together, and one handle alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._alone = 0
        """Those that run alone, or wait for that."""

    def enter(self) -> bool:
        """Begin together with others; False: one runs alone, or waits for that."""
        with self._changed:
            if self._alone:
                return False
            self._running += 1
            return True

    def wait(self) -> None:
        """Wait until nobody runs alone nor waits for that."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)

    def leave(self) -> None:
        """End what ``enter`` began."""
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Run when nobody else does."""
        with self._changed:
            self._alone += 1
            self._changed.wait_for(lambda: not self._running)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._alone -= 1
            self.leave()


class AsyncTurns:
    """The same for tasks of one loop."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._running = 0
        self._alone = 0

    @property
    def busy(self) -> bool:
        """See ``Turns``."""
        return bool(self._running or self._alone)

    @contextlib.asynccontextmanager
    async def turn(self, alone: bool) -> AsyncIterator[None]:
        """Run when nobody else does, or when nobody runs alone nor waits for that."""
        async with self._changed:
            self._alone += alone
            try:
                await self._changed.wait_for(lambda: not (self._running if alone else self._alone))
            except BaseException:
                self._alone -= alone
                self._changed.notify_all()
                raise
            self._running += 1
        try:
            yield
        finally:
            # Not awaited: whoever is cancelled here must leave all the same.
            self._running -= 1
            self._alone -= alone
            asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
