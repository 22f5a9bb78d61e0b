"""Transactions for handlers: on the program's own connections, or on some of the outbox."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

from interlock.runtime import forks

__all__ = ["ENDED", "Transactions"]

ENDED = (
    "the worker commits the transaction of a handler when the handler returns: leave out commit, "
    "rollback, executescript() and `with` on the connection; savepoints are allowed"
)
"""The error of a handler that ends its transaction itself."""


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
        database = self._outbox.database
        found = _usable(database, self._free)
        connection = database.connect() if found is None else found
        ended = _End(database, connection, self._free)
        with ended, database.transaction(connection), ended.watched():
            yield connection

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
            weakref.finalize(loop, _drop, self._outbox.database, free)
        database = self._outbox.database
        found = _usable(database, free)
        connection = await database.aconnect() if found is None else found
        ended = _End(database, connection, free)
        with ended:
            async with database.atransaction(connection):
                with ended.watched():
                    yield connection

    def close(self) -> None:
        """Close the connections that no handler uses."""
        free, self._free = self._free, []
        if free:
            _drop(self._outbox.database, free)
        for loop in list(self._free_of):
            if not loop.is_running():
                _drop(self._outbox.database, self._free_of[loop])


class _End:
    """Keeps a connection for the next handler, if it is known how its transaction ended.

    It is not if the begin, the commit or the rollback itself failed or was cancelled.
    """

    def __init__(self, database: Any, connection: Any, free: list[Any]) -> None:
        self._database, self._connection, self._free = database, connection, free
        self._raised: BaseException | None = None
        """By the handler."""

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self._raised = error
            raise

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is self._raised:
            self._free.append(self._connection)
        else:
            self._database.drop(self._connection)


def _usable(database: Any, free: list[Any]) -> Any:
    """Take a connection that the server has not closed meanwhile, or return None."""
    while free:
        found = free.pop()
        if database.is_usable(found):
            return found
        database.drop(found)
    return None


def _drop(database: Any, free: list[Any]) -> None:
    while free:
        database.drop(free.pop())


_parents: dict[int, list[Any]] = {}
"""Connections of a parent: kept, because to drop them would end them for the parent."""
