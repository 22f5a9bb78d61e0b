"""Checks of single values of a `[[store]]` table: each returns the value in canonical form."""

from __future__ import annotations

import re
from collections.abc import Callable

from interlock.hub import url
from interlock.hub.config.checks import whole
from interlock.hub.config.invalid_value import InvalidValue
from interlock.hub.config.table_lists import words


def size(value: object) -> int:
    """Return a number of bytes: 67108864, or "64MB"."""
    if isinstance(value, bool):
        raise InvalidValue
    if isinstance(value, str):
        found = SIZE.fullmatch(value)
        if found is None:
            raise InvalidValue
        value = int(found[1]) * UNITS[found[2]]
    if not isinstance(value, int) or not 0 <= value <= MOST_BYTES:
        raise InvalidValue
    return value


def at_least(least: int) -> Callable[[object], int]:
    """Return the check of a minimum number of bytes."""

    def check(value: object) -> int:
        found = size(value)
        if found < least:
            raise InvalidValue
        return found

    return check


def duration(text: str) -> int:
    """Return the seconds of a text such as "30d"."""
    found = DURATION.fullmatch(text)
    if found is None:
        raise InvalidValue
    return int(found[1]) * SECONDS[found[2]]


def rotation(text: str) -> tuple[int | None, int | None]:
    """Return the bytes and the minutes after which a file is closed; None: not by that."""
    if text in PERIODS:
        return None, PERIODS[text]
    if DURATION.fullmatch(text):
        seconds = duration(text)
        if seconds % 60 or not 60 <= seconds <= 86400:
            raise InvalidValue
        return None, seconds // 60
    bytes_ = size(text)
    if bytes_ == 0:
        raise InvalidValue
    return bytes_, None


def name(value: object) -> str:
    """Return `value`, which must be a text that can be the name of a folder."""
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", value):
        raise InvalidValue
    if len(value) > LONGEST_NAME:
        raise InvalidValue
    return value


def globs(value: object) -> tuple[str, ...]:
    """Return `value`, which must be a list of globs of topics."""
    found = words(value)
    for glob in found:
        try:
            if len(glob.encode()) > LONGEST_GLOB:
                raise InvalidValue
        except UnicodeEncodeError:
            raise InvalidValue from None
    return found


def rotate(value: object) -> str:
    """Return `value`, which must be the size or the time after which a file is closed."""
    if not isinstance(value, str):
        raise InvalidValue
    rotation(value)
    return value


def compress(value: object) -> int:
    """Return the level of zstd; 0: none."""
    if isinstance(value, bool):
        return LEVEL if value else 0
    return whole(0, 19)(value)


def keep(value: object) -> str:
    """Return `value`, which must be a time such as "30d", or nothing."""
    if not isinstance(value, str) or (value and not 0 < duration(value) <= 100 * 366 * 86400):
        raise InvalidValue
    return value


def upstream(value: object) -> str:
    """Return `value`, which must be the address of a server; an error shows no password."""
    if not isinstance(value, str):
        raise InvalidValue
    try:
        url.parse(value)
    except ValueError:
        raise InvalidValue("", url.without_password(value), url.ALLOWED) from None
    return value


def timeout(value: object) -> float:
    """Return `value`, which must be a number of seconds above 0 and up to an hour."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 3600:
        raise InvalidValue
    return float(value)


LONGEST_NAME = 64
LONGEST_GLOB = 1024
LEVEL = 3
MOST_BYTES = 2**50
UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
SIZE = re.compile(r"([0-9]{1,15})(B|KB|MB|GB|TB)")
SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}
DURATION = re.compile(r"([0-9]{1,9})(s|min|h|d)")
PERIODS: dict[str, int | None] = {"": None, "hour": 60, "day": 1440}
