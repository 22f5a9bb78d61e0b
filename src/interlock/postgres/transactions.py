"""Transactions for handlers: on the program's own connections, or on some of psycopg."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

from interlock.client.transport.thread_link import readable
from interlock.postgres.driver import CONNECT_TIMEOUT, connect, psycopg
from interlock.runtime import forks

__all__ = ["Transactions"]

NAME = "interlock handler"


class Transactions:
    """The transactions of one outbox in this process.

    A connection is used by one handler at a time, and kept for the next. Connections of asyncio
    belong to their loop.
    """

    def __init__(self, outbox: Any) -> None:
        self._outbox = outbox
        self._forks = forks.count
        self._free: list[Any] = []
        self._free_of: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, list[Any]] = (
            weakref.WeakKeyDictionary()
        )

    @contextlib.contextmanager
    def begin(self) -> Iterator[Any]:
        """Yield a connection with an open transaction, which the end commits; an exception rolls it
        back."""
        if self._outbox._begin is not None:
            with self._outbox._begin() as given:
                yield given
            return
        if self._forks != forks.count:
            # The connections belong to the parent, which still uses them.
            self._forks, self._free, _parents[len(_parents)] = forks.count, [], self._free
        found = _usable(self._free)
        connection = connect(self._outbox.url, NAME) if found is None else found
        try:
            with connection.transaction():
                yield connection
        finally:
            if not connection.closed:
                self._free.append(connection)

    @contextlib.asynccontextmanager
    async def abegin(self) -> AsyncIterator[Any]:
        """Do the same for coroutine functions."""
        if self._outbox._begin is not None:
            async with self._outbox._begin() as given:
                yield given
            return
        loop = asyncio.get_running_loop()
        free = self._free_of.get(loop)
        if free is None:
            free = self._free_of[loop] = []
            weakref.finalize(loop, _finish, free)
        connection = _usable(free)
        if connection is None:
            connection = await psycopg().AsyncConnection.connect(
                self._outbox.url, autocommit=True, application_name=NAME,
                connect_timeout=CONNECT_TIMEOUT,
            )  # fmt: skip
        try:
            async with connection.transaction():
                yield connection
        finally:
            if not connection.closed:
                free.append(connection)

    def close(self) -> None:
        """Close the connections that no handler uses."""
        free, self._free = self._free, []
        _finish(free)
        for loop in list(self._free_of):
            if not loop.is_running():
                _finish(self._free_of[loop])


def _usable(free: list[Any]) -> Any:
    """Take a connection that the server has not closed meanwhile, or return None."""
    while free:
        found = free.pop()
        # Nothing was requested: any data means the end of the connection.
        if not found.closed and not readable(found, 0):
            return found
        found.pgconn.finish()
    return None


def _finish(free: list[Any]) -> None:
    while free:
        connection = free.pop()
        # Not its close(): that of asyncio needs its loop.
        connection.pgconn.finish()


_parents: dict[int, list[Any]] = {}
"""Connections of a parent: kept, because to drop them would end them for the parent."""
