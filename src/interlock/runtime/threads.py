"""Threads that are started without a lock, as a destructor or a signal handler may have to.

``threading.Thread.start`` takes locks, and waits until the thread has begun. If nobody waits, the
interpreter may end on a busy machine before the system has run the thread at all. CPython then
frees the thread's state, and the thread writes to it when it begins (3.11.2 does; 3.11.7 looks
first, with a moment left in between). So the interpreter's end waits for such threads to begin.
"""

from __future__ import annotations

import _thread
import atexit
import os
import sys
import time
from collections.abc import Callable
from typing import Any

__all__ = ["start_thread"]

LONGEST = 10.0
"""Seconds that the interpreter's end waits; a thread that takes longer can never begin."""

_starting: set[object] = set()
"""Threads that have not begun, each by an object of its own. Its methods are atomic."""

_is_ending = False


def start_thread(function: Callable[..., object], *arguments: Any) -> None:
    """Start a daemon thread.

    Raises:
        RuntimeError: no thread can be started, because the interpreter ends or for lack of memory.
    """
    if sys.is_finalizing():
        raise RuntimeError("the interpreter is ending: no thread can be started")
    me = object()
    _starting.add(me)
    try:
        _thread.start_new_thread(_run, (me, function, arguments))
    except BaseException:
        _starting.discard(me)
        raise
    if _is_ending:
        _wait()


def _run(me: object, function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    _starting.discard(me)
    function(*arguments)


def _wait() -> None:
    until = time.monotonic() + LONGEST
    while _starting and time.monotonic() < until:
        # Gives up the GIL, which a thread needs to begin.
        time.sleep(0.001)


@atexit.register
def _end() -> None:
    global _is_ending
    # One that is started from now on is waited for at once.
    _is_ending = True
    _wait()


# The child of a fork has none of them.
os.register_at_fork(after_in_child=_starting.clear)
