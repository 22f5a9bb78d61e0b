"""Refusals of the dashboard: an HTTP status, and words; the mapping from the engine's errors."""

from __future__ import annotations

import re

from interlock.errors import EngineUnavailable, Full, InterlockError, ShutDown


class Refusal(Exception):
    """An answer that refuses the request."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def of(error: Exception) -> Refusal:
    """Return the refusal for an error of the engine."""
    text = str(error)
    if isinstance(error, Refusal):
        return error
    if is_stranger(error):
        return Refusal(503, f"the engine does not know this dashboard: {text}")
    if NO_RIGHT.search(text):
        return Refusal(403, text)
    if isinstance(error, Full | ShutDown) and not isinstance(error, EngineUnavailable):
        return Refusal(409, text)
    if isinstance(error, InterlockError):
        return Refusal(503, text)
    return Refusal(400, text)


def is_stranger(error: Exception) -> bool:
    """Return whether the engine refused the login."""
    return bool(WRONG_USER.search(str(error)))


NO_RIGHT = re.compile(r"\bNOPERM\b|The user executing the script can't|ACL failure in script")
"""Error words of a hub, and of Redis for users who may call a function but not its commands."""
WRONG_USER = re.compile(r"\b(WRONGPASS|NOAUTH)\b")
