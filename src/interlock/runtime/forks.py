"""Forks of this process: their number, and the end of a child that comes back from a handler.

An object that belongs to the process that made it keeps `count`, and is in the child of a fork when
`count` has changed.
"""

from __future__ import annotations

import os
import sys
import traceback

__all__ = ["count", "end_if_forked"]

count = 0
"""Number of forks between the first process of Python and this one. Comparing it is cheaper than
asking for the process id, which is a system call each time."""


def end_if_forked(began: int, error: BaseException | None = None) -> None:
    """End this process if a handler forked it, and has returned or raised `error` in it.

    `began` is the `count` from before the handler was called. The handler's caller belongs to the
    parent, with its connections and the messages that it holds; so the child goes no further. It
    ends as one of ``multiprocessing`` does: with 0, with the code of a ``SystemExit``, or with 1
    and the error on stderr; its output is flushed, and the interpreter's other exit steps are
    skipped.
    """
    # Workers compare before they call, because they run this for every message.
    if count == began:
        return
    status = 0
    try:
        # By its type: an exception may misreport its class, and raise when asked for it.
        exits = issubclass(type(error), SystemExit)
        code = error.code if exits else None  # type: ignore[union-attr]
        if isinstance(code, int):
            status = code & 0xFF
        elif code is not None:
            status = 1
            print(code, file=sys.stderr)
        elif error is not None and not exits:
            status = 1
            traceback.print_exception(error)
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    finally:
        os._exit(status)


def _forked() -> None:
    global count
    count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
