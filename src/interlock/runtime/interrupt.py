"""Ctrl-C where the standard library or the interpreter turns it into something else."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["behind", "noticed"]


def behind(error: BaseException) -> KeyboardInterrupt | None:
    """Return the Ctrl-C behind an error, or None.

    A waiting ``threading.Condition`` releases its lock and acquires it again. Ctrl-C between the
    two leaves ``with condition:`` without the lock, and raises ``RuntimeError("release unlocked
    lock")``; ``Thread.start`` and ``concurrent.futures.wait`` wait so.
    """
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, KeyboardInterrupt):
        seen = seen.__context__
    return seen


@contextmanager
def noticed() -> Iterator[Callable[[], None]]:
    """Yield a function that raises again a Ctrl-C that came in the block and was dropped.

    If it comes during a destructor or the callback of a weak reference, the interpreter prints it
    and continues. A long wait calls the function now and then. In other threads than the main one,
    and in a program that handles Ctrl-C by itself, it does nothing.
    """
    came = False
    usual = signal.getsignal(signal.SIGINT)

    def interrupted(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        signal.default_int_handler(number, frame)

    def check() -> None:
        if came:
            raise KeyboardInterrupt

    ours = threading.current_thread() is threading.main_thread()
    if not ours or usual is not signal.default_int_handler:
        yield check
        return
    signal.signal(signal.SIGINT, interrupted)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, usual)
