"""Messages and queues as a server holds them.

Payloads, keys and names are bytes as the server has them: whoever looks need not know how a program
encodes its payloads. Times are whole µs, as on the wire, so that what is carried on is exact.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from interlock.engine.failures import Failures, newest_line
from interlock.limits import MAX_KEYS_ON_REDIS


@dataclass(frozen=True, slots=True)
class NewKeys:
    """The keys under which an edited message is handled."""

    exclusive: tuple[bytes, ...] = ()
    shared: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Stored:
    """An unsettled message."""

    id: int
    sequence: int
    """Its place; of a delayed message, which has none yet, its id."""

    attempt: int
    payload: bytes
    keys: tuple[bytes, ...]
    shared: tuple[bytes, ...]
    options: dict[str, bytes]
    """The options it was put with that are not as usual, by the names of `il1_put`."""

    state: str
    """delayed, waiting, ready, leased, backing_off or held; dead of a dead letter."""

    due: int | None
    """The time its delay or backoff ends, or it died, µs since 1970; None where it has none."""

    history: bytes
    """The errors of its attempts, as the engine has them."""

    @property
    def error(self) -> str:
        """The first line of its last failure; empty if there was none."""
        return newest_line(self.history)

    @property
    def failures(self) -> Failures:
        """Its failed attempts, the newest first."""
        return Failures.parse(self.history)

    @property
    def priority(self) -> int:
        """-100 to 100."""
        return int(self.options.get("PRIORITY", b"0"))


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter."""

    id: int
    attempts: int
    time: int
    """The time when it died, µs since 1970."""

    history: bytes
    """The errors of its attempts, as the engine has them."""

    priority: int
    payload: bytes
    keys: tuple[bytes, ...]
    shared: tuple[bytes, ...]

    @property
    def error(self) -> str:
        """The first line of its last failure; empty if there was none."""
        return newest_line(self.history)

    @property
    def failures(self) -> Failures:
        """Its failed attempts, the newest first."""
        return Failures.parse(self.history)


@dataclass(frozen=True, slots=True)
class Dropped:
    """The outcome for a queue that was to be dropped."""

    gone: bool
    """False: there was none, or it has unsettled messages."""

    unsettled: int
    leased: int
    dead: int
    results: int


@dataclass(frozen=True, slots=True)
class Version:
    """The versions and features of the server that answers."""

    wire: int
    library: str
    """The library's hash, or the hub's version."""

    features: frozenset[str]

    @property
    def release(self) -> tuple[int, ...]:
        """The release that the library is of; nothing for those before the first that says it."""
        return release_of(self.release_text)

    @property
    def release_text(self) -> str:
        """The same as it was said; empty for those before."""
        told = (one.removeprefix("release=") for one in self.features if one.startswith("release="))
        return next(told, "")

    @property
    def most_keys(self) -> int:
        """Most keys of a message."""
        return next(
            (int(one[5:]) for one in self.features if KEYS.fullmatch(one)), MAX_KEYS_ON_REDIS
        )


def release_of(text: str) -> tuple[int, ...]:
    """Return the numbers of a release, to be compared: of 1.2.3rc1 (1, 2, 3)."""
    return tuple(int(part) for part in re.findall(r"\d{1,9}", RELEASE.match(text)[0]))  # type: ignore[index]


KEYS = re.compile(r"keys=\d{1,9}")
RELEASE = re.compile(r"[\d.]*")
