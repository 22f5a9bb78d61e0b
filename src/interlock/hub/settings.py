"""What can be set of a hub: each key once, with its default, its check and its line of help.

The file's grammar, `--print-config`, the reference page and the messages of errors come from here.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable
from dataclasses import dataclass


class Wrong(ValueError):
    """A value that a setting does not take; `config` adds which setting, and where it came from."""


@dataclass(frozen=True)
class Setting:
    """One key of the configuration."""

    key: str
    """As it stands in the file; a dot parts a table from its key."""

    default: bool | int | float | str
    check: Callable[[object], object]
    """Gives the value, made canonical; raises Wrong."""

    allowed: str
    """What follows `allowed:` in an error."""

    help: str
    """One line."""

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "INTERLOCK_HUB_" + self.key.upper().replace(".", "_")

    def parse(self, text: str) -> object:
        """A value from a flag or the environment, where all is text, as the file would give it."""
        if isinstance(self.default, str):
            return text
        if isinstance(self.default, bool):
            return {"true": True, "false": False}.get(text.lower(), text)
        for number in (int, float):
            try:
                return number(text)
            except ValueError:
                continue
        return text


def whole(least: int, most: int) -> Callable[[object], int]:
    """A whole number within limits."""

    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise Wrong
        return value

    return check


def seconds(value: object) -> float:
    """A number of seconds, 0 or more, and no more than a year."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Wrong
    if not 0 <= value <= YEAR:  # refuses nan too
        raise Wrong
    return float(value)


def truth(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise Wrong
    return value


def address(value: object) -> str:
    """An IP address, or nothing. Names are not looked up: what they mean can change."""
    if not isinstance(value, str):
        raise Wrong
    try:
        return str(ipaddress.ip_address(value)) if value else ""
    except ValueError:
        raise Wrong from None


def some_address(value: object) -> str:
    """An IP address."""
    if not value:
        raise Wrong
    return address(value)


def path(value: object) -> str:
    """A path that the kernel takes as the name of a socket, or nothing."""
    if not isinstance(value, str) or "\0" in value or len(os.fsencode(value)) > LONGEST_UNIX_PATH:
        raise Wrong
    return value


YEAR = 366 * 86400
# sun_path of Linux, less the zero at its end.
LONGEST_UNIX_PATH = 107
MOST_BYTES = 2**40
# The server keeps places within a request as 32-bit numbers.
LONGEST = 2**31
BYTES = "a whole number of bytes"
OR_NONE = f"{BYTES}, from 0 (no limit) to {MOST_BYTES}"
SECONDS = f"a number of seconds from 0 to {YEAR}"
WHOLE_SECONDS = f"a whole {SECONDS.removeprefix('a ')}"

SETTINGS = (
    Setting(
        "host", "127.0.0.1", address, 'an IP address, or "" for no TCP at all',
        'the address to listen on; "" for no TCP',
    ),
    Setting(
        "port", 6399, whole(0, 65535), "a whole number from 0 to 65535",
        "the TCP port; 0 takes a free one",
    ),
    Setting(
        "unix", "", path, f"a path of at most {LONGEST_UNIX_PATH} bytes",
        "the path of a unix socket to listen on as well",
    ),
    Setting(
        "unprotected", False, truth, "true, false",
        "listen where other machines can reach the hub, though it asks nobody for a password",
    ),
    Setting(
        "workers", 0, whole(0, 64), "a whole number from 0 to 64",
        "how many threads serve connections; 0 takes one for each core, at most 4",
    ),
    Setting(
        "maxclients", 10000, whole(1, 1000000), "a whole number from 1 to 1000000",
        "how many connections may be open; one more is refused with an error",
    ),
    Setting(
        "max_per_address", 0, whole(0, 1000000), "a whole number from 0 (no limit) to 1000000",
        "how many of them may come from one IP address",
    ),
    Setting(
        "query_limit", 64 << 20, whole(1024, LONGEST), f"{BYTES}, from 1024 to {LONGEST}",
        "bytes that a client may have sent of commands not yet complete",
    ),
    Setting(
        "frame_limit", 512 << 20, whole(1024, LONGEST), f"{BYTES}, from 1024 to {LONGEST}",
        "bytes of the longest argument of a command",
    ),
    Setting(
        "idle_timeout", 0, whole(0, YEAR), WHOLE_SECONDS,
        "close a client that subscribes to nothing and was silent for so many seconds; 0 never",
    ),
    Setting(
        "drain", 5.0, seconds, SECONDS,
        "how long a stopping hub waits for its clients to read what they are owed",
    ),
    Setting(
        "http.host", "127.0.0.1", some_address, "an IP address",
        "the address of HTTP for watching: /metrics, /health, /ready",
    ),
    Setting(
        "http.port", -1, whole(-1, 65535), "a whole number from -1 to 65535",
        "its port; 0 takes a free one, -1 is no HTTP",
    ),
    Setting(
        "limits.normal.soft", 0, whole(0, MOST_BYTES), OR_NONE,
        "bytes owed to a client without subscriptions that end it when owed for soft_seconds",
    ),
    Setting(
        "limits.normal.soft_seconds", 0, whole(0, YEAR), WHOLE_SECONDS,
        "how long they may be owed",
    ),
    Setting(
        "limits.normal.hard", 0, whole(0, MOST_BYTES), OR_NONE,
        "bytes owed to it that end it at once",
    ),
    Setting(
        "limits.pubsub.soft", 8 << 20, whole(0, MOST_BYTES), OR_NONE,
        "bytes owed to a subscriber that end it when owed for soft_seconds",
    ),
    Setting(
        "limits.pubsub.soft_seconds", 60, whole(0, YEAR), WHOLE_SECONDS,
        "how long they may be owed",
    ),
    Setting(
        "limits.pubsub.hard", 32 << 20, whole(0, MOST_BYTES), OR_NONE,
        "bytes owed to it that end it at once",
    ),
)  # fmt: skip

BY_KEY = {setting.key: setting for setting in SETTINGS}
