"""Checks of single values of the configuration: each returns the value in canonical form."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable

from interlock.hub.config.invalid_value import InvalidValue


def whole(least: int, most: int) -> Callable[[object], int]:
    """Return the check of a whole number within limits."""

    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InvalidValue
        return value

    return check


def seconds(value: object) -> float:
    """Return `value`, which must be a number of seconds from 0 to a year."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue
    if not 0 <= value <= YEAR:  # refuses nan too
        raise InvalidValue
    return float(value)


def truth(value: object) -> bool:
    """Return `value`, which must be true or false."""
    if not isinstance(value, bool):
        raise InvalidValue
    return value


def address(value: object) -> str:
    """Return `value`, which must be an IP address, or nothing.

    Names are not resolved: their meaning can change.
    """
    if not isinstance(value, str):
        raise InvalidValue
    try:
        return str(ipaddress.ip_address(value)) if value else ""
    except ValueError:
        raise InvalidValue from None


def some_address(value: object) -> str:
    """Return `value`, which must be an IP address."""
    if not value:
        raise InvalidValue
    return address(value)


def path(value: object) -> str:
    """Return `value`, which must be a path that can be a socket's name, or nothing."""
    if not isinstance(value, str) or "\0" in value or len(os.fsencode(value)) > LONGEST_UNIX_PATH:
        raise InvalidValue
    return value


def mode(value: object) -> str:
    """Return `value`, which must be the permissions of a file in octal digits, or nothing."""
    if not isinstance(value, str) or not re.fullmatch(r"(0?[0-7]{3})?", value):
        raise InvalidValue
    return value


def file(value: object) -> str:
    """Return `value`, which must be the path of a file, or nothing."""
    if not isinstance(value, str) or "\0" in value:
        raise InvalidValue
    return value


def one_of(*words: str) -> Callable[[object], str]:
    """Return the check of a value that is one of some words."""

    def check(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise InvalidValue
        return value

    return check


YEAR = 366 * 86400
# sun_path of Linux, less the zero at its end.
LONGEST_UNIX_PATH = 107
