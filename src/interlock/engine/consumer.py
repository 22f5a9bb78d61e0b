"""``RemoteQueue.consume``: a handler run for every message, settled with the next lease."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import queue as _queue
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from interlock.aio import stack_of
from interlock.consumer import Consumer, check, log_failure, log_given_back
from interlock.engine import wire
from interlock.engine.aio_lease import AsyncRemoteLease
from interlock.engine.lease import RemoteLease
from interlock.errors import EngineUnavailable, ShutDown
from interlock.failure import judged
from interlock.message import Kind, _current
from interlock.retry import Retry, Seconds

if TYPE_CHECKING:
    from interlock.engine.aio import AsyncRemoteQueue
    from interlock.engine.queue import RemoteQueue

_log = logging.getLogger("interlock.worker")
_AGAIN = 1.0
"""Seconds after which an engine that could not be reached is asked again."""


class RemoteConsumer(Consumer):
    """A handler that runs for every message of a queue on an engine, until ``stop``."""

    def __init__(
        self,
        queue: RemoteQueue[Any],
        handler: Callable[[Any], object],
        threads: int,
        timeout: float | None,
        kind: Kind,
    ) -> None:
        # A handle of its own: to close it ends the waits, and nobody else's.
        self._taking = queue._again()
        super().__init__(queue, handler, threads, timeout, kind)  # type: ignore[arg-type]

    def stop(self, timeout: Seconds | None = None) -> bool:
        """Takes no more messages, and waits for the handlers that run; see ``Consumer.stop``."""
        self._stopping = True
        self._taking.close()
        return super().stop(timeout)

    def _run(self, bell: _queue.SimpleQueue[None]) -> None:
        settled: list[wire.Settlement] = []
        try:
            while not self._stopping:
                settled = self._turn(settled, bell)
        except ShutDown:
            # What was to be settled was settled before that was found.
            return
        if settled:
            _say_lost(self._taking.name, self._taking.settle(settled))

    def _turn(
        self, settled: list[wire.Settlement], bell: _queue.SimpleQueue[None]
    ) -> list[wire.Settlement]:
        # A function of its own, so that no name holds the last message while the next is awaited.
        try:
            answers, leases = self._taking.exchange(settled, 1, kind=self._kind)
        except EngineUnavailable as error:
            _log.warning("%s", error)
            with contextlib.suppress(_queue.Empty):
                bell.get(timeout=_AGAIN)
            # What was to be settled may have been; its lease is not renewed any more.
            return []
        _say_lost(self._taking.name, answers)
        return [self._handled(lease) for lease in leases if not lease.lost]

    def _handled(self, lease: RemoteLease[Any]) -> wire.Settlement:
        token = _current.set(lease)
        if self._watchdog is not None:
            self._watchdog.begin(lease)  # type: ignore[arg-type]
        try:
            self._handler(lease.payload)
        except BaseException as error:
            return _failed(self._taking._retry, lease, error)
        else:
            return lease.acking()
        finally:
            if self._watchdog is not None:
                self._watchdog.end(lease)  # type: ignore[arg-type]
            _current.reset(token)


def consume(
    queue: RemoteQueue[Any],
    handler: Callable[[Any], object],
    threads: int,
    timeout: Seconds | None,
    kind: Kind,
) -> Consumer:
    """See ``RemoteQueue.consume``."""
    return RemoteConsumer(queue, handler, threads, check(handler, threads, timeout, kind), kind)


async def consume_async(
    queue: AsyncRemoteQueue[Any],
    handler: Callable[[Any], Awaitable[object]],
    threads: int,
    timeout: Seconds | None,
    kind: Kind,
) -> None:
    """See ``AsyncRemoteQueue.consume``."""
    limit = check(handler, threads, timeout, kind)

    async def work() -> None:
        settled: list[wire.Settlement] = []
        with contextlib.suppress(ShutDown):
            while True:
                settled = await _turn(queue, handler, settled, limit, kind)

    async with asyncio.TaskGroup() as group:
        for _ in range(threads):
            group.create_task(work())


async def _turn(
    queue: AsyncRemoteQueue[Any],
    handler: Callable[[Any], Awaitable[object]],
    settled: list[wire.Settlement],
    timeout: float | None,
    kind: Kind,
) -> list[wire.Settlement]:
    try:
        answers, leases = await queue.exchange(settled, 1, kind=kind)
    except EngineUnavailable as error:
        _log.warning("%s", error)
        await asyncio.sleep(_AGAIN)
        return []
    _say_lost(queue.name, answers)
    settled = [await _handled(queue, handler, lease, timeout) for lease in leases]
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        # The handler kept it to itself.
        await _settle_last(queue, *settled)
        raise asyncio.CancelledError
    return settled


async def _handled(
    queue: AsyncRemoteQueue[Any],
    handler: Callable[[Any], Awaitable[object]],
    lease: AsyncRemoteLease[Any],
    timeout: float | None,
) -> wire.Settlement:
    task = asyncio.current_task()
    assert task is not None
    alarm: asyncio.Task[None] | None = None
    if timeout is not None:
        # Before the lease becomes the current one, which the task of the alarm would inherit.
        alarm = asyncio.create_task(_revoke(queue, lease, timeout, task))
    token = _current.set(lease)
    policy = queue._retry
    try:
        done = handler(lease.payload)
        if inspect.isawaitable(done):
            await done
    except (KeyboardInterrupt, SystemExit, GeneratorExit) as error:
        await _settle_last(queue, _failed(policy, lease, error))
        raise
    except asyncio.CancelledError as error:
        if task.cancelling():
            # The consumer itself: no fault of the message's.
            await _settle_last(queue, lease.releasing())
            log_given_back(lease)  # type: ignore[arg-type]
            raise
        # What a handler awaited was cancelled; the consumer goes on.
        return _failed(policy, lease, error, "was cancelled")
    except BaseException as error:
        return _failed(policy, lease, error)
    else:
        return lease.acking()
    finally:
        if alarm is not None:
            alarm.cancel()
        # Collected with its loop, a task ends in another context than it began in.
        with contextlib.suppress(ValueError):
            _current.reset(token)


async def _settle_last(queue: AsyncRemoteQueue[Any], *settled: wire.Settlement) -> None:
    with contextlib.suppress(EngineUnavailable):
        _say_lost(queue.name, await queue.settle(settled))


async def _revoke(
    queue: AsyncRemoteQueue[Any],
    lease: AsyncRemoteLease[Any],
    timeout: float,
    task: asyncio.Task[Any],
) -> None:
    await asyncio.sleep(timeout)
    lease.stop_renewing()
    if await queue._revoke_token(lease.token, lease.id):
        _log.error(
            "message %d was handled for more than %.3g s; its lease is revoked. "
            "The handler stands at\n%s",
            lease.id,
            timeout,
            stack_of(task),
            extra={"queue": lease.queue, "id": lease.id, "token": lease.token},
        )


def _failed(
    policy: Retry,
    lease: RemoteLease[Any] | AsyncRemoteLease[Any],
    error: BaseException,
    what: str = "raised",
) -> wire.Settlement:
    failure = judged(error, policy.on)
    if not failure.steered:
        log_failure(policy, lease, failure, error, what)  # type: ignore[arg-type]
    return lease._failing(failure)


def _say_lost(queue: str, answers: list[str]) -> None:
    """Revoked or run out while the handler ran: somebody decided already."""
    if "lost" in answers:
        _log.warning(
            "queue %r: the lease of a message was lost while it was handled; what its handler "
            "ended with counts for nothing",
            queue,
            extra={"queue": queue},
        )
