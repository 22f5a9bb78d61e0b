"""Sleeps until something happens, instead of looking again and again."""

from __future__ import annotations

import os
import select
import time
from contextlib import ExitStack


def woken(until: float, *pids: int, pipe: int | None = None) -> bool:
    """A process of these, all children of this one, has ended or the pipe can be read; False: it is
    `until`, by the monotonic clock."""
    with ExitStack() as stack:
        watched = [] if pipe is None else [pipe]
        for pid in pids:
            end = os.pidfd_open(pid)
            stack.callback(os.close, end)
            watched.append(end)
        ready, _, _ = select.select(watched, [], [], max(until - time.monotonic(), 0))
    return bool(ready)
