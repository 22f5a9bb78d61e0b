"""Access to an engine: a client's operator, whose blocking calls run on threads."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, TypeVar

from interlock.client.admin.operator import Operator
from interlock.client.admin.queue_counts import QueueCounts
from interlock.client.admin.server import Server
from interlock.client.faces.client import Client
from interlock.dashboard.polling.watcher import Watcher
from interlock.dashboard.refusal import Refusal

P = ParamSpec("P")
R = TypeVar("R")

THREADS = 8
"""Concurrent calls of one login."""
WAITING = 64
"""Calls that may wait for a thread; a further one is refused with a request to retry."""


class Access:
    """The engine as one login sees it: with its rights, over its connections."""

    def __init__(self, client: Client, user: str | None = None) -> None:
        self.client = client
        self.user = user
        """None: not logged in."""
        self.operator = Operator(Server(client))
        self.counts = QueueCounts()
        self.watcher = Watcher(self)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="interlock-dashboard")
        # Separate threads, so that live figures continue while others search a large queue.
        self._watching = ThreadPoolExecutor(2, thread_name_prefix="interlock-dashboard-live")
        self._calls = 0

    async def run(
        self,
        function: Callable[Concatenate[Operator, P], R],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> R:
        """Call a function with the operator on a thread.

        Raises:
            Refusal: too many calls wait already.
        """
        if self._calls >= THREADS + WAITING:
            raise Refusal(503, "too many requests wait for the engine; try again")
        self._calls += 1

        def call() -> R:
            return function(self.operator, *arguments, **named)

        # With the context, in which the audit log finds the user.
        run = contextvars.copy_context().run
        waits = asyncio.get_running_loop().run_in_executor(self._threads, run, call)
        waits.add_done_callback(self._ended)
        return await waits

    async def watch(
        self,
        function: Callable[Concatenate[Operator, P], R],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> R:
        """Call a function with the operator for live views, which are few."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._watching, lambda: function(self.operator, *arguments, **named)
        )

    def _ended(self, waits: asyncio.Future[Any]) -> None:
        self._calls -= 1
        if not waits.cancelled():
            # Read, so that asyncio does not report the error after the caller has gone.
            waits.exception()

    def close(self) -> None:
        """Close the connections; calls under way end with an error."""
        self.watcher.close()
        self.client.close()
        for threads in (self._threads, self._watching):
            threads.shutdown(wait=False, cancel_futures=True)
