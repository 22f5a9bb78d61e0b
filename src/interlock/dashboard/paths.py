"""Paths of requests: split before they are decoded, so that a name may hold any character.

A name in a path is percent-encoded. A segment that begins with a bare ``=`` is the name's bytes in
base64 (url-safe, without padding) behind that: it is needed for names that browsers and proxies
would take for steps, ``.`` and ``..``. A name's own ``=`` is ``%3D``.
"""

from __future__ import annotations

import base64
import binascii
from urllib.parse import quote, unquote_to_bytes

from interlock.dashboard.refusal import Refusal
from interlock.runtime.limits import MAX_NUMBER


def segments(raw: bytes) -> tuple[str, ...]:
    """Return the segments of a path as they were sent, without the query."""
    path = raw.partition(b"?")[0].decode("latin-1")
    return tuple(path.lstrip("/").split("/"))


def decoded(segment: str) -> str:
    """Return the name of a segment; raise Refusal if it is invalid."""
    if segment.startswith("="):
        whole = segment[1:] + "=" * (-(len(segment) - 1) % 4)
        try:
            data = base64.b64decode(whole, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise Refusal(400, f"{segment!r} is not base64 behind '='") from None
    else:
        data = unquote_to_bytes(segment.encode("latin-1"))
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refusal(400, f"{segment!r} is not UTF-8") from None


def encoded(name: str) -> str:
    """Return a name as a segment of a path."""
    if name in (".", ".."):
        return "=" + base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")
    return quote(name, safe="")


def message_id(text: str) -> int:
    """Return the id of a segment; raise Refusal if it is invalid."""
    if text.isascii() and text.isdigit() and len(text) <= 16 and 0 < int(text) <= MAX_NUMBER:
        return int(text)
    raise Refusal(400, f"{text[:40]!r} is not a message id; allowed: a whole number")
