"""The rows that all nodes have: users who are online."""

from __future__ import annotations

from typing import Annotated

from interlock import U32, U64, Max, Row, Size, Sum

TABLE = "online"
SESSION = 30.0
"""Seconds of silence after which a user is gone, if the app does not ask for others."""


class Presence(Row):
    """A user who is online. Two data centres that change a row at once agree by column."""

    device: Annotated[str, Size(16)]
    background: bool = False
    unread: Annotated[U32, Sum] = 0
    last_seen: Annotated[U64, Max] = 0
    """Seconds since 1970."""
