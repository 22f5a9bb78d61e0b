"""Forks of this process: their number, and the end of a child that comes back from a handler."""

from __future__ import annotations

import os
import sys
import traceback
from typing import NoReturn

__all__ = ["count", "end_child"]

count = 0
"""Number of forks between the first process of Python and this one. Comparing it is cheaper than
asking for the process id, which is a system call each time."""


def end_child(error: BaseException | None = None) -> NoReturn:
    """End this process: a handler forked it, and has returned or raised in it.

    The handler's caller belongs to the parent, with its connections and the messages that it holds;
    so the child goes no further. It ends as one of ``multiprocessing`` does: with 0, with the code
    of a ``SystemExit``, or with 1 and the error on stderr; its output is flushed, and the
    interpreter's other exit steps are skipped.
    """
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
