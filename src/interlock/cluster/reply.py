"""Replies of a node's own commands, in the forms that every version of the protocol has."""

from __future__ import annotations

from collections.abc import Iterable

OK = b"+OK\r\n"


def bulk(data: bytes) -> bytes:
    """Return a string's bytes on the wire."""
    return b"$%d\r\n%s\r\n" % (len(data), data)


def array(elements: Iterable[bytes]) -> bytes:
    """Return an array of strings."""
    parts = [bulk(element) for element in elements]
    return b"*%d\r\n" % len(parts) + b"".join(parts)


def error(text: str) -> bytes:
    """Return an error, its code first."""
    return b"-%s\r\n" % " ".join(text.split()).encode()
