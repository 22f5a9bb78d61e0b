"""An executor's calls in another executor: one of processes, or any other."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from interlock import _core
from interlock.errors import ShutDown
from interlock.local.executor_threads import Work, before, log
from interlock.message import Lease, _current
from interlock.runtime.interrupt import behind

if TYPE_CHECKING:
    from interlock.queue import KeyedQueue

__all__ = ["PoolLease", "PoolWork"]


@dataclass(frozen=True, slots=True)
class PoolLease:
    """A lease as ``current_lease()`` returns it in another process: its facts, without settling."""

    queue: str
    id: int
    keys: frozenset[bytes]
    shared: frozenset[bytes]
    attempt: int
    token: int


class PoolWork(Work):
    """Passes ready calls to a pool, at most ``most`` at once, so that none waits behind a busy one.

    One thread takes them from the queue; the pool reports their end. (A thread, and not a callback
    of the queue: that would run wherever a message becomes ready, in a signal handler or in the
    middle of a garbage collection.)
    """

    def __init__(
        self,
        queue: KeyedQueue[Any],
        pool: futures.Executor,
        most: int,
        on: tuple[type[Exception], ...] | None,
    ) -> None:
        self._pool = pool
        self._most = most
        self._on = on
        super().__init__(queue, most, most)
        before(type(pool))

    def grow(self) -> None:
        """See ``Work``."""
        with self._growing:
            if self.complete:
                return
            self._start_processes()
            name = f"{self.queue.name}_pool"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            try:
                self._starting[thread] = True
                if self.complete:
                    # A signal handler or a finalizer has run this meanwhile.
                    del self._starting[thread]
                    return
                self._thread, self.complete = thread, True
                thread.start()
            except BaseException as error:
                if self._starting.pop(thread, False):
                    self.complete = False
                if (interrupted := behind(error)) is not None:
                    raise interrupted from None
                raise

    def forked(self) -> None:
        """See ``Work``."""
        super().forked()
        if isinstance(self._pool, _standard_pools()):
            self.broken = (
                futures.BrokenExecutor,
                "the pool was made before this process was forked, and its workers are the "
                "parent's; make a pool and an executor in this process",
            )

    def _reset(self) -> None:
        super()._reset()
        self._slots = threading.Semaphore(self._most)

    def _start_processes(self) -> None:
        # A pool of processes forks with its first call: here, in the caller's thread, and not in
        # one of ours, because the caller's thread might hold a lock then. (If it does not fork,
        # this call is not needed, and would count among those that a process of the pool may make.)
        process = sys.modules.get("concurrent.futures.process")
        if getattr(self._pool, "_safe_to_dynamically_spawn_children", False):
            return
        if process is not None and isinstance(self._pool, process.ProcessPoolExecutor):
            try:
                self._pool.submit(_nothing)
            except (RuntimeError, OSError):
                # Broken or shut down: the call itself will report it.
                log.debug("the pool of %r takes no calls", self.queue.name, exc_info=True)

    def _run(self) -> None:
        if not self._wanted():
            return
        while True:
            self._slots.acquire()
            if not self._hand_on_next():
                return

    def _hand_on_next(self) -> bool:
        # A separate function, so that no name holds the last call while the next is awaited.
        try:
            lease = self.queue.get()
        except ShutDown:
            return False
        self._hand_on(lease)
        return True

    def _hand_on(self, lease: Lease[Any]) -> None:
        if not isinstance(lease.payload, _core.Future):
            lease.reject("not a call: it was put directly into the queue of an executor")
            self._slots.release()
            return
        call = lease.payload._begin(lease.token)
        if call is None:
            # Cancelled at this moment.
            lease.ack()
            self._slots.release()
            return
        try:
            inner = self._pool.submit(_Handler(lease, self), *call)
            inner.add_done_callback(partial(self._done, lease))
        except BaseException as error:
            # Broken, or shut down: the lanes stay usable.
            if _is_broken(error):
                self._broke(error)
            self._end(lease, None, error, again=False)

    def _done(self, lease: Lease[Any], inner: futures.Future[Any]) -> None:
        if inner.cancelled():
            lease.payload._cancelled()
            self._end(lease, None, None, again=False)
            return
        error = inner.exception()
        result = inner.result() if error is None else None
        broken = error is not None and _is_broken(error)
        # A call may raise another executor's error. The standard pools show whether it is theirs.
        if error is not None and broken and getattr(self._pool, "_broken", False):
            self._broke(error)
        self._end(lease, result, error, again=not broken)

    def _broke(self, error: BaseException) -> None:
        """Fail the calls in the queue, and every later submit: the pool is broken for good."""
        if self.broken is None:
            kind: Any = type(error)
            own = kind.__module__.startswith("concurrent.futures")
            self._break(kind if own else futures.BrokenExecutor, str(error))

    def _end(
        self, lease: Lease[Any], result: Any, error: BaseException | None, *, again: bool
    ) -> None:
        # If the pool itself failed, the next attempt would fail the same way.
        on = self._on if again or self._on is None else ()
        try:
            if not _core.end_call(lease, result, error, on):
                log.warning(
                    "a revoked call of message %d returned; its result is ignored", lease.id
                )
        finally:
            self._slots.release()

    def runs_at_once(self) -> None:
        """Note whether the pool runs a call in the submitting thread: one call at a time, then."""
        if threading.current_thread() is self._thread:
            self.queue._set_crew(1, 1)


class _Handler:
    """A callable that the pool calls in this process; pickled, one that it calls in another."""

    __slots__ = ("_lease", "_work")

    def __init__(self, lease: Lease[Any], work: PoolWork) -> None:
        self._lease = lease
        self._work = work

    def __call__(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self._work.runs_at_once()
        return _core.call_handler(self._lease, fn, args, kwargs)

    def __reduce__(self) -> tuple[object, ...]:
        lease = self._lease
        facts = (lease.queue, lease.id, lease.keys, lease.shared, lease.attempt, lease.token)
        return _FarHandler, (PoolLease(*facts),)


class _FarHandler:
    """The callable that a pool calls in another process."""

    __slots__ = ("_lease",)

    def __init__(self, lease: PoolLease) -> None:
        self._lease = lease

    def __call__(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        token = _current.set(self._lease)
        try:
            return fn(*args, **kwargs)
        finally:
            _current.reset(token)


def _nothing() -> None:
    """Do nothing. A pool gets it so that it starts its processes."""


def _is_broken(error: BaseException) -> bool:
    # By its type: an exception of a call may raise when it is asked for its class.
    return issubclass(type(error), futures.BrokenExecutor)


def _standard_pools() -> tuple[type[futures.Executor], ...]:
    # Not imported from concurrent.futures itself, which would import the module of processes.
    process = sys.modules.get("concurrent.futures.process")
    if process is None:
        return (futures.ThreadPoolExecutor,)
    return (futures.ThreadPoolExecutor, process.ProcessPoolExecutor)
