"""The command that installs a part's dependencies, for errors and help."""

from __future__ import annotations


def needs(extra: str) -> str:
    """Return the command that installs an extra. Interlock is on no package index."""
    return f"pip install '.[{extra}]' in the clone of Interlock"
