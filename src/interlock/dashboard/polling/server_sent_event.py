"""The format of a server-sent event."""

from __future__ import annotations

import msgspec


def frame(event: str, data: object) -> bytes:
    """Return an event with its data as JSON, which has no line breaks."""
    return b"event: %b\ndata: %b\n\n" % (event.encode(), msgspec.json.encode(data))
