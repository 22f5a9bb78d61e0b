"""The number of forks that led to this process. It is there to be compared, where asking for the
process's own number would be a call of the system each time."""

from __future__ import annotations

import os

count = 0
"""Of forks between the first process of Python and this one."""


def _forked() -> None:
    global count
    count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
