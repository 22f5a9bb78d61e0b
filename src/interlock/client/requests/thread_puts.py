"""Coalesced puts of threads: one more thread sends what has gathered; see `coalesced_puts`."""

from __future__ import annotations

import _thread
import collections
import contextlib
import os
import queue as _queue
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from interlock.client.requests.coalesced_puts import Send, next_call
from interlock.client.wire import messages as wire
from interlock.errors import EngineUnavailable, ShutDown
from interlock.message import Put
from interlock.runtime import forks
from interlock.runtime.limits import MAX_BATCH

_IDLE = 5.0
"""Seconds after which a thread that has nothing to send ends."""


class ThreadPuts:
    """The puts that the threads of a client make into one queue.

    Args:
        carry: sends the puts as one call, and notes the outcome of each.
        alone: puts one message, and waits for room.
        timeout: seconds that the engine has for its answer.
        linger: seconds for which a put waits until others have gathered.
    """

    def __init__(
        self,
        carry: Callable[[list[Send]], object],
        alone: Callable[[wire.Message, float | None, bool], Put],
        timeout: float,
        linger: float,
    ) -> None:
        self._carry = carry
        self._alone = alone
        self._timeout = timeout
        self._linger = linger
        self._forks = forks.count
        # Held by the sender of the call in flight. Reentrant, for a put that a signal handler or a
        # destructor makes in the middle of another.
        self._turn: Any = threading.RLock()
        self._pending: collections.deque[Send] = collections.deque()
        self._waiting: list[None] = []
        """An element for each put that waits for room."""
        self._bell: _queue.SimpleQueue[None] = _queue.SimpleQueue()
        self._thread: dict[str, object] = {}
        self._thread_id = 0
        _all.add(self)

    @property
    def is_forked(self) -> bool:
        """It belongs to the parent of this process."""
        return self._forks != forks.count

    def put(self, message: wire.Message, end: float | None, bounded: bool) -> Put:
        """Put a message; see `Handle.put`."""
        send = Send(self._timeout, message, end, bounded)
        if self._waiting:
            return self._put_alone(send)
        turn = self._turn
        if self._linger or self._pending or not turn.acquire(False):
            self._gather(send)
        else:
            try:
                # Another may have gathered before this thread got its turn.
                is_first = not self._pending
                if is_first:
                    self._carry([send])
            finally:
                turn.release()
                if self._pending:
                    self._ring()
            if not is_first:
                self._gather(send)
        if send.put is not None:
            return send.put
        if send.error is not None:
            raise send.error
        return self._put_alone(send)

    def end(self, error: ShutDown) -> None:
        """Refuse the puts that have not been sent."""
        with contextlib.suppress(IndexError):
            while True:
                send = self._pending.popleft()
                send.refused(error)
                send.done.release()

    def wake(self) -> None:
        """Wake a caller whose copy came into the child of a fork, which sends nothing for it."""
        with contextlib.suppress(IndexError):
            while True:
                self._pending.popleft().done.release()

    def _put_alone(self, send: Send) -> Put:
        self._waiting.append(None)
        try:
            return self._alone(send.message, send.end, send.bounded)
        finally:
            self._waiting.pop()

    def _gather(self, send: Send) -> None:
        """Wait until a put was sent with others. Without an outcome its caller sends it."""
        if self._turn._is_owned() or self._thread_id == _thread.get_ident() or sys.is_finalizing():
            # Nobody would send it while this thread waits.
            return
        send.done = threading.Lock()
        send.done.acquire()
        try:
            self._pending.append(send)
            if self._linger:
                if len(self._pending) in (1, MAX_BATCH):
                    self._ring()
            elif self._turn.acquire(False):
                # The call in flight has ended, perhaps before this put was there.
                self._turn.release()
                self._ring()
            left = max(send.deadline - time.monotonic(), 0.0)
            answered = send.done.acquire(timeout=min(left, threading.TIMEOUT_MAX))
        except BaseException:
            send.gone = True
            raise
        if self.is_forked:
            raise EngineUnavailable(
                "this process was forked in the middle of the call, which the parent continues; "
                "repeat it if the child needs one of its own",
                unknown=True,
            )
        if not answered:
            send.gone = True
            raise send.late()

    def _ring(self) -> None:
        """Make the thread look; it is started if there is none."""
        self._bell.put(None)
        me = object()
        if self._thread.setdefault("thread", me) is me:
            try:
                # Not threading.Thread, whose start takes locks.
                _thread.start_new_thread(self._send_gathered, ())
            except RuntimeError:
                # The interpreter is ending, or no thread can be started.
                self._thread.pop("thread", None)
                self.wake()

    def _send_gathered(self) -> None:
        threading.current_thread().name = "interlock-puts"
        self._thread_id = _thread.get_ident()
        with contextlib.suppress(_queue.Empty):
            while True:
                self._bell.get(timeout=_IDLE)
                self._wait_for_more()
                # A thread that has the turn rings when it returns it.
                if self._turn.acquire(False):
                    try:
                        while self._pending:
                            self._send()
                    finally:
                        self._turn.release()
                    if self._pending:
                        self._bell.put(None)
        self._thread_id = 0
        self._thread.pop("thread", None)
        if self._pending:
            self._ring()

    def _wait_for_more(self) -> None:
        while self._linger and 0 < len(self._pending) < MAX_BATCH:
            try:
                left = self._pending[0].since + self._linger - time.monotonic()
            except IndexError:
                break
            if left <= 0:
                break
            with contextlib.suppress(_queue.Empty):
                self._bell.get(timeout=left)

    def _send(self) -> None:
        """Send one call, and let its callers continue."""
        sends = next_call(self._pending)
        failure: BaseException | None = None
        try:
            if sends:
                self._carry(sends)
        except Exception as error:
            failure = error
        for send in sends:
            if failure is not None and send.is_open:
                send.refused(failure)
            send.done.release()
        # Callers that put again immediately are in the next call.
        time.sleep(0)


_all: weakref.WeakSet[ThreadPuts] = weakref.WeakSet()


def _forked() -> None:
    for puts in list(_all):
        puts.wake()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
