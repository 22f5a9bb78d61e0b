"""Handlers of one consumer, and the one that runs while no other does.

A message whose lease expired may be the cause of dying processes: it is handled alone, so that it
takes no other message down with it (clause 9).
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
        """Handlers that run alone, or wait for that."""

    def enter(self) -> bool:
        """Begin together with others; False: a handler runs alone, or waits for that."""
        with self._changed:
            if self._alone:
                return False
            self._running += 1
            return True

    def wait(self) -> None:
        """Wait until no handler runs alone or waits for that."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)

    @property
    def is_awaited(self) -> bool:
        """Return whether a handler runs alone, or waits for that."""
        return bool(self._alone)

    def leave(self) -> None:
        """End what ``enter`` began; all its messages are settled."""
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Run while no other handler does."""
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

    def enter(self) -> bool:
        """See ``Turns``."""
        if self._alone:
            return False
        self._running += 1
        return True

    async def wait(self) -> None:
        """See ``Turns``."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._alone)

    @property
    def is_awaited(self) -> bool:
        """See ``Turns``."""
        return bool(self._alone)

    def leave(self) -> None:
        """See ``Turns``."""
        self._running -= 1
        if self._alone:
            self._tell_soon()

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """See ``Turns``."""
        self._alone += 1
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._running)
                self._running += 1
            try:
                yield
            finally:
                self._running -= 1
        finally:
            self._alone -= 1
            self._tell_soon()

    def _tell_soon(self) -> None:
        # Not awaited: a cancelled task must leave all the same.
        asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
