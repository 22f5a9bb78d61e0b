"""A keyed executor's calls in another executor: one of processes, or any other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from interlock import _core
from interlock.errors import LeaseLost, ShutDown
from interlock.message import Lease, _current
from interlock.retry import Retry

if TYPE_CHECKING:
    from interlock.queue import KeyedQueue

__all__ = ["PoolLease", "PoolWork"]


@dataclass(frozen=True, slots=True)
class PoolLease:
    """What ``current_lease()`` gives in another process: the facts of the lease, and no settling."""

    queue: str
    id: int
    keys: frozenset[bytes]
    shared: frozenset[bytes]
    attempt: int
    token: int


class PoolWork:
    """Hands ready calls to a pool, at most ``most`` at once, so that none waits behind a busy one.

    It has no thread: the queue calls it when something is ready, and the pool when a call has ended.
    """

    def __init__(
        self,
        queue: KeyedQueue[Any],
        pool: futures.Executor,
        most: int,
        retry: Retry | None,
    ) -> None:
        self._queue = queue
        self._pool = pool
        self._most = most
        self._on = () if retry is None else retry.on
        self._keep = retry is not None
        self._lock = threading.Lock()
        self._in_flight = 0
        self._pumping = False
        self._again = False
        self._alarm: threading.Timer | None = None
        self.reset()

    def reset(self) -> None:
        """Begins to wait for messages; again in the child of a fork."""
        self._lock = threading.Lock()
        self._in_flight = 0
        self._pumping = False
        self._wait = _core.Waiter(self._queue, self._pump)
        self._pump()

    def _pump(self) -> None:
        # Called from inside of itself (a pool that runs a call at once), it only notes that, for
        # otherwise a long queue would be a deep recursion.
        with self._lock:
            self._again = True
            if self._pumping:
                return
            self._pumping = True
        while True:
            with self._lock:
                if not self._again:
                    self._pumping = False
                    return
                self._again = False
            while self._hand_on():
                pass

    def _hand_on(self) -> bool:
        if self._in_flight >= self._most:
            self._wait.give_up()
            return False
        try:
            lease = self._wait.get("any")
        except ShutDown:
            return False
        if lease is None:
            self._set_alarm(self._wait.left)
            return False
        future = lease.payload
        call = future._begin(self._keep)
        if call is None:
            lease.ack()
            return True
        with self._lock:
            self._in_flight += 1
        facts = PoolLease(
            lease.queue, lease.id, lease.keys, lease.shared, lease.attempt, lease.token
        )
        try:
            inner = self._pool.submit(_call, facts, *call)
        except BaseException as error:
            # A broken pool, or one that was shut down: the lanes stay usable.
            self._ended(lease, future, None, error)
            return True
        inner.add_done_callback(partial(self._done, lease, future))
        return True

    def _set_alarm(self, left: float | None) -> None:
        # Something falls due later (a retry's backoff), and no thread of ours waits for it.
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if left is not None:
            self._alarm = threading.Timer(left, self._pump)
            self._alarm.daemon = True
            self._alarm.start()

    def _done(self, lease: Lease[Any], future: Any, inner: futures.Future[Any]) -> None:
        if inner.cancelled():
            error: BaseException | None = futures.CancelledError("the pool cancelled the call")
            self._ended(lease, future, None, error)
        else:
            error = inner.exception()
            self._ended(lease, future, None if error else inner.result(), error)
        self._pump()

    def _ended(
        self, lease: Lease[Any], future: Any, result: Any, error: BaseException | None
    ) -> None:
        with self._lock:
            self._in_flight -= 1
        settle: Callable[[], object]
        if error is None:
            future.set_result(result)
            settle = lease.ack
        elif isinstance(error, self._on) and not isinstance(error, futures.BrokenExecutor):
            settle = partial(_core.fail, lease, future, error)
        else:
            future.set_exception(error)
            settle = lease.ack
        try:
            settle()
        except LeaseLost:
            # Revoked while it ran: somebody decided already.
            pass


def _call(
    lease: PoolLease, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Runs in the pool."""
    token = _current.set(lease)
    try:
        return fn(*args, **kwargs)
    finally:
        _current.reset(token)
