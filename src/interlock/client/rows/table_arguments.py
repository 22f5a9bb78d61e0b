"""The arguments of calls to a table: checked before the call is sent."""

from __future__ import annotations

from typing import Any

from interlock import _core
from interlock.message import Key

MOST_NAME = 200
MOST_BATCH = 1000


def given_key(key: Any) -> bytes:
    """Return the bytes of a key: str, int and bytes share one space.

    Raises:
        TypeError, ValueError: it is not a key.
    """
    named: Key = key
    return _core.canonical(named)


def given_keys(keys: Any) -> list[bytes]:
    """Return the bytes of keys.

    Raises:
        TypeError, ValueError: these are not keys, or a single key.
    """
    if isinstance(keys, str | bytes):
        kind = type(keys).__name__
        raise TypeError(f"get_many(): keys is {kind}; allowed: an iterable of keys")
    return [given_key(key) for key in keys]


def check_name(name: object) -> None:
    """Raise TypeError or ValueError if this is not a valid name of a table."""
    if not isinstance(name, str):
        raise TypeError(f"table(): name is {type(name).__name__}; allowed: str")
    size = len(name.encode(errors="replace"))
    wrong = any(char in ":/ " for char in name) or not name.isprintable()
    if not 1 <= size <= MOST_NAME or wrong or name.startswith("."):
        raise ValueError(
            f"table(): name is {name!r}; allowed: up to {MOST_NAME} bytes, without spaces, colons "
            f"and slashes, no dot first"
        )


def check_batch(batch: object) -> None:
    """Raise TypeError or ValueError if this many rows cannot be requested at once."""
    if not isinstance(batch, int) or isinstance(batch, bool):
        raise TypeError(f"scan(): batch is {type(batch).__name__}; allowed: int")
    if not 1 <= batch <= MOST_BATCH:
        raise ValueError(f"scan(): batch is {batch}; allowed: 1 to {MOST_BATCH:,}")


def check_word(argument: str, word: object, allowed: tuple[str | None, ...]) -> None:
    """Raise ValueError if an argument is not one of its words."""
    if word not in allowed:
        words = ", ".join(repr(one) for one in allowed if one is not None)
        raise ValueError(f"{argument} is {word!r}; allowed: {words}")
