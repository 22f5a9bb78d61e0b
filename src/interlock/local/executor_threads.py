"""Our own threads that run an executor's calls, and the part they share with a pool."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable
from concurrent import futures
from concurrent.futures.thread import BrokenThreadPool
from typing import TYPE_CHECKING, Any, Literal

from interlock import _core
from interlock.runtime.interrupt import behind

if TYPE_CHECKING:
    from interlock.queue import KeyedQueue

__all__ = ["ThreadWork", "Work", "log"]

log = logging.getLogger("interlock.worker")


class Work:
    """Runs the calls of an executor's queue; it must not keep the executor alive."""

    complete = False
    """True once nothing is to be started: a submit need not call ``grow``."""

    def __init__(self, queue: KeyedQueue[Any], most: int, taking_keys: int) -> None:
        self.queue = queue
        self.broken: tuple[type[futures.BrokenExecutor], str] | None = None
        self._reset()
        queue._set_crew(most, taking_keys)
        _works.add(self)

    def grow(self) -> None:
        """Start the threads missing for the calls in the queue."""
        raise NotImplementedError

    def help(self) -> None:
        """Make sure that the queued calls run: Ctrl-C may have ended a submit midway."""
        if not self.complete and self.queue._unsettled():
            self.grow()

    def join(self) -> None:
        """Wait for the calls, and for their threads; not for calls whose lease was revoked."""
        self.help()
        self.queue._join(None)

    def leave(self, thread: int | None) -> Callable[[], None]:
        """Prepare for the revocation of a call that a thread runs. Returns what undoes this."""
        return lambda: None

    def forked(self) -> None:
        """Start over in the child of a fork: nothing is started here yet."""
        self._reset()

    def _reset(self) -> None:
        self.complete = False
        # A signal handler, or a finalizer, may submit in the middle of a submit of the same thread.
        self._growing = threading.RLock()
        # Ctrl-C can end the start of a thread before the thread runs, or after. The one that
        # removes the thread from here decides: the thread itself, and it works; or its starter, and
        # it never will.
        self._starting: dict[threading.Thread, bool] = {}

    def _wanted(self) -> bool:
        """Return whether one of our threads is wanted. It asks once."""
        return self._starting.pop(threading.current_thread(), False)

    def _break(self, kind: type[futures.BrokenExecutor], text: str) -> None:
        """Fail the waiting calls, and all later ones."""
        self.broken = kind, text
        self.queue._fail_all(lambda: kind(text))


