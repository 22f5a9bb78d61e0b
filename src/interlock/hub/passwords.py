"""Passwords as the configuration holds them: hashed, never in plain text.

A hash is `scrypt$N$r$p$SALT$HASH`, salt and hash in base64. scrypt is slow and uses memory on
purpose (RFC 7914); with these costs a check takes about 40 ms of one core and 16 MiB, on a thread
of its own, and once for each password: the server remembers the right ones.
"""

from __future__ import annotations

import base64
import binascii
import os
from functools import cache


def hashed(password: str) -> str:
    """Return a new hash of a password, different each time, because its salt is random."""
    salt = os.urandom(16)
    return "$".join(("scrypt", str(COST), str(BLOCK), str(PARALLEL), _text(salt),
                     _text(_scrypt(password.encode(), salt, COST, BLOCK, PARALLEL))))  # fmt: skip


def matches(password: bytes, given: str) -> bool:
    """Return whether it is the password of a hash that `parsed` accepts."""
    from hmac import compare_digest

    cost, block, parallel, salt, expected = parsed(given)
    return compare_digest(_scrypt(password, salt, cost, block, parallel), expected)


@cache
def nobody() -> str:
    """Return the hash to compare a password with if the user does not exist, to take as long."""
    return hashed("")


def parsed(given: str) -> tuple[int, int, int, bytes, bytes]:
    """Return N, r, p, salt and hash.

    Raises ValueError for a text that is not a hash, or would cost too much.
    """
    kind, *rest = given.split("$")
    if kind != "scrypt" or len(rest) != 5:
        raise ValueError
    cost, block, parallel = (int(part) for part in rest[:3])
    try:
        salt, expected = (base64.b64decode(part, validate=True) for part in rest[3:])
    except binascii.Error:
        raise ValueError from None
    if cost < 2 or cost & (cost - 1) or min(block, parallel) < 1 or len(expected) != LENGTH:
        raise ValueError
    if 128 * cost * block * parallel > MOST_MEMORY:
        raise ValueError
    return cost, block, parallel, salt, expected


def _scrypt(password: bytes, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    # Imported here, because a hub that asks for no password needs no OpenSSL: 4 MB less.
    import hashlib

    return hashlib.scrypt(
        password, salt=salt, n=cost, r=block, p=parallel, maxmem=2 * MOST_MEMORY, dklen=LENGTH
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


COST = 2**14
BLOCK = 8
PARALLEL = 1
LENGTH = 32
MOST_MEMORY = 2**27
