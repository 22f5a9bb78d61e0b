"""``KeyedQueue.consume``: a handler run for every message, on threads of its own."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from interlock import _core
from interlock.errors import LeaseLost, Reject, RetryAfter, ShutDown
from interlock.message import Lease, _current
from interlock.retry import Seconds, seconds

if TYPE_CHECKING:
    from interlock.queue import KeyedQueue

__all__ = ["Consumer", "consume"]

_log = logging.getLogger("interlock.worker")


class Consumer:
    """A handler that runs for every message of a queue, until ``stop``.

    As a context manager it stops at the end, letting handlers that run finish.
    """

    def __init__(
        self,
        queue: KeyedQueue[Any],
        handler: Callable[[Any], object],
        on: tuple[type[Exception], ...],
        threads: int,
        timeout: float | None,
        kind: str,
    ) -> None:
        self._queue = queue
        self._handler = handler
        self._on = on
        self._kind = kind
        self._stopping = False
        self._called: list[threading.Event] = []
        self._watchdog = _Watchdog(queue, timeout) if timeout is not None else None
        name = getattr(handler, "__name__", type(handler).__name__)
        self._threads = [
            threading.Thread(target=self._run, name=f"{queue.name}-{name}-{n}", daemon=True)
            for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: Seconds | None = None) -> bool:
        """Takes no more messages, and waits for the handlers that run.

        Returns:
            True if all have ended; False if ``timeout`` seconds were not enough.
        """
        self._stopping = True
        for event in self._called:
            event.set()
        return self.join(timeout)

    def join(self, timeout: Seconds | None = None) -> bool:
        """Waits until the consumer has ended: it was stopped, or its queue shut down and drained."""
        import time

        left = None if timeout is None else seconds(timeout, "join(): timeout")
        until = None if left is None else time.monotonic() + left
        for thread in self._threads:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            return False
        if self._watchdog is not None:
            self._watchdog.stop()
        return True

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _run(self) -> None:
        called = threading.Event()
        self._called.append(called)
        try:
            while not self._stopping:
                lease = self._queue._try_get(self._kind) or self._wait(called)
                if lease is None:
                    return
                self._handle(lease)
        except ShutDown:
            return

    def _wait(self, called: threading.Event) -> Lease[Any] | None:
        """The next message; None: the consumer was stopped."""
        wait = _core.Waiter(self._queue, called.set)
        try:
            while True:
                called.clear()
                lease = wait.get(self._kind)
                if lease is not None or self._stopping:
                    return lease
                called.wait(wait.left)
        finally:
            wait.give_up()

    def _handle(self, lease: Lease[Any]) -> None:
        token = _current.set(lease)
        watched = self._watchdog and self._watchdog.begin(lease)
        try:
            self._handler(lease.payload)
        except RetryAfter as steer:
            _settle(lease.nack, steer.seconds, steer)
        except Reject as steer:
            _settle(lease.reject, steer.reason)
        except self._on as error:
            _log.warning("handler of message %d raised", lease.id, exc_info=True, extra=_of(lease))
            _settle(lease.nack, None, error)
        except BaseException as error:
            _log.error("handler of message %d raised", lease.id, exc_info=True, extra=_of(lease))
            if isinstance(error, Exception):
                # Not among those that are retried.
                _settle(lease.reject, f"{type(error).__name__}: {error}")
            else:
                _settle(lease.nack, None, error)
        else:
            _settle(lease.ack)
        finally:
            if watched:
                watched()
            _current.reset(token)


def consume(
    queue: KeyedQueue[Any],
    handler: Callable[[Any], object],
    on: tuple[type[Exception], ...],
    *,
    threads: int,
    timeout: Seconds | None,
    kind: str,
) -> Consumer:
    """See ``KeyedQueue.consume``."""
    if not callable(handler):
        raise TypeError(f"consume(): handler is {type(handler).__name__}; allowed: a callable")
    if not isinstance(threads, int) or isinstance(threads, bool):
        raise TypeError(f"consume(): threads is {type(threads).__name__}; allowed: int")
    if threads < 1:
        raise ValueError(f"consume(): threads is {threads}; allowed: 1 or more")
    if kind not in ("any", "keyed", "unkeyed"):
        raise ValueError(f"consume(): kind is {kind!r}; allowed: 'any', 'keyed', 'unkeyed'")
    limit = None if timeout is None else seconds(timeout, "consume(): timeout")
    return Consumer(queue, handler, on, threads, limit, kind)


def _of(lease: Lease[Any]) -> dict[str, Any]:
    return {
        "queue": lease.queue,
        "id": lease.id,
        "attempt": lease.attempt,
        "token": lease.token,
    }


def _settle(settle: Callable[..., None], *args: Any) -> None:
    try:
        settle(*args)
    except LeaseLost as lost:
        # Revoked or run out while the handler ran: somebody decided already.
        _log.warning("%s", lost)


class _Watchdog:
    """Revokes the leases of handlers that run longer than they may, and logs what they were at."""

    def __init__(self, queue: KeyedQueue[Any], timeout: float) -> None:
        self._queue = queue
        self._timeout = timeout
        self._changed = threading.Condition()
        self._running: dict[int, tuple[float, Lease[Any], int]] = {}
        self._stopped = False
        self._thread = threading.Thread(
            target=self._run, name=f"{queue.name}-timeouts", daemon=True
        )
        self._thread.start()

    def begin(self, lease: Lease[Any]) -> Callable[[], None]:
        import time

        entry = (time.monotonic() + self._timeout, lease, threading.get_ident())
        with self._changed:
            self._running[lease.token] = entry
            self._changed.notify()
        return lambda: self._end(lease.token)

    def _end(self, token: int) -> None:
        with self._changed:
            self._running.pop(token, None)

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        import time

        while True:
            with self._changed:
                if self._stopped:
                    return
                now = time.monotonic()
                late = [entry for entry in self._running.values() if entry[0] <= now]
                for _, lease, _ in late:
                    del self._running[lease.token]
                if not late:
                    first = min((entry[0] for entry in self._running.values()), default=None)
                    self._changed.wait(None if first is None else first - now)
                    continue
            for _, lease, thread in late:
                self._revoke(lease, thread)

    def _revoke(self, lease: Lease[Any], thread: int) -> None:
        frame = sys._current_frames().get(thread)
        stack = "".join(traceback.format_stack(frame)) if frame else "(the thread has ended)"
        if self._queue._revoke_token(lease.token, lease.id):
            _log.error(
                "message %d was handled for more than %.3g s; its lease is revoked. "
                "The handler stands at\n%s",
                lease.id,
                self._timeout,
                stack,
                extra=_of(lease),
            )
