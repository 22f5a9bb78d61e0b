"""Links to an engine in this process: the hub's functions, without a hub."""

from __future__ import annotations

import asyncio
import contextlib
import queue as _queue
import threading
from typing import Any

from interlock import _core
from interlock.client.request import Argument, Broken, Refused, Reply
from interlock.client.transport.memory_rows import MemoryTables
from interlock.runtime.green_threads import refuse_green_threads


class MemoryEngine:
    """An engine of this process, and the thread that advances its time once a call waits."""

    def __init__(self, clock: _core.ManualClock | None = None) -> None:
        refuse_green_threads("memory://")
        self.core = _core.Engine(clock)
        self.tables = MemoryTables()
        self._clock = clock
        self._started = False

    @property
    def is_manual(self) -> bool:
        """Its time is controlled by a test."""
        return self._clock is not None

    def begin(self, command: tuple[Argument, ...], waker: Any) -> list[bytes] | int:
        """Make a call: return its answer, or the ticket of one that waits."""
        _, function, keys, *rest = command
        key = rest.pop(0) if keys else None
        named = key.encode() if isinstance(key, str) else key
        assert isinstance(function, str)
        assert not isinstance(named, int)
        try:
            found = self.core.start(function, named, rest, waker)
        except _core.EngineError as error:
            raise Refused(str(error)) from None
        if isinstance(found, int) and self._clock is None and not self._started:
            self._started = True
            threading.Thread(
                target=self.core.keep_time, name="interlock-memory", daemon=True
            ).start()
        return found

    def take(self, ticket: int) -> list[bytes]:
        """Return the answer of a call that waited."""
        try:
            return self.core.take(ticket)
        except _core.EngineError as error:
            raise Refused(str(error)) from None


class MemoryLink:
    """A link for threads."""

    is_open = True

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine
        self._bell: _queue.SimpleQueue[int | None] = _queue.SimpleQueue()
        self.interrupted = self.once = False

    def ask(
        self,
        command: tuple[Argument, ...],
        timeout: float,
        before: tuple[Argument, ...] = (),
        nudge: float = 0,
    ) -> Reply:
        """See the link of threads to a server."""
        while not self._bell.empty():
            self._bell.get()
        if self.interrupted:
            raise Broken("interrupted", sent=False)
        found = self._engine.begin(command, self._bell.put)
        if not isinstance(found, int):
            return found
        rung: int | None = None
        try:
            # An interruption may be older than this call: it rang before.
            while not self.interrupted and rung != found:
                rung = self._bell.get(timeout=timeout)
        except _queue.Empty:
            self._engine.core.forget(found)
            raise Broken(f"no answer in {timeout:.3g} s", sent=True) from None
        except BaseException:
            self._engine.core.forget(found)
            raise
        if rung != found:
            self._engine.core.forget(found)
            raise Broken("interrupted", sent=True)
        return self._engine.take(found)

    def ask_all(self, commands: tuple[tuple[Argument, ...], ...], timeout: float) -> list[Reply]:
        """See the link of threads to a server."""
        found: list[Reply] = []
        for command in commands:
            try:
                found.append(self.ask(command, timeout))
            except Refused as error:
                found.append(error)
        return found

    def check(self) -> None:
        """Do nothing: no peer closes this link."""

    def interrupt(self) -> None:
        """End the call in flight, from another thread."""
        self.interrupted = True
        self._bell.put(None)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def forget(self) -> None:
        """Do nothing: there is nothing to forget."""


class AsyncMemoryLink:
    """A link for asyncio."""

    is_open = True

    def __init__(self, engine: MemoryEngine) -> None:
        self._engine = engine
        self._future: asyncio.Future[bool] | None = None
        self.interrupted = self.once = False

    async def ask(
        self,
        command: tuple[Argument, ...],
        timeout: float,
        before: tuple[Argument, ...] = (),
        nudge: float = 0,
    ) -> Reply:
        """See the link of asyncio to a server."""
        if self.interrupted:
            raise Broken("interrupted", sent=False)
        loop = asyncio.get_running_loop()
        future = self._future = loop.create_future()

        def wake(_ticket: int) -> None:
            # The loop may have been closed while a call waited.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_resolve, future, True)

        found = self._engine.begin(command, wake)
        if not isinstance(found, int):
            return found
        try:
            async with asyncio.timeout(timeout):
                answered = await future
        except TimeoutError:
            self._engine.core.forget(found)
            raise Broken(f"no answer in {timeout:.3g} s", sent=True) from None
        except BaseException:
            self._engine.core.forget(found)
            raise
        if not answered:
            self._engine.core.forget(found)
            raise Broken("interrupted", sent=True)
        return self._engine.take(found)

    def check(self) -> None:
        """Do nothing: no peer closes this link."""

    def interrupt(self) -> None:
        """End the call in flight. Called on the link's loop."""
        self.interrupted = True
        if self._future is not None:
            _resolve(self._future, False)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def forget(self) -> None:
        """Do nothing: there is nothing to forget."""


def _resolve(future: asyncio.Future[bool], answered: bool) -> None:
    if not future.done():
        future.set_result(answered)


def engine_of(name: str) -> MemoryEngine:
    """Return the engine of this name, shared within the process; without a name, a new one."""
    if not name:
        return MemoryEngine()
    with _lock:
        if name not in _named:
            _named[name] = MemoryEngine()
        return _named[name]


_named: dict[str, MemoryEngine] = {}
_lock = threading.Lock()
