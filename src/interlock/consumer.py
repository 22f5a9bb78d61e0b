"""``KeyedQueue.consume``: a handler run for every message, on threads of its own.

The settlement of a message whose handler raised is the same for the asyncio face, and is also here.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import queue as _queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from interlock import _core
from interlock.errors import LeaseLost, ShutDown
from interlock.explanation import key_names
from interlock.failure import Failure, judged
from interlock.message import AsyncLease, Kind, Lease, _current
from interlock.retry import Retry, Seconds, seconds
from interlock.runtime import forks
from interlock.runtime.frames import frame_of, stack_text
from interlock.runtime.interrupt import behind

if TYPE_CHECKING:
    from interlock.queue import KeyedQueue

__all__ = [
    "Consumer",
    "check",
    "consume",
    "failed",
    "give_back",
    "judge",
    "log_given_back",
    "revoke",
    "settle",
]

_log = logging.getLogger("interlock.worker")
# A lock wait is at most 292 years; a thread that wakes early only checks again.
_LONGEST_SLEEP = 3600.0


class Consumer:
    """A handler that runs for every message of a queue, until ``stop``.

    As a context manager it stops at the end, letting running handlers finish. It ends by itself
    when its queue is shut down and drained. Its threads are daemons.
    """

    def __init__(
        self,
        queue: KeyedQueue[Any],
        handler: Callable[[Any], object],
        threads: int,
        timeout: float | None,
        kind: Kind,
    ) -> None:
        self._queue = queue
        self._handler = handler
        self._kind: Kind = kind
        self._stopping = False
        self._watchdog = _Watchdog(queue, timeout, threads) if timeout is not None else None
        name = getattr(handler, "__name__", type(handler).__name__)
        # The bell is also rung by destructors and signal handlers, which may interrupt the very
        # thread that rings: a SimpleQueue bears that, an Event would wait for itself.
        self._bells: list[_queue.SimpleQueue[None]] = [_queue.SimpleQueue() for _ in range(threads)]
        self._threads = [
            threading.Thread(
                target=self._run_to_end, args=(bell,), name=f"{queue.name}-{name}-{n}", daemon=True
            )
            for n, bell in enumerate(self._bells)
        ]
        try:
            if self._watchdog is not None:
                self._watchdog.start()
            for thread in self._threads:
                thread.start()
        except BaseException as error:
            # The caller will never get this consumer, and so cannot stop it. A running handler ends
            # first.
            never = [thread for thread in self._threads if thread.ident is None]
            self._threads = [thread for thread in self._threads if thread not in never]
            self._leave(len(never))
            self.stop(0)
            if (interrupted := behind(error)) is not None:
                raise interrupted from None
            raise

    def stop(self, timeout: Seconds | None = None) -> bool:
        """Take no more messages, and wait for the running handlers.

        Returns:
            True if all have ended; False if ``timeout`` seconds were not enough. A handler that
            stops its own consumer is not waited for.
        """
        self._stopping = True
        try:
            self._ring()
        except BaseException:
            # Ctrl-C: none of them may keep sleeping.
            self._ring()
            raise
        return self.join(timeout)

    def join(self, timeout: Seconds | None = None) -> bool:
        """Wait until the consumer has ended: it was stopped, or its queue shut down and drained.

        Returns:
            True if it has; False if ``timeout`` seconds were not enough.
        """
        left = None if timeout is None else seconds(timeout, "join(): timeout")
        until = None if left is None else time.monotonic() + left
        own = threading.current_thread()
        for thread in self._threads:
            if thread is not own:
                left = None if until is None else max(0.0, until - time.monotonic())
                # A timeout longer than a lock wait can be means no limit.
                thread.join(None if left is None or left > threading.TIMEOUT_MAX else left)
        if any(thread.is_alive() for thread in self._threads if thread is not own):
            return False
        if self._watchdog is not None and own not in self._threads:
            self._watchdog.stop()
        return True

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        alive = sum(thread.is_alive() for thread in self._threads)
        return f"<{type(self).__name__} of {self._queue!r}, {alive} threads>"

    def _run_to_end(self, bell: _queue.SimpleQueue[None]) -> None:
        try:
            self._run(bell)
        finally:
            self._leave(1)

    def _ring(self) -> None:
        for bell in self._bells:
            bell.put(None)

    def _leave(self, threads: int) -> None:
        """Note that this many threads no longer handle anything."""
        if self._watchdog is not None:
            self._watchdog.leave(threads)

    def _run(self, bell: _queue.SimpleQueue[None]) -> None:
        try:
            while self._handle_next(bell):
                pass
        except ShutDown:
            return

    def _handle_next(self, bell: _queue.SimpleQueue[None]) -> bool:
        # A separate function, so that no name holds the last message while the next is awaited.
        if self._stopping:
            return False
        lease = self._queue._try_get(self._kind) or self._wait(bell)
        if lease is None:
            return False
        self._handle(lease)
        return True

    def _wait(self, bell: _queue.SimpleQueue[None]) -> Lease[Any] | None:
        """Return the next message; None: the consumer was stopped."""
        wait = _core.Waiter(self._queue, functools.partial(bell.put, None))
        try:
            while not self._stopping:
                lease = wait.get(self._kind)
                if lease is not None:
                    return lease
                left = wait.left
                with contextlib.suppress(_queue.Empty):
                    bell.get(timeout=None if left is None else min(left, _LONGEST_SLEEP))
            return None
        finally:
            wait.give_up()

    def _handle(self, lease: Lease[Any]) -> None:
        token, began = _current.set(lease), forks.count
        if self._watchdog is not None:
            self._watchdog.begin(lease)
        try:
            self._handler(lease.payload)
        except BaseException as error:
            forks.end_if_forked(began, error)
            failed(self._queue, lease, error)
        else:
            forks.end_if_forked(began)
            settle(lease.ack)
        finally:
            if self._watchdog is not None:
                self._watchdog.end(lease)
            _current.reset(token)


def consume(
    queue: KeyedQueue[Any],
    handler: Callable[[Any], object],
    *,
    threads: int,
    timeout: Seconds | None,
    kind: Kind,
) -> Consumer:
    """See ``KeyedQueue.consume``."""
    limit = check(handler, threads, timeout, kind)
    if threads > 1:
        queue._several_getters()
    return Consumer(queue, handler, threads, limit, kind)


def check(handler: object, threads: int, timeout: Seconds | None, kind: object) -> float | None:
    """Check the arguments of ``consume``, and return the timeout in seconds."""
    if not callable(handler):
        raise TypeError(f"consume(): handler is {type(handler).__name__}; allowed: a callable")
    if not isinstance(threads, int) or isinstance(threads, bool):
        raise TypeError(f"consume(): threads is {type(threads).__name__}; allowed: int")
    if threads < 1:
        raise ValueError(f"consume(): threads is {threads}; allowed: 1 or more")
    if kind not in ("any", "keyed", "unkeyed"):
        raise ValueError(f"consume(): kind is {kind!r}; allowed: 'any', 'keyed', 'unkeyed'")
    return None if timeout is None else seconds(timeout, "consume(): timeout")


AnyLease = Lease[Any] | AsyncLease[Any]


def failed(
    queue: KeyedQueue[Any], lease: AnyLease, error: BaseException, what: str = "raised"
) -> None:
    """Log that a handler raised, and settle by the policy, or as the handler's exception says.

    Never raises.
    """
    failure = judge(queue._retry, lease, error, what)
    if failure.limit is not None:
        settle(lease._close, failure.limit, failure.delay)
    if failure.how == "nack":
        settle(lease.nack, failure.delay, failure.text)
    elif failure.how == "reject":
        settle(lease.reject, failure.text)
    elif failure.how == "defer":
        settle(lease._defer, failure.delay)
    else:
        settle(lease._give_up, failure.text)


def give_back(lease: AnyLease) -> None:
    """Release a message whose consumer was cancelled while its handler ran.

    The message is not at fault.
    """
    settle(lease.release)
    log_given_back(lease)


def log_given_back(lease: AnyLease) -> None:
    """Log that a message is returned because its consumer was cancelled."""
    text = "message %d in queue %r is returned, its attempt unchanged: its consumer was cancelled"
    _log.info(text, lease.id, lease.queue, extra=_of(lease))


def judge(policy: Retry, lease: AnyLease, error: BaseException, what: str = "raised") -> Failure:
    """Decide how to settle a message whose handler raised, and log that. Never raises."""
    failure = judged(error, policy.on, details=True)
    if not failure.steered:
        _log_failure(policy, lease, failure, error, what)
    return failure


def _log_failure(
    policy: Retry, lease: AnyLease, failure: Failure, error: BaseException, what: str
) -> None:
    attempts = policy.attempts
    again = failure.how == "nack" and (attempts is None or lease.attempt < attempts)
    level = logging.WARNING if again else logging.ERROR
    # A worker's message calls a task, whose name is more useful than the message's number.
    task = getattr(lease, "task", None)
    called = "" if task is None else f" ({task})"
    text = "the handler of message %d%s in queue %r %s, attempt %d"
    args: tuple[Any, ...] = (lease.id, called, lease.queue, what, lease.attempt)
    told = _of(lease)
    if "handled" in told:
        text += ", [%s] waited %.1f ms, handled %.1f ms"
        args += (", ".join(told["keys"]), told["waited"] * 1000, told["handled"] * 1000)
    try:
        _log.log(level, text, *args, exc_info=error, extra=told)
    except BaseException:
        # Formatting an exception runs its own code, and logging runs that of the user's handlers.
        with contextlib.suppress(BaseException):
            _log.log(level, f"{text}: %s", *args, failure.text, extra=told)


def _of(lease: AnyLease) -> dict[str, Any]:
    try:
        keys = key_names(lease.keys | lease.shared)
    except LeaseLost:
        keys = []
    found = {
        "queue": lease.queue,
        "id": lease.id,
        "keys": keys,
        "attempt": lease.attempt,
        "token": lease.token,
    }
    # A worker's messages call a task; those of a queue are just handled.
    if hasattr(lease, "task"):
        of_worker: Any = lease
        found.update(task=of_worker.task, waited=of_worker.waited)
        if of_worker._began is not None:
            found["handled"] = time.monotonic() - of_worker._began
    return found


def settle(how: Callable[..., object], *args: Any) -> None:
    """Settle, unless the message is settled already."""
    try:
        how(*args)
    except LeaseLost as lost:
        # Revoked or expired while the handler ran: the message is settled already.
        _log.warning("%s", lost)


def revoke(queue: KeyedQueue[Any], lease: AnyLease, timeout: float, stack: str) -> None:
    """End the lease of a handler that runs too long, and log its stack."""
    if queue._revoke_token(lease.token, lease.id):
        _log.error(
            "message %d was handled for more than %.3g s; its lease is revoked. The handler is "
            "at\n%s",
            lease.id,
            timeout,
            stack,
            extra=_of(lease),
        )


class _Watchdog:
    """Revokes the leases of handlers that exceed their timeout, and logs their stacks.

    It ends when it is stopped, or all ``threads`` have left.
    """

    def __init__(self, queue: KeyedQueue[Any], timeout: float, threads: int) -> None:
        self._left = threads
        self._queue = queue
        self.timeout = timeout
        self._changed = threading.Condition()
        self._running: dict[int, tuple[float, Lease[Any], int]] = {}
        self._stopped = False
        self._thread = threading.Thread(
            target=self._run, name=f"{queue.name}-timeouts", daemon=True
        )

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def begin(self, lease: Lease[Any]) -> None:
        entry = (time.monotonic() + self.timeout, lease, threading.get_ident())
        with self._changed:
            self._running[lease.token] = entry
            self._changed.notify()

    def end(self, lease: Lease[Any]) -> None:
        with self._changed:
            self._running.pop(lease.token, None)

    def leave(self, threads: int) -> None:
        """Note that this many threads no longer handle anything."""
        with self._changed:
            self._left -= threads
            self._stopped = self._stopped or self._left == 0
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._stopped:
                    return
                now = time.monotonic()
                late = [token for token, entry in self._running.items() if entry[0] <= now]
                if not late:
                    first = min((entry[0] for entry in self._running.values()), default=None)
                    left = None if first is None else min(first - now, _LONGEST_SLEEP)
                    self._changed.wait(left)
            self._revoke(late)

    def _revoke(self, late: list[int]) -> None:
        # A separate function, so that no name holds a message while the thread sleeps.
        for token in late:
            with self._changed:
                entry = self._running.pop(token, None)
            if entry is not None:
                _, lease, thread = entry
                frame = frame_of(thread)
                stack = stack_text(frame) if frame else "(it has ended)"
                revoke(self._queue, lease, self.timeout, stack)
