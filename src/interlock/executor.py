"""``KeyedExecutor``: an executor whose calls carry keys."""

from __future__ import annotations

import collections
import functools
import itertools
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import Any, Literal, ParamSpec, TypeVar, cast

from interlock import _core
from interlock.errors import ShutDown, WouldDeadlock
from interlock.local.executor_pool import PoolWork
from interlock.local.executor_threads import ThreadWork, Work
from interlock.message import Key, Keys
from interlock.queue import KeyedQueue
from interlock.retry import Retry
from interlock.runtime.concurrency import Limits, Names

__all__ = ["Future", "KeyedExecutor"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_MAP_AHEAD = 1000
_numbers = itertools.count(1)


class Future(_core.Future[R], futures.Future[R]):
    """A call's result: a full ``concurrent.futures.Future``, and ``id``, its message's id.

    ``result()`` and ``exception()`` also raise

    * ``WouldDeadlock`` if a handler asks without a timeout, and the call waits for that handler
      itself: behind its key, directly or by way of other calls and handlers; or for a worker, while
      the handlers of all workers wait likewise.
    * ``BrokenExecutor`` in the child of a fork, for a call that was not done at the fork, and that
      the parent makes.

    A handler that waits by ``wait`` or ``as_completed`` for a call behind its own key gets no
    error, and waits for ever: those functions do not tell a future how long they wait for it, nor
    whether they need it. Give them a timeout, or ask each future for its ``result()``.

    A call whose lease is revoked (``executor.queue.revoke(id)``) keeps running, because a thread
    cannot be stopped, but its result no longer counts. Its future ends with the next attempt; with
    ``then="skip"`` it is cancelled, with ``then="dead"`` it raises ``LeaseLost``.
    """

    # The standard one makes a lock and a condition for each future; ours are made when needed.
    __init__ = object.__init__


class KeyedExecutor(futures.Executor):
    """A full ``concurrent.futures.Executor`` whose calls can carry keys.

    Calls that share a key run in the order of their submission and never at the same time;
    everything else runs in parallel. A call's future carries its result or exception, and the
    message is settled in both cases, unless a retry policy is given.

    Args:
        max_workers: maximum threads, or with ``pool`` (required there) maximum concurrent calls in
            it. Default: as for ``ThreadPoolExecutor``.
        unkeyed_workers: number of threads that take only calls without keys, so that those always
            find one. Default 0.
        pool: another executor that runs the calls, such as a ``ProcessPoolExecutor``. The executor
            does not shut it down.
        maxsize: maximum unsettled calls; ``submit`` then waits for room. 0 means no bound.
        retry: retries calls that raise, in their place; ``RetryAfter`` and ``Reject`` work as in
            any handler. The future ends with the last attempt, and there are no dead letters; while
            the message is held (``then="hold"``) it is pending, and ``skip`` cancels it, ``bury``
            ends it with its last exception.
        limits: concurrency limits and rates: how many calls of a name, or of each name with a
            prefix (``tenant:*``), may run at once, or start in a time (``Rate``); see ``keyed`` and
            ``map_keyed``. A call that waits for them occupies no worker. Default: none.
            ``queue.configure`` changes them.
        thread_name_prefix, initializer, initargs: as for ``ThreadPoolExecutor``.

    Raises:
        TypeError, ValueError: an argument has a wrong type or is out of range.

    ``queue`` is the underlying queue, for ``explain``, ``stats``, ``pause``, ``revoke`` and an
    operator's other calls. ``revoke`` frees the keys of a call that never returns; its thread is
    left to it and another thread takes its place (in a pool its place stays taken).

    At the interpreter's exit, submitted calls finish first. In a process made by ``fork`` the
    executor starts empty, with threads of its own.
    """

    def __init__(
        self,
        max_workers: int | None = None,
        *,
        unkeyed_workers: int = 0,
        pool: futures.Executor | None = None,
        maxsize: int = 0,
        retry: Retry | None = None,
        limits: Limits | None = None,
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
            cpus: Callable[[], int | None] = getattr(os, "process_cpu_count", os.cpu_count)
            max_workers = min(32, (cpus() or 1) + 4)
        if isinstance(max_workers, int) and max_workers < 1:
            # In the standard library's words too: some libraries look for them.
            raise ValueError(
                f"KeyedExecutor(): max_workers is {max_workers}; it must be greater than 0"
            )
        _check_count("KeyedExecutor(): max_workers", max_workers, 1)
        _check_count("KeyedExecutor(): unkeyed_workers", unkeyed_workers, 0)
        _check_count("KeyedExecutor(): maxsize", maxsize, 0)
        if unkeyed_workers >= max_workers:
            raise ValueError(
                f"KeyedExecutor(): unkeyed_workers is {unkeyed_workers} of {max_workers} "
                "workers; allowed: fewer, because messages with keys need a worker too"
            )
        if initializer is not None and not callable(initializer):
            raise TypeError(
                f"KeyedExecutor(): initializer is {type(initializer).__name__}; allowed: a callable"
            )
        try:
            initargs = tuple(initargs)
        except TypeError:
            raise TypeError(
                f"KeyedExecutor(): initargs is {type(initargs).__name__}; allowed: a tuple"
            ) from None
        if not isinstance(thread_name_prefix, str):
            raise TypeError(
                f"KeyedExecutor(): thread_name_prefix is {type(thread_name_prefix).__name__}; "
                f"allowed: str"
            )
        if pool is not None and (isinstance(pool, type) or not hasattr(pool, "submit")):
            given = f"the class {pool.__name__}" if isinstance(pool, type) else type(pool).__name__
            raise TypeError(f"KeyedExecutor(): pool is {given}; allowed: an executor")
        if retry is not None and not isinstance(retry, Retry):
            raise TypeError(f"KeyedExecutor(): retry is {type(retry).__name__}; allowed: Retry")
        if pool is not None and (initializer is not None or unkeyed_workers):
            raise ValueError(
                "KeyedExecutor(): initializer and unkeyed_workers are settings of the pool"
            )
        name = thread_name_prefix or f"KeyedExecutor-{next(_numbers)}"
        calls = _Calls(maxsize, retry=retry or Retry(), limits=limits, name=name)
        calls._keep_no_dead_letters()
        self.queue: KeyedQueue[Future[Any]] = calls
        on = None if retry is None else retry.on
        if pool is None:
            calls.work = ThreadWork(calls, max_workers, unkeyed_workers, on, initializer, initargs)
        else:
            calls.work = PoolWork(calls, pool, max_workers, on)
        self._work = calls.work
        # Libraries that are given an executor read it, as they do the standard ones'.
        self._max_workers = max_workers
        # When no caller can submit any more, the submitted calls run, and the threads end.
        self._finalizer = weakref.finalize(self, calls._shutdown, False)

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run ``fn(*args, **kwargs)``, without a key."""
        return self._submit(None, None, None, False, None, fn, args, kwargs)

    def submit_keyed(
        self, keys: Keys, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[R]:
        """Run ``fn(*args, **kwargs)`` when all calls before it that share a key have ended.

        Raises:
            TypeError, ValueError: a key has a wrong type, or is empty or too long.
            RuntimeError: the executor is shut down.
            BrokenExecutor: a thread's initializer raised.
            WouldDeadlock: the executor is full, and the handlers of all workers wait for room.
        """
        return self._submit(keys, None, None, False, None, fn, args, kwargs)

    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        **options: Any,
    ) -> Iterator[R]:
        """Return ``fn`` of each item, without a key, as ``concurrent.futures`` has it.

        Args:
            timeout: maximum seconds to wait for a result. Default: no limit.
            chunksize: with ``pool``, items per call, retried together, as for
                ``ProcessPoolExecutor``; ignored on threads. Default 1.
            options: further arguments of the ``map`` of ``concurrent.futures`` (``buffersize``,
                3.14).

        Raises:
            ValueError: ``chunksize`` is less than 1.
        """
        return _mapped(super().map, self, fn, iterables, timeout, chunksize, options)

    def keyed(
        self,
        *keys: Key,
        shared: Keys = (),
        priority: int = 0,
        quiet: bool = False,
        limit: Names | None = None,
    ) -> futures.Executor:
        """Return a view of this executor whose calls all carry these keys and limit names.

        For ``map``, ``loop.run_in_executor``, and anything that takes an executor. Shutting the
        view down does nothing to this one.

        Args:
            limit: names of concurrency limits, each of which must have room for a call to run.

        Raises:
            TypeError, ValueError: a key, the priority or a limit name has a wrong type or is out of
                range.
        """
        named = self.queue._named("keyed()", list(keys), shared, priority, quiet, limit)
        own, others, names = named
        return _View(self, own, others, priority, quiet, names)

    def map_keyed(
        self,
        fn: Callable[[T], R],
        items: Iterable[T],
        *,
        keys: Callable[[T], Keys] | None = None,
        shared: Callable[[T], Keys] | None = None,
        limit: Names | Callable[[T], Names | None] | None = None,
        buffersize: int | None = None,
    ) -> Iterator[R]:
        """Return ``fn`` of each item, in the order of the items, read lazily.

        Waiting calls are cancelled when a call raises, or the iterator is closed.

        Args:
            keys, shared: functions that return the keys of an item. Default: no keys.
            limit: names of concurrency limits for all calls, or a function that returns those of an
                item. Default: none.
            buffersize: items submitted ahead of the result asked for. Default 1,000.

        Raises:
            TypeError, ValueError: an argument, a key or a limit name has a wrong type or is out of
                range.
        """
        ahead = _MAP_AHEAD if buffersize is None else buffersize
        _check_count("map_keyed(): buffersize", ahead, 1)
        names = None if callable(limit) else limit
        if names is not None:
            *_, names = self.queue._named("map_keyed()", (), None, None, None, names)
        pending: collections.deque[Future[R]] = collections.deque()
        source = iter(items)

        def submit_ahead() -> None:
            while len(pending) < ahead:
                for item in source:
                    own = None if keys is None else keys(item)
                    others = None if shared is None else shared(item)
                    of_item = limit(item) if callable(limit) else names
                    call = self._submit(own, others, None, False, of_item, fn, (item,), {})
                    pending.append(call)
                    break
                else:
                    return

        def results() -> Iterator[R]:
            try:
                while pending:
                    # No reference to a result is kept while the caller uses it.
                    first = [pending.popleft()]
                    submit_ahead()
                    yield first.pop().result()
            finally:
                cancel()

        def cancel() -> None:
            for future in pending:
                future.cancel()

        try:
            submit_ahead()
        except BaseException:
            cancel()
            raise
        return results()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls, and let the submitted ones run.

        Args:
            wait: return when all have ended (except revoked ones). Default True.
            cancel_futures: cancel calls that have not begun.

        Raises:
            WouldDeadlock: one of its own handlers would wait for itself. The executor is shut down
                anyway.
        """
        self.queue._shutdown(cancel_futures)
        if not wait:
            return
        own = self.queue._handling()
        if own:
            raise WouldDeadlock(
                f"shutdown(): the caller is handling message {own[0]} of this executor, and would "
                f"wait for itself. Call it from elsewhere, or with wait=False"
            )
        self._work.join()

    def __repr__(self) -> str:
        name, unsettled = self.queue.name, self.queue.stats().unsettled
        return f"<{type(self).__name__} {name!r}, {self._max_workers} workers, {unsettled} calls>"

    def _submit(
        self,
        keys: Keys | None,
        shared: Keys | None,
        priority: int | None,
        quiet: bool,
        limit: Names | None,
        fn: Callable[..., R],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Future[R]:
        work = self._work
        if work.broken is not None:
            raise _broken(work)
        try:
            future = self.queue._submit(
                Future, keys, shared, priority, quiet, limit, fn, args, kwargs
            )
        except ShutDown:
            if work.broken is not None:
                raise _broken(work) from None
            raise RuntimeError("cannot schedule new futures after shutdown") from None
        if not work.complete:
            try:
                work.grow()
            except BaseException:
                future.cancel()
                raise
        return cast("Future[R]", future)


class _View(futures.Executor):
    """An executor's calls under fixed keys and limit names."""

    def __init__(
        self,
        executor: KeyedExecutor,
        keys: tuple[bytes, ...],
        shared: tuple[bytes, ...],
        priority: int,
        quiet: bool,
        limit: tuple[str, ...],
    ) -> None:
        self._executor = executor
        self._named = keys, shared, priority, quiet, limit

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run ``fn(*args, **kwargs)`` under the keys of this view."""
        return self._executor._submit(*self._named, fn, args, kwargs)

    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        **options: Any,
    ) -> Iterator[R]:
        """Return ``fn`` of each item under the keys of this view; see ``KeyedExecutor.map``."""
        return _mapped(super().map, self._executor, fn, iterables, timeout, chunksize, options)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing: shut down the executor itself instead."""

    def __repr__(self) -> str:
        keys, shared, _, _, limit = self._named
        names = f", limit {list(limit)}" if limit else ""
        return f"<{self._executor!r} under keys {list(keys)}, shared {list(shared)}{names}>"


def _mapped(
    standard: Callable[..., Iterator[Any]],
    executor: KeyedExecutor,
    fn: Callable[..., R],
    iterables: tuple[Iterable[Any], ...],
    timeout: float | None,
    chunksize: int,
    options: dict[str, Any],
) -> Iterator[R]:
    _check_count("map(): chunksize", chunksize, 1)
    if chunksize == 1 or not isinstance(executor._work, PoolWork):
        return standard(fn, *iterables, timeout=timeout, **options)
    items = zip(*iterables, strict=False)
    chunks = iter(lambda: list(itertools.islice(items, chunksize)), [])
    results = standard(functools.partial(_chunk, fn), chunks, timeout=timeout, **options)
    return _flat(results)


def _chunk(fn: Callable[..., R], items: list[tuple[Any, ...]]) -> list[R]:
    """Make several calls, which a pool gets as one."""
    return [fn(*arguments) for arguments in items]


def _flat(chunks: Iterator[list[R]]) -> Iterator[R]:
    try:
        for chunk in chunks:
            # No reference to a result is kept while the caller uses it.
            chunk.reverse()
            while chunk:
                yield chunk.pop()
    finally:
        # Cancels calls that still wait.
        chunks.close()  # type: ignore[attr-defined]


class _Calls(KeyedQueue[Future[Any]]):
    """An executor's queue."""

    _public_name = "KeyedExecutor"
    work: Work

    def revoke(self, id: int, then: Literal["retry", "hold", "dead", "skip"] = "retry") -> bool:
        # Before the lease ends: the thread checks as soon as the call returns.
        undo = self.work.leave(self._thread_of(id))
        if not super().revoke(id, then):
            undo()
            return False
        if not self.work.complete and not self.work.broken:
            self.work.grow()
        return True


def _broken(work: Work) -> futures.BrokenExecutor:
    assert work.broken is not None
    kind, text = work.broken
    return kind(text)


def _check_count(argument: str, number: object, least: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{argument} is {type(number).__name__}; allowed: int")
    if number < least:
        raise ValueError(f"{argument} is {number}; allowed: {least} or more")
