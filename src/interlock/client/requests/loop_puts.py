"""Coalesced puts of the tasks of a loop: one more task sends what has gathered; see
`coalesced_puts`."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import time
from collections.abc import Awaitable, Callable
from contextvars import Context

from interlock.client.requests.coalesced_puts import Send, next_call
from interlock.client.wire import messages as wire
from interlock.errors import ShutDown
from interlock.message import Put
from interlock.runtime.limits import MAX_BATCH

_LONGEST = 3600.0
"""Seconds of one timer."""


class LoopPuts:
    """The puts that the tasks of one loop make into one queue; arguments as of `ThreadPuts`."""

    def __init__(
        self,
        carry: Callable[[list[Send]], Awaitable[object]],
        alone: Callable[[wire.Message, float | None, bool], Awaitable[Put]],
        timeout: float,
        linger: float,
    ) -> None:
        self._carry = carry
        self._alone = alone
        self._timeout = timeout
        self._linger = linger
        self._pending: collections.deque[Send] = collections.deque()
        self._in_flight: list[Send] = []
        self._waiting = 0
        """Number of puts that wait for room."""
        self._is_sending = False
        self._full = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        """The task that sends what has gathered."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_end = 0.0

    async def put(self, message: wire.Message, end: float | None, bounded: bool) -> Put:
        """Put a message; see `Handle.put`."""
        send = Send(self._timeout, message, end, bounded, self._linger)
        if not self._waiting and send.may_linger:
            if self._is_sending or self._linger:
                await self._gather(send)
            else:
                self._is_sending = True
                try:
                    await self._carry([send])
                finally:
                    self._is_sending = False
                    if self._pending:
                        self._begin()
            if send.put is not None:
                return send.put
            if send.error is not None:
                raise send.error
        self._waiting += 1
        try:
            return await self._alone(message, end, bounded)
        finally:
            self._waiting -= 1

    def end(self, error: ShutDown) -> None:
        """Refuse the puts that have not been sent."""
        while self._pending:
            send = self._pending.popleft()
            send.refused(error)
            _resolve(send)

    async def _gather(self, send: Send) -> None:
        """Wait until a put was sent with others. Without an outcome its caller sends it."""
        send.future = asyncio.get_running_loop().create_future()
        self._pending.append(send)
        if not self._is_sending:
            self._begin()
        if len(self._pending) == MAX_BATCH:
            self._full.set()
        if self._timer is None or send.deadline < self._timer_end:
            self._watch(send.deadline)
        try:
            await send.future
        except asyncio.CancelledError:
            send.gone = True
            raise

    def _begin(self) -> None:
        self._is_sending = True
        # In an empty context: it outlives the caller that happens to begin it.
        begin = asyncio.get_running_loop().create_task
        self.task = Context().run(begin, self._send_gathered(), name="interlock-puts")

    async def _send_gathered(self) -> None:
        try:
            while self._pending:
                if self._linger:
                    await self._wait_for_more()
                await self._send()
                # Callers that put again immediately are in the next call.
                await asyncio.sleep(0)
        finally:
            self._is_sending = False
            # There are some if it was cancelled: their callers send them.
            while self._pending:
                _resolve(self._pending.popleft())

    async def _wait_for_more(self) -> None:
        self._full.clear()
        left = self._pending[0].since + self._linger - time.monotonic()
        if left > 0 and len(self._pending) < MAX_BATCH:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._full.wait()

    async def _send(self) -> None:
        """Send one call, and let its callers continue."""
        sends = self._in_flight = next_call(self._pending)
        failure: BaseException | None = None
        try:
            if sends:
                await self._carry(sends)
        except BaseException as error:
            failure = error
            if not isinstance(error, Exception):
                raise
        finally:
            self._in_flight = []
            for send in sends:
                if failure is not None and send.is_open:
                    send.refused(failure)
                _resolve(send)

    def _watch(self, deadline: float) -> None:
        """End the waits whose time is over, at this time; one timer serves all."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_end = deadline
        left = min(max(deadline - time.monotonic(), 0.0), _LONGEST)
        self._timer = asyncio.get_running_loop().call_later(left, self._end_late)

    def _end_late(self) -> None:
        self._timer = None
        now = time.monotonic()
        waiting = [send for send in (*self._in_flight, *self._pending) if not send.future.done()]
        for send in waiting:
            if send.deadline <= now:
                send.gone = True
                send.error = send.late()
                _resolve(send)
        later = [send.deadline for send in waiting if send.deadline > now]
        if later:
            self._watch(min(later))


def _resolve(send: Send) -> None:
    if not send.future.done():
        send.future.set_result(None)
