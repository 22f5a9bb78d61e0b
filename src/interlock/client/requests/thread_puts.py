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
from interlock.runtime.threads import start_thread

_IDLE = 5.0
"""Seconds after which a thread that has nothing to send ends."""
_AGAIN = 1.0
"""Seconds after which a waiting put rings again: Ctrl-C may have hit the one that was to ring."""


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
        self._is_lingering = False
        """The thread waits until more puts have gathered, and needs no ring."""
        _all.add(self)

    @property
    def is_forked(self) -> bool:
        """It belongs to the parent of this process."""
        return self._forks != forks.count

    def put(self, message: wire.Message, end: float | None, bounded: bool) -> Put:
        """Put a message; see `Handle.put`."""
        send = Send(self._timeout, message, end, bounded, self._linger)
        if self._waiting or not send.may_linger or self._is_nested():
            return self._put_alone(send)
        is_carried = False
        turn = self._turn
        try:
            # Within the block, because Ctrl-C may come when the turn has just been taken. Others
            # may have gathered just before it was.
            if not (self._linger or self._pending) and turn.acquire(False) and not self._pending:
                is_carried = True
                self._carry([send])
        finally:
            self._pass_on()
        if not is_carried:
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
        send.done = threading.Lock()
        send.done.acquire()
        try:
            self._pending.append(send)
            if not self._linger:
                try:
                    # The call in flight may have ended before this put was there.
                    self._turn.acquire(False)
                finally:
                    self._pass_on()
            elif not self._is_lingering or len(self._pending) >= MAX_BATCH:
                self._ring()
            answered = False
            while not answered and (left := send.deadline - time.monotonic()) > 0:
                answered = send.done.acquire(timeout=min(left, _AGAIN + self._linger))
                if not answered:
                    self._ring()
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

    def _is_nested(self) -> bool:
        """Nobody would send a put of this thread while it waits: a signal handler or a destructor
        makes it in the middle of another, or the interpreter ends."""
        turn, thread = self._turn, self._thread_id
        return turn._is_owned() or thread == _thread.get_ident() or sys.is_finalizing()

    def _pass_on(self) -> None:
        """Return the turn if this thread has it, and ring for those who have gathered."""
        try:
            self._turn.release()
        except RuntimeError:
            # Another has it, and rings.
            return
        if self._pending:
            self._ring()

    def _ring(self) -> None:
        """Wake the thread that sends, or start it."""
        self._bell.put(None)
        if "thread" not in self._thread:
            try:
                start_thread(self._send_gathered)
            except RuntimeError:
                # The interpreter is ending, or no thread can be started.
                self.wake()

    def _send_gathered(self) -> None:
        # Claimed here, because Ctrl-C may come before or after the start, but not in this thread.
        me = object()
        if self._thread.setdefault("thread", me) is not me:
            return
        try:
            threading.current_thread().name = "interlock-puts"
            self._thread_id = _thread.get_ident()
            with contextlib.suppress(_queue.Empty):
                while True:
                    self._bell.get(timeout=_IDLE)
                    if self._linger:
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
        finally:
            self._thread_id = 0
            self._thread.pop("thread", None)
            if self._pending:
                self._ring()

    def _wait_for_more(self) -> None:
        # Set before it looks: a put that sees it set is seen.
        self._is_lingering = True
        try:
            while 0 < len(self._pending) < MAX_BATCH:
                left = self._pending[0].since + self._linger - time.monotonic()
                if left <= 0:
                    break
                with contextlib.suppress(_queue.Empty):
                    self._bell.get(timeout=left)
        except IndexError:
            # The handle was closed meanwhile.
            pass
        finally:
            self._is_lingering = False

    def _send(self) -> None:
        """Send one call, and let its callers continue."""
        sends = next_call(self._pending)
        failure: BaseException | None = None
        try:
            if sends:
                self._carry(sends)
        except BaseException as error:
            failure = error
            if not isinstance(error, Exception):
                raise
        finally:
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
