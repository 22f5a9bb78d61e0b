"""The frames of a handler itself, without those of its callers."""

from __future__ import annotations

import gc
import os
import sys
import threading
import traceback
from collections.abc import Iterable
from types import FrameType

__all__ = ["frame_of", "own_frames", "stack_text"]


def frame_of(thread: int | None) -> FrameType | None:
    """Return the innermost frame of the thread with this identifier; None once it has ended.

    ``sys._current_frames`` holds a lock of the interpreter's while it makes its answer. A garbage
    collection at that moment may let another thread run, and if that thread starts or ends a
    thread, CPython 3.11 deadlocks (python/cpython#106883).
    """
    with _no_collection:
        collects = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames().get(thread or 0)
        finally:
            if collects:
                gc.enable()


def stack_text(frame: FrameType) -> str:
    """Return the stack of a thread that runs a handler, as a traceback shows it.

    It begins with the handler.
    """
    outermost_first = list(traceback.walk_stack(frame))[::-1]
    return as_text(outermost_first) or "(no handler runs there)\n"


def as_text(frames: Iterable[tuple[FrameType, int]]) -> str:
    """Return frames as a text, outermost first.

    Only the handler's own frames and those it called; empty if the handler is not on the stack.
    """
    return "".join(traceback.StackSummary.extract(iter(own_frames(frames))).format())


def own_frames(frames: Iterable[tuple[FrameType, int]]) -> list[tuple[FrameType, int]]:
    """Return the frames behind Interlock's and those of the threads and coroutines that run it.

    Such frames that the handler itself calls stay: they show what it waits for.
    """
    found = list(frames)
    begun = [at for at, (frame, _) in enumerate(found) if _is_in(frame, OURS)]
    first = begun[0] if begun else 0
    while first < len(found) and _is_in(found[first][0], (*OURS, *AROUND)):
        first += 1
    return found[first:]


def _is_in(frame: FrameType, folders: Iterable[str]) -> bool:
    file = frame.f_code.co_filename
    return any(file == folder or file.startswith(folder + os.sep) for folder in folders)


# With two at the same time, the second would take the first one's gc.disable() for the user's.
_no_collection = threading.Lock()
OURS = (os.path.dirname(os.path.dirname(os.path.abspath(__file__))),)
_LIBRARY = os.path.dirname(os.path.abspath(traceback.__file__))
AROUND = tuple(
    os.path.join(_LIBRARY, name)
    for name in ("threading.py", "asyncio", "contextlib.py", "concurrent", "selectors.py")
)
