"""A lease of a message on an engine, for asyncio."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar

from interlock.client.requests.lease_state import OPEN, LeaseState, extension
from interlock.client.wire import messages as wire
from interlock.errors import LeaseLost
from interlock.retry import Seconds

if TYPE_CHECKING:
    from interlock.client.faces.aio_queue import AsyncRemoteQueue  # asyncio
    # threads: from interlock.client.faces.queue import RemoteQueue

T = TypeVar("T")


class AsyncRemoteLease(LeaseState[T]):
    """The right to handle one message, until it is settled; renewed as long as it is held.

    As a context manager it yields the payload and acknowledges on success; on an exception it
    returns the message by the retry policy and propagates the exception; ``RetryAfter`` and
    ``Reject`` choose the outcome. A lease that is dropped unsettled counts as a failed attempt,
    with a warning.
    """

    __slots__ = ()
    _of: AsyncRemoteQueue[T]

    async def ack(self, result: Any = None) -> None:
        """Settle the message as handled: its lanes advance.

        Args:
            result: kept for as long as the put asked for, see ``RemoteQueue.result``.

        Raises:
            LeaseLost: the lease was settled, expired or was revoked; nothing was changed.
            EngineUnavailable: the engine did not answer in time.
        """
        self._check_open()
        await self._settle(self.acking, result)

    async def nack(
        self, delay: Seconds | None = None, error: BaseException | str | None = None
    ) -> None:
        """Settle the message as not handled: it is redelivered in its original position, or given
        up.

        Args:
            delay: seconds until then. Default: the backoff of the retry policy.
            error: why, for the logs and the dead letter.

        Raises:
            LeaseLost, EngineUnavailable: as for ``ack``.
        """
        self._check_open()
        await self._settle(self.nacking, delay, error)

    async def reject(self, reason: str) -> None:
        """Reject the message, which cannot be handled: make it a dead letter. Raises as ``ack``."""
        self._check_open()
        await self._settle(self.rejecting, reason)

    async def release(self) -> None:
        """Release the message, whose handling never began: it keeps its position and attempt.

        Raises as ``ack``.
        """
        self._check_open()
        await self._settle(self.releasing)

    async def extend(self, seconds: Seconds) -> None:
        """Set the deadline to this many seconds from now. Raises as ``ack``."""
        self._check_open()
        length = extension(seconds)
        started = time.monotonic()
        of, grant = self._of, self._grant
        if not await of._run(of._handle, grant.handle.extend, self.token, length):
            self._took(wire.LOST)
        grant.extended(length, started)
        grant.renewer.sooner(grant)

    # asyncio:
    def __enter__(self) -> NoReturn:
        raise TypeError("a lease of the asyncio face is entered with 'async with'")

    def __exit__(self, _kind: object, _error: object, _traceback: object) -> None:
        """Do nothing: it is never reached."""

    # both:
    async def __aenter__(self) -> T:
        return self._entered()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[False]:
        self._left()
        if self._state != OPEN:
            return False
        if error is None:
            await self.ack()
            return False
        # The handler's own exception is more useful than the loss of its lease.
        with contextlib.suppress(LeaseLost):
            await self._settle(self._judged, error)
        return False

    async def _give_up(self, error: BaseException | str) -> None:
        self._check_open()
        await self._settle(self._giving_up, error)

    async def _settle(self, how: Callable[..., wire.Settlement], *arguments: Any) -> None:
        of = self._of
        try:
            # Created here: it counts as settled from then on, and Ctrl-C may follow immediately.
            settlements = [how(*arguments)]
            answers = await of._run(of._handle, self._grant.handle.settle, settlements)
        except BaseException:
            self._reopened()
            raise
        self._took(answers[0])
