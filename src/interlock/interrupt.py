"""Ctrl-C where the standard library turns it into another error."""

from __future__ import annotations

__all__ = ["behind"]


def behind(error: BaseException) -> KeyboardInterrupt | None:
    """Return the Ctrl-C that an error came of, or None.

    A ``threading.Condition`` that waits gives its lock up and takes it again. Ctrl-C between the
    two leaves ``with condition:`` without the lock, and what is raised is ``RuntimeError("release
    unlocked lock")``; ``Thread.start`` and ``concurrent.futures.wait`` wait so.
    """
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, KeyboardInterrupt):
        seen = seen.__context__
    return seen
