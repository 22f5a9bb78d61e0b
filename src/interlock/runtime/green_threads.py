"""Refusal of calls that would block a program whose threads gevent or eventlet has replaced.

A wait inside the native core stops the only thread of such a program, with all its greenlets. A
client of a hub or of Redis waits on sockets, which gevent replaces too, so it works.
"""

from __future__ import annotations

import _thread
import types

__all__ = ["refuse_green_threads"]


def refuse_green_threads(what: str) -> None:
    """Raise RuntimeError if threads of this process are greenlets."""
    start = _thread.start_new_thread
    if isinstance(start, types.BuiltinFunctionType):
        return
    library = getattr(start, "__module__", "another library").partition(".")[0]
    raise RuntimeError(
        f"{what} cannot be used where {library} has replaced threads: its waits would stop all "
        "greenlets. Connect to a hub or to Redis instead, or do not patch threads: "
        "gevent.monkey.patch_all(thread=False)"
    )
