"""Detects whether a worker handles an app's sends into its own process's memory.

An engine in memory is for a worker of the same program, and for tests. A program that merely lacks
the engine's URL would otherwise lose all its messages silently.
"""

from __future__ import annotations

import atexit
import logging
import weakref
from typing import Any

from interlock.errors import EngineUnavailable, InterlockError
from interlock.runtime import forks

__all__ = ["Reach", "check_engine", "served"]

_log = logging.getLogger("interlock.app")

_served: set[str] = set()
_kept: dict[str, Memory] = {}
in_pool = False
"""This is a process of a worker's pool."""
others: dict[str, Any] = {}
"""In such a process: the changes that the worker's program has made to its other apps, by their
names; see ``process_setup.Other``."""


class Memory:
    """The queues of one engine in memory into which tasks were sent."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._forks = forks.count
        self.queues: set[str] = set()

    def report(self) -> None:
        """Log the number of remaining messages: they will not be handled."""
        if self._forks != forks.count:
            # The child of a fork: the engine belongs to the parent.
            return
        for name in sorted(self.queues):
            try:
                left = self._client.queue(name, bytes).stats().unsettled
            except InterlockError:
                continue
            if left:
                messages = "1 message" if left == 1 else f"{left} messages"
                _log.error(
                    "%s of queue %r not handled, and lost with the memory of this process (%s)",
                    messages, name, self._client.url, extra={"queue": name, "unsettled": left},
                )  # fmt: skip


class Reach:
    """The queues in memory into which one app has sent through one client."""

    def __init__(self, app: Any, client: Any, url: str | None, has_worker: bool) -> None:
        """Check, at the first send, whether a worker handles the messages.

        Args:
            url: the engine as it was given; None: none was given.

        Raises:
            EngineUnavailable: no engine was given, and this process has no worker.
        """
        self._memory: Memory | None = None
        self._end: Any = None
        if not client._in_memory:
            return
        if not (has_worker or (url in _served)):
            if url is None:
                raise EngineUnavailable(NOWHERE)
            _log.warning(
                "tasks are sent into the memory of this process (%s), which has no worker yet; "
                "messages not handled when the process ends are lost",
                client.url,
            )
        if client._is_shared:
            # A named engine, which other clients in this process may use, now or later.
            if client.url not in _kept:
                _kept[client.url] = Memory(client._again())
            self._memory = _kept[client.url]
        else:
            self._memory = Memory(client)
            self._end = weakref.finalize(app, self._memory.report)

    def sent(self, queue: str) -> None:
        """Note that a task is sent to this queue."""
        if self._memory is not None:
            self._memory.queues.add(queue)

    def close(self) -> None:
        """Report the messages left in an engine without a name, which ends with its client.

        To be called before the client is closed.
        """
        if self._end is not None:
            self._end()


def check_engine(url: str) -> None:
    """Raise EngineUnavailable if this is a process of a pool and the engine is in memory."""
    if in_pool and url.startswith("memory:"):
        raise EngineUnavailable(NOT_IN_POOL)


def served(url: str) -> None:
    """Note that a worker in this process leases from it."""
    _served.add(url)


@atexit.register
def _at_exit() -> None:
    for memory in _kept.values():
        memory.report()


NOWHERE = (
    "no engine is named, and no worker runs in this process: messages would stay in its memory "
    "and be lost with it. Set INTERLOCK_URL or App(url=...). Use App('memory://') if a worker "
    "of this process will handle them, and app.testing() in tests"
)
NOT_IN_POOL = (
    "the engine is in the memory of the worker's process, and this handler runs in a process of "
    "its pool, which does not share that memory. To send tasks or to wait for results in handlers, "
    "use pool='thread' or 'asyncio', or an engine on a hub or Redis"
)
