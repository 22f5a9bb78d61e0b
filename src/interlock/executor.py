"""``KeyedExecutor``: an executor whose calls carry keys."""

from __future__ import annotations

import collections
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from concurrent.futures.thread import BrokenThreadPool
from typing import Any, ParamSpec, TypeVar, cast

from interlock import _core
from interlock.errors import ShutDown
from interlock.message import Key, Keys
from interlock.poolwork import PoolWork
from interlock.queue import KeyedQueue
from interlock.retry import Retry

__all__ = ["Future", "KeyedExecutor"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_MAP_AHEAD = 1000


class Future(_core.Future, futures.Future[R]):  # type: ignore[misc]
    """A call's result: all that ``concurrent.futures.Future`` is, and ``id``, its message's id."""

    # The standard one makes a lock and a condition for each future; ours are made when needed.
    __init__ = object.__init__  # type: ignore[assignment]


class KeyedExecutor(futures.Executor):
    """A full ``concurrent.futures.Executor`` whose calls can carry keys.

    Calls that share a key run in the order of their submission and never at the same time; the
    rest runs in parallel. A call's future carries its result or exception, and the message is
    settled either way, unless a retry policy is given.

    Args:
        max_workers: most threads, or with ``pool`` most calls in it at once; there it is required.
            Default: as for ``ThreadPoolExecutor``.
        unkeyed_workers: how many of the threads take only calls without keys, so that those always
            find one. Default 0.
        pool: another executor that runs the calls, such as a ``ProcessPoolExecutor``. It is not
            shut down.
        maxsize: most unsettled calls; ``submit`` then waits for room. 0 is no bound.
        retry: retries calls that raise, in their place; the future ends with the last attempt.
        thread_name_prefix, initializer, initargs: as for ``ThreadPoolExecutor``.

    ``queue`` is the queue beneath: for ``explain``, ``stats``, ``pause`` and the rest.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        unkeyed_workers: int = 0,
        pool: futures.Executor | None = None,
        maxsize: int = 0,
        retry: Retry | None = None,
        thread_name_prefix: str = "",
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
    ) -> None:
        if max_workers is None:
            if pool is not None:
                raise ValueError(
                    "KeyedExecutor(): max_workers is required with pool=; name how many calls may "
                    "be in the pool at once (its own number of workers)"
                )
            max_workers = min(32, (os.cpu_count() or 1) + 4)
        _check("max_workers", max_workers, 1)
        _check("unkeyed_workers", unkeyed_workers, 0)
        if unkeyed_workers >= max_workers:
            raise ValueError(
                f"KeyedExecutor(): unkeyed_workers is {unkeyed_workers} of {max_workers} workers; "
                f"allowed: fewer, for somebody must take what has keys"
            )
        if initializer is not None and not callable(initializer):
            raise TypeError("KeyedExecutor(): initializer must be a callable")
        if pool is not None and (initializer is not None or unkeyed_workers):
            raise ValueError("KeyedExecutor(): initializer and unkeyed_workers are the pool's own")
        self.queue: KeyedQueue[Future[Any]] = KeyedQueue(
            maxsize, retry=retry or Retry(), name=thread_name_prefix or None
        )
        self._max_workers = max_workers
        self._unkeyed_workers = unkeyed_workers
        self._start = _Start(self.queue, retry, initializer, initargs)
        self._threads: list[threading.Thread] = []
        self._spawning = threading.Lock()
        self._process = os.getpid()
        self._pool = None if pool is None else PoolWork(self.queue, pool, max_workers, retry)
        self._finalizer = weakref.finalize(self, _abandon, self.queue)
        _executors.add(self)

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Runs ``fn(*args, **kwargs)``, without a key."""
        return self._submit((), None, None, False, fn, args, kwargs)

    def submit_keyed(
        self, keys: Keys, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[R]:
        """Runs ``fn(*args, **kwargs)`` when all calls before it that share a key have ended.

        Raises:
            TypeError, ValueError: a key is of a wrong type, empty, or too long.
            RuntimeError: the executor is shut down.
        """
        return self._submit(keys, None, None, False, fn, args, kwargs)

    def keyed(
        self, *keys: Key, shared: Keys = (), priority: int = 0, quiet: bool = False
    ) -> futures.Executor:
        """A view of this executor that is an executor itself, whose calls all carry these keys.

        For ``map``, ``loop.run_in_executor``, and whatever takes an executor. Shutting the view
        down does nothing to this one.
        """
        return _View(self, keys, shared, priority, quiet)

    def map_keyed(
        self,
        fn: Callable[[T], R],
        items: Iterable[T],
        *,
        keys: Callable[[T], Keys],
        shared: Callable[[T], Keys] | None = None,
        buffersize: int | None = None,
    ) -> Iterator[R]:
        """``fn`` of each item, in the order of the items, read lazily.

        Args:
            keys, shared: the keys of an item.
            buffersize: items submitted ahead of the result asked for. Default 1,000.
        """
        ahead = _MAP_AHEAD if buffersize is None else buffersize
        _check("buffersize", ahead, 1)
        pending: collections.deque[Future[R]] = collections.deque()
        source = iter(items)

        def more() -> None:
            for item in source:
                shares = None if shared is None else shared(item)
                future = self._submit(keys(item), shares, None, False, fn, (item,), {})
                pending.append(future)
                if len(pending) >= ahead:
                    return

        def results() -> Iterator[R]:
            try:
                while pending:
                    result = pending.popleft().result()
                    more()
                    yield result
            finally:
                for future in pending:
                    future.cancel()

        more()
        return results()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Takes no more calls, and lets those that were submitted run.

        Args:
            wait: return when all have ended. Default True.
            cancel_futures: cancel what has not begun.
        """
        for message in self.queue._shutdown(cancel_futures):
            message[1]._cancelled()
        if not wait:
            return
        if self._pool is not None:
            self.queue._join(None)
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join()

    def _submit(
        self,
        keys: Keys,
        shared: Keys | None,
        priority: int | None,
        quiet: bool,
        fn: Callable[..., R],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Future[R]:
        if self._start.broken is not None:
            raise BrokenThreadPool(self._start.broken)
        try:
            future = self.queue._submit(Future, keys, shared, priority, quiet, fn, args, kwargs)
        except ShutDown:
            raise RuntimeError("cannot schedule new futures after shutdown") from None
        if self._pool is None and len(self._threads) < self._max_workers or self._forked():
            self._spawn()
        return cast("Future[R]", future)

    def _forked(self) -> bool:
        # The threads of the parent are not in the child of a fork; it starts its own.
        return self._process != _process

    def _spawn(self) -> None:
        with self._spawning:
            if self._forked():
                self._process = _process
                self._threads.clear()
            if self._pool is not None:
                self._pool.reset()
                return
            number = len(self._threads)
            unkeyed = number >= self._max_workers - self._unkeyed_workers
            if number >= self._max_workers or self.queue._unsettled() <= number - (
                # A thread that takes only what has no key is no help to a call that has one.
                self._unkeyed_workers if unkeyed else 0
            ):
                return
            kind = "unkeyed" if unkeyed else "any"
            thread = threading.Thread(
                target=_work,
                args=(self._start, kind),
                name=f"{self.queue.name}_{number}",
                daemon=True,
            )
            self._threads.append(thread)
            thread.start()


class _View(futures.Executor):
    """An executor's calls under fixed keys."""

    def __init__(
        self,
        executor: KeyedExecutor,
        keys: tuple[Key, ...],
        shared: Keys,
        priority: int,
        quiet: bool,
    ) -> None:
        self._executor = executor
        # Checked here, where the keys are written, and read once if they come from an iterator.
        self._keys = tuple(_core.canonical(key) for key in keys)
        one = isinstance(shared, str | bytes | int)
        names = [shared] if one else shared
        self._shared = tuple(_core.canonical(key) for key in cast("Iterable[Key]", names))
        self._priority = priority
        self._quiet = quiet

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Runs ``fn(*args, **kwargs)`` under the keys of this view."""
        return self._executor._submit(
            self._keys, self._shared, self._priority, self._quiet, fn, args, kwargs
        )

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Does nothing: the executor belongs to whoever made it."""


class _Start:
    """What a worker thread begins with; it must not keep the executor alive."""

    def __init__(
        self,
        queue: KeyedQueue[Future[Any]],
        retry: Retry | None,
        initializer: Callable[..., object] | None,
        initargs: tuple[Any, ...],
    ) -> None:
        self.queue = queue
        self.retry = retry
        self.initializer = initializer
        self.initargs = initargs
        self.broken: str | None = None

    def fail(self) -> None:
        self.broken = "a thread's initializer raised; the executor takes no more calls"
        for message in self.queue._shutdown(True):
            future = message[1]
            if future.set_running_or_notify_cancel():
                future.set_exception(BrokenThreadPool(self.broken))


def _work(start: _Start, kind: str) -> None:
    if start.initializer is not None:
        try:
            start.initializer(*start.initargs)
        except BaseException:
            import logging

            logging.getLogger("interlock.worker").critical("initializer raised", exc_info=True)
            start.fail()
            return
    on = None if start.retry is None else start.retry.on
    _core.run_worker(start.queue, kind, on)


def _abandon(queue: KeyedQueue[Any]) -> None:
    # Nobody can submit any more: the threads handle what is left, and end.
    queue._shutdown(False)


def _check(argument: str, number: object, least: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"KeyedExecutor(): {argument} is {type(number).__name__}; allowed: int")
    if number < least:
        raise ValueError(f"KeyedExecutor(): {argument} is {number}; allowed: {least} or more")


_executors: weakref.WeakSet[KeyedExecutor] = weakref.WeakSet()
_process = os.getpid()


def _after_fork() -> None:
    global _process
    _process = os.getpid()


def _at_exit() -> None:
    # What was submitted is done before the interpreter goes, as with the standard executors.
    for executor in list(_executors):
        executor.shutdown(wait=True)


os.register_at_fork(after_in_child=_after_fork)
# Before the interpreter waits for its threads, which atexit would be too late for; the standard
# executors use it too, for want of a public name.
threading._register_atexit(_at_exit)  # type: ignore[attr-defined]
