"""Single puts of several callers, sent as one call.

While a call of a queue is in flight, the puts that other threads or tasks make gather, and the
next call carries them all. A lone put is sent immediately, by its caller. Each caller receives its
own id or error: if the engine refuses a call of several messages, it has put none of them, and each
is sent by itself. These calls never wait for room: a put that has to wait is made by its caller
alone, so that it does not delay the others, and while one waits nothing gathers.

`thread_puts` does this for threads, and `loop_puts` for the tasks of a loop.
"""

from __future__ import annotations

import asyncio
import collections
import copy
import threading
import time

from interlock.client.wire import messages as wire
from interlock.errors import EngineUnavailable, InterlockError
from interlock.message import Put
from interlock.runtime.limits import MAX_BATCH, MAX_BATCH_KEYS, MAX_PAYLOAD


class Send:
    """A message whose caller waits until it is put."""

    __slots__ = (
        "alone", "bounded", "deadline", "done", "end", "error", "future", "gone", "may_linger",
        "message", "put", "since", "taken",
    )  # fmt: skip

    done: threading.Lock
    """Released when the outcome is known, for a caller that is a thread."""
    future: asyncio.Future[None]
    """Resolved then, for a caller that is a task."""

    def __init__(
        self,
        timeout: float,
        message: wire.Message,
        end: float | None,
        bounded: bool,
        linger: float = 0,
    ) -> None:
        self.message = message
        self.end = end
        """Time at which the wait for room ends, by time.monotonic(); None: never."""
        self.bounded = bounded
        """The engine must have answered by then, too."""
        self.since = time.monotonic()
        self.deadline = self.since + linger + timeout
        """Time by which the engine must answer a call that does not wait for room."""
        self.may_linger = True
        """The engine has at least half of its time after it has waited for others."""
        if bounded and end is not None:
            self.deadline = end
            self.may_linger = not linger or end - self.since > 2 * linger
        self.put: Put | None = None
        self.error: InterlockError | ValueError | None = None
        self.alone = False
        """Its caller is to put it, and to wait for room."""
        self.taken = False
        """A call carries it."""
        self.gone = False
        """Its caller has left."""

    @property
    def is_open(self) -> bool:
        """Its outcome is not known yet."""
        return self.put is None and self.error is None and not self.alone

    def refused(self, error: BaseException) -> None:
        """Note an error, of which each caller receives its own copy."""
        if isinstance(error, InterlockError | ValueError):
            self.error = copy.copy(error)
        else:
            self.error = EngineUnavailable(
                f"a call with the puts of several callers failed: {error!r}; whether this message "
                "was put is not known",
                unknown=True,
            )

    def late(self) -> EngineUnavailable:
        """Return the error of a caller whose time is over."""
        seconds = f"{round(time.monotonic() - self.since, 1):g} s"
        if self.taken:
            text = f"il1_put with the puts of several callers was not answered in {seconds}"
        else:
            text = f"not put in {seconds}, because an earlier il1_put was not answered"
        return EngineUnavailable(text, unknown=self.taken)


def next_call(pending: collections.deque[Send]) -> list[Send]:
    """Remove and return the puts that one call can carry, in their order."""
    found: list[Send] = []
    keys = size = 0
    while pending and len(found) < MAX_BATCH:
        try:
            send = pending.popleft()
        except IndexError:
            # The handle was closed meanwhile.
            break
        message = send.message
        keys += len(message.keys) + len(message.shared)
        size += len(message.payload)
        # More bytes in one call would cost each message the same, but its caller would wait longer.
        if found and (keys > MAX_BATCH_KEYS or size > MAX_PAYLOAD):
            pending.appendleft(send)
            break
        # In this order: a caller that leaves sets the one and then reads the other.
        send.taken = True
        if not send.gone:
            found.append(send)
    return found