class ThreadWork(Work):
    """Runs calls on threads of our own: as many as were needed at once, up to ``most``."""

    def __init__(
        self,
        queue: KeyedQueue[Any],
        most: int,
        unkeyed: int,
        on: tuple[type[Exception], ...] | None,
        initializer: Callable[..., object] | None,
        initargs: tuple[Any, ...],
    ) -> None:
        self._most = most
        self._unkeyed = unkeyed
        self._on = on
        self._initializer = initializer
        self._initargs = initargs
        super().__init__(queue, most, most - unkeyed)

    def grow(self) -> None:
        """See ``Work``."""
        with self._growing:
            # Counted in one step, because a signal handler may grow it in between.
            taking_keys = list(self._threads.values()).count("any")
            kind: Literal["any", "unkeyed"] = "any"
            helping = taking_keys
            if taking_keys == self._most - self._unkeyed:
                # A thread that takes only calls without keys does not help a call with one.
                kind, helping = "unkeyed", len(self._threads) - self._unkeyed
            if self.complete or self.queue._unsettled() <= helping:
                return
            self._started += 1
            thread = threading.Thread(
                target=self._run,
                args=(kind,),
                name=f"{self.queue.name}_{self._started - 1}",
                daemon=True,
            )
            try:
                self._starting[thread] = True
                self._threads[thread] = kind
                if self._too_many(kind):
                    # A signal handler or a finalizer has started the last one meanwhile.
                    del self._starting[thread], self._threads[thread]
                    return
                thread.start()
                self.complete = len(self._threads) >= self._most
            except BaseException as error:
                if self._starting.pop(thread, False):
                    self._threads.pop(thread, None)
                if (interrupted := behind(error)) is not None:
                    raise interrupted from None
                # The system may be unable to start one more.
                if not isinstance(error, RuntimeError) or not self._threads:
                    raise

    def join(self) -> None:
        """See ``Work``."""
        super().join()
        with self._growing:
            threads = [thread for thread in list(self._threads) if thread.ident]
        for thread in threads:
            thread.join()

    def leave(self, thread: int | None) -> Callable[[], None]:
        """Let another thread take the place of this one, which is no longer waited for."""
        with self._growing:
            left = [one for one in list(self._threads) if thread and one.ident == thread]
            if not left:
                return lambda: None
            kind = self._threads.pop(left[0])
            self._left.add(left[0].ident)
            self.complete = False

        def undo() -> None:
            with self._growing:
                self._left.discard(left[0].ident)
                self._threads[left[0]] = kind
                self.complete = len(self._threads) >= self._most

        return undo

    def _reset(self) -> None:
        super()._reset()
        self._threads: dict[threading.Thread, Literal["any", "unkeyed"]] = {}
        self._started = 0
        self._left: set[int | None] = set()

    def _too_many(self, kind: Literal["any", "unkeyed"]) -> bool:
        most = self._unkeyed if kind == "unkeyed" else self._most - self._unkeyed
        return list(self._threads.values()).count(kind) > most

    def _run(self, kind: Literal["any", "unkeyed"]) -> None:
        if not self._wanted():
            return
        if self._initializer is not None:
            try:
                self._initializer(*self._initargs)
            except BaseException:
                log.critical("a thread's initializer raised", exc_info=True)
                self._break(
                    BrokenThreadPool, "a thread's initializer raised; the executor takes no calls"
                )
                return
        while _core.run_worker(self.queue, kind, self._on):
            log.warning("a revoked call of %r returned; its result is ignored", self.queue.name)
            # It continues, unless another thread has its place.
            if threading.get_ident() in self._left:
                return


_works: weakref.WeakSet[Work] = weakref.WeakSet()


def _after_fork() -> None:
    for work in list(_works):
        work.forked()


os.register_at_fork(after_in_child=_after_fork)


def at_exit() -> None:
    """Finish submitted calls before the interpreter goes, as with the standard executors."""
    works = list(_works)
    for work in works:
        work.queue._shutdown(False)
    for work in works:
        try:
            work.help()
        except RuntimeError:
            log.error(
                "no thread can be started for the calls of %r; they are cancelled", work.queue.name
            )
            work.queue._shutdown(True)
        while not work.queue._join(_LOOK):
            stats = work.queue.stats()
            if stats.leased + stats.ready + stats.backing_off + stats.delayed == 0:
                # Held or paused: no operator can free them any more.
                text = (
                    "%d calls of %r are held or paused; they are cancelled because the "
                    "interpreter is exiting"
                )
                log.error(text, stats.unsettled, work.queue.name)
                work.queue._shutdown(True)
        work.join()


# Seconds between two checks, at the interpreter's end, whether the remaining calls can run at all.
_LOOK = 0.5

_registered: weakref.WeakSet[type] = weakref.WeakSet()


def before(kind: type) -> None:
    """Let ``at_exit`` run before what a kind of executor does at the end of the interpreter."""
    if kind in _registered:
        return
    _registered.add(kind)
    # Before the interpreter waits for its threads, which atexit would be too late for; the last to
    # be registered is the first to run. The standard executors use it too, because there is no
    # public name.
    with contextlib.suppress(RuntimeError):  # It is ending already.
        threading._register_atexit(at_exit)  # type: ignore[attr-defined]


before(futures.ThreadPoolExecutor)
