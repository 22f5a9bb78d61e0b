"""``RemoteQueue.consume``: a handler run for every message, settled with the next lease."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue as _queue
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from interlock.aio import called, stack_of
from interlock.client.faces import handler_time
from interlock.client.faces.aio_lease import AsyncRemoteLease
from interlock.client.faces.batch import LeasedBatch, exchange, settle
from interlock.client.faces.consumed_batch import NOTHING, BatchWatch, ConsumedBatch
from interlock.client.faces.exclusive_turns import AsyncTurns, Turns
from interlock.client.faces.handler_time import HandlerTime
from interlock.client.faces.lease import RemoteLease
from interlock.client.requests.result_wait import Taker
from interlock.client.wire import messages as wire
from interlock.consumer import Consumer, check, judge, log_given_back
from interlock.errors import EngineUnavailable, InterlockError, ShutDown
from interlock.message import Kind, _current
from interlock.retry import Seconds
from interlock.runtime import forks

if TYPE_CHECKING:
    from interlock.client.faces.aio_queue import AsyncRemoteQueue
    from interlock.client.faces.queue import RemoteQueue

_log = logging.getLogger("interlock.worker")
_AGAIN = 1.0
"""Seconds after which an unreachable engine is tried again."""
_LONGEST_WAIT = 10.0
"""Seconds for which a call waits for work."""


class RemoteConsumer(Consumer):
    """A handler that runs for every message of a queue on an engine, until ``stop``.

    While it is quick, each thread leases batches and reads them directly from the reply; see
    ``LeasedBatch``. If a message of a batch takes long, a watching thread returns those that have
    not begun, so that they need not wait (clause 5).
    """

    def __init__(
        self,
        queue: RemoteQueue[Any],
        handler: Callable[[Any], object],
        threads: int,
        timeout: float | None,
        kind: Kind,
    ) -> None:
        # A separate handle: closing it ends only its own waits.
        self._taking = queue._again()
        self._watch = BatchWatch(self._taking)
        self._turns = Turns()
        self._taker = Taker(self._taking._handle.engine, [queue.name], threads)
        self._left: list[None] = []
        """One item for each thread that has ended."""
        super().__init__(queue, handler, threads, timeout, kind)  # type: ignore[arg-type]

    def stop(self, timeout: Seconds | None = None) -> bool:
        """Take no further messages, and wait for the running handlers; see ``Consumer.stop``."""
        self._stopping = True
        self._taking.close()
        return super().stop(timeout)

    def _leave(self, threads: int) -> None:
        super()._leave(threads)
        self._left += [None] * threads
        # The last of its threads ends the watch.
        if len(self._left) == len(self._bells):
            self._watch.stop()
            self._taker.close()

    def _run(self, bell: _queue.SimpleQueue[None]) -> None:
        times = HandlerTime()
        settled: list[wire.Settlement] = []
        try:
            while not self._stopping:
                settled = self._turn(settled, bell, times)
        except ShutDown:
            # The pending settlements were sent before that was found.
            return
        if settled:
            try:
                _say_lost(self._taking.name, settle(self._taking, settled))
            finally:
                self._turns.leave()

    def _turn(
        self, settled: list[wire.Settlement], bell: _queue.SimpleQueue[None], times: HandlerTime
    ) -> list[wire.Settlement]:
        # A thread with pending settlements is still in its turn: no handler runs alone before that.
        if settled and self._turns.is_awaited:
            self._settle(settled)
            settled = []
            self._turns.leave()
        if not settled:
            # Another is handled alone: nothing is leased meanwhile.
            while not self._turns.enter():
                self._turns.wait()
        done: list[wire.Settlement] = []
        try:
            asked, lease = time.monotonic(), self._taking._handle.lease
            batch = self._lease(settled, bell, times, asked + min(lease / 3, _LONGEST_WAIT))
            if batch is None:
                return []
            if not batch.alone:
                done = self._handle_batch(batch, times, asked + lease)
                return done
            begins = len(self._bells) == 1 or self._extended(batch, True)
        finally:
            if not done:
                self._turns.leave()
        with self._turns.alone():
            if begins and self._extended(batch, False):
                # Settled before the next may begin alone: if that one ends this process, this
                # message, which has succeeded, is not charged for it.
                self._settle(self._handle_batch(batch, times, time.monotonic() + lease))
                return []
        # No handler begins it, whether the engine knows that or not.
        batch.all_settled()
        self._settle([wire.releasing(batch.token, int(batch.reply[batch.places[0]]))])
        return []

    def _settle(self, settled: list[wire.Settlement]) -> None:
        try:
            _say_lost(self._taking.name, settle(self._taking, settled))
        except EngineUnavailable as error:
            # As in ``_lease``: it may have been settled, and its lease is no longer renewed.
            _log.warning("%s", error)

    def _lease(
        self,
        settled: list[wire.Settlement],
        bell: _queue.SimpleQueue[None],
        times: HandlerTime,
        until: float,
    ) -> LeasedBatch | None:
        limit = 1 if self._watchdog is not None else times.batch_size
        try:
            answers, batch = exchange(self._taking, settled, limit, until, self._kind)
        except EngineUnavailable as error:
            _log.warning("%s", error)
            with contextlib.suppress(_queue.Empty):
                bell.get(timeout=_AGAIN)
            # The settlements may have been applied; their leases are no longer renewed.
            return None
        _say_lost(self._taking.name, answers)
        return batch

    def _extended(self, batch: LeasedBatch, waits: bool) -> bool:
        """Report to the engine whether the handler of a message that must run alone has begun.
        False: it must not begin."""
        if waits:
            batch.grant.wait_for_turn()
        else:
            batch.grant.begins()
        handle, started = self._taking._handle, time.monotonic()
        try:
            kept = self._taking._run(None, handle.extend, batch.token, handle.lease, waits)
            batch.grant.extended(handle.lease, started)
            return kept
        except InterlockError as error:
            _log.warning("%s", error)
            return False

    def _handle_batch(
        self, batch: LeasedBatch, times: HandlerTime, leased_until: float
    ) -> list[wire.Settlement]:
        run = ConsumedBatch(self._taking, batch)
        if len(batch.places) > 1:
            self._watch.begin(run)
        clock, began = time.monotonic, time.monotonic()
        until = min(began + handler_time.LONGEST_RUN, leased_until)
        token = _current.set(None)
        try:
            if began > leased_until:
                # No call waits this long: this process was frozen, so the lease may have expired.
                run.release_rest()
            while (at := run.next()) is not None:
                self._handle_one(run, at)
                if self._stopping or clock() > until:
                    run.release_rest()
        finally:
            _current.reset(token)
            self._watch.end(run)
        times.batch_ended(clock() - began, len(run.settled))
        return run.settlements()

    def _handle_one(self, run: ConsumedBatch, at: int) -> None:
        payload = run.payload(at)
        if payload is NOTHING:
            return
        began = forks.count
        if self._watchdog is None:
            _current.set((run, at))
            try:
                self._handler(payload)
            except BaseException as error:
                forks.end_if_forked(began, error)
                run.settled.append(_failed(run.lease(at), error))
            else:
                forks.end_if_forked(began)
                run.handled(at)
            return
        lease = run.lease(at)
        _current.set(lease)
        self._watchdog.begin(lease)  # type: ignore[arg-type]
        lease._grant.bound(lease.id, time.monotonic() + self._watchdog.timeout)
        try:
            self._handler(payload)
        except BaseException as error:
            forks.end_if_forked(began, error)
            run.settled.append(_failed(lease, error))
        else:
            forks.end_if_forked(began)
            run.handled(at)
        finally:
            self._watchdog.end(lease)  # type: ignore[arg-type]
            lease._grant.bound(lease.id, None)


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
    turns = AsyncTurns() if threads > 1 else None

    async def work() -> None:
        settled: list[wire.Settlement] = []
        with contextlib.suppress(ShutDown):
            while True:
                settled = await _turn(queue, handler, settled, limit, kind, turns)

    with contextlib.closing(Taker(queue._handle.engine, [queue.name], threads)):
        async with asyncio.TaskGroup() as group:
            for _ in range(threads):
                group.create_task(work())


async def _turn(
    queue: AsyncRemoteQueue[Any],
    handler: Callable[[Any], Awaitable[object]],
    settled: list[wire.Settlement],
    timeout: float | None,
    kind: Kind,
    turns: AsyncTurns | None,
) -> list[wire.Settlement]:
    # As in ``RemoteConsumer._turn``.
    if settled and turns is not None and turns.is_awaited:
        try:
            await _settle_last(queue, *settled)
        finally:
            turns.leave()
        settled = []
    if not settled and turns is not None:
        while not turns.enter():
            await turns.wait()
    suspect: AsyncRemoteLease[Any] | None = None
    done: list[wire.Settlement] = []
    try:
        # Limited: a handler that must run alone waits until this call has returned.
        wait = min(queue._handle.lease / 3, _LONGEST_WAIT)
        answers, leases = await queue._run(
            queue._handle, queue._handle.exchange, queue, AsyncRemoteLease, "consume()",
            settled, 1, True, wait, kind, False, turns is None,
        )  # fmt: skip
        _say_lost(queue.name, answers)
        for lease in leases:
            if turns is not None and lease._grant.alone:
                suspect = lease
                suspect._grant.wait_for_turn()
            else:
                done.append(await _handled(queue, handler, lease, timeout))
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # The handler did not propagate it.
            await _settle_last(queue, *done)
            done = []
            raise asyncio.CancelledError
    except EngineUnavailable as error:
        _log.warning("%s", error)
        await asyncio.sleep(_AGAIN)
        return []
    finally:
        if turns is not None and not done:
            turns.leave()
    if turns is not None and suspect is not None:
        lost = await _alone(queue, handler, suspect, timeout, turns)
        if lost:
            await _settle_last(queue, *lost)
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
    return done


async def _alone(
    queue: AsyncRemoteQueue[Any],
    handler: Callable[[Any], Awaitable[object]],
    lease: AsyncRemoteLease[Any],
    timeout: float | None,
    turns: AsyncTurns,
) -> list[wire.Settlement]:
    begun = False
    try:
        if await _extended(queue, lease, True):
            async with turns.alone():
                if await _extended(queue, lease, False):
                    begun = True
                    ended = await _handled(queue, handler, lease, timeout)
                    # As in ``RemoteConsumer._turn``: settled before the next may begin alone.
                    await _settle_last(queue, ended)
                    return []
    except asyncio.CancelledError:
        if not begun:
            await _settle_last(queue, lease.releasing())
        raise
    # Lost, or the engine is unreachable; either way no handler has begun.
    lease.stop_renewing()
    return [wire.releasing(lease.token, lease.id)]


async def _extended(
    queue: AsyncRemoteQueue[Any], lease: AsyncRemoteLease[Any], waits: bool
) -> bool:
    """See ``RemoteConsumer._extended``."""
    grant, handle, started = lease._grant, queue._handle, time.monotonic()
    if not waits:
        grant.begins()
    try:
        kept = await queue._run(None, handle.extend, grant.token, handle.lease, waits)
    except InterlockError as error:
        _log.warning("%s", error)
        return False
    grant.extended(handle.lease, started)
    return kept


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
        # Before the lease becomes the current one, which the alarm's task would inherit.
        alarm = asyncio.create_task(_revoke(queue, lease, timeout, task))
        lease._grant.bound(lease.id, time.monotonic() + timeout)
    token = _current.set(lease)
    try:
        await called(handler, lease.payload)
    except (KeyboardInterrupt, SystemExit, GeneratorExit) as error:
        await _settle_last(queue, _failed(lease, error))
        raise
    except asyncio.CancelledError as error:
        if task.cancelling():
            # The consumer was cancelled; the message is not at fault.
            await _settle_last(queue, lease.releasing())
            log_given_back(lease)  # type: ignore[arg-type]
            raise
        # Something that the handler awaited was cancelled; the consumer continues.
        return _failed(lease, error, "was cancelled")
    except BaseException as error:
        return _failed(lease, error)
    else:
        return lease.acking()
    finally:
        if alarm is not None:
            alarm.cancel()
            lease._grant.bound(lease.id, None)
        # When collected with its loop, a task ends in another context than it began in.
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
            "message %d was handled for more than %.3g s; its lease is revoked. The handler is "
            "at\n%s",
            lease.id,
            timeout,
            stack_of(task),
            extra={"queue": lease.queue, "id": lease.id, "token": lease.token},
        )


def _failed(
    lease: RemoteLease[Any] | AsyncRemoteLease[Any], error: BaseException, what: str = "raised"
) -> wire.Settlement:
    return lease._failing(judge(lease._of._retry, lease, error, what))  # type: ignore[arg-type]


def _say_lost(queue: str, answers: Sequence[str | bytes]) -> None:
    """Log that a lease expired or was revoked while the handler ran: the outcome is already
    decided."""
    if "lost" in answers or wire.LOST in answers:
        _log.warning(
            "queue %r: the lease of a message was lost while it was handled; the outcome of its "
            "handler is ignored",
            queue,
            extra={"queue": queue},
        )
