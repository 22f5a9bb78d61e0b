"""Messages and queues as a server stores them.

Payloads, keys and names are bytes as the server has them: a viewer need not know how a program
encodes its payloads. Times are whole µs, as on the wire, so that copies are exact.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from interlock.client.wire.failures import Failures, newest_line
from interlock.runtime.concurrency import (
    Behind,
    group_of,
    group_text,
    joined_names,
    names_of,
    names_text,
    run_text,
)
from interlock.runtime.limits import MAX_KEYS_ON_REDIS


@dataclass(frozen=True, slots=True)
class Names:
    """The limits, the group and the run of a message. Names that are not UTF-8 have lone
    surrogates."""

    limit: tuple[str, ...] = ()
    group: str | None = None
    run: str | None = None
    """Its number of messages and its label, ``N:LABEL``."""

    def texts(self) -> tuple[bytes, bytes, bytes]:
        """Return them in the form of the engines, empty for none."""
        group, run = (
            (text or "").encode(errors="surrogateescape") for text in (self.group, self.run)
        )
        return joined_names(self.limit), group, run

    def as_json(self) -> dict[str, Any]:
        """Return them for JSON, as ``of_json`` reads them."""
        return {"limit": list(self.limit), "group": self.group, "run": self.run}

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> Names | None:
        """Read them from JSON; None if they are not stated.

        Raises:
            TypeError, ValueError: a value is of a wrong type or may not be a name.
        """
        if not given.keys() & {"limit", "group", "run"}:
            return None
        limit, group, run = given.get("limit") or (), given.get("group"), given.get("run")
        if run is not None:
            most, colon, label = run.partition(":") if isinstance(run, str) else ("", "", "")
            if not (most.isdecimal() and colon):
                raise ValueError(f"run is {run!r}; allowed: N:LABEL, such as 100:pay")
            run = run_text(int(most), label, "requeue()")
        names = names_text(limit, "requeue()") if limit else ""
        return cls(
            names_of(names.encode()),
            None if group is None else group_text(group, "requeue()"),
            run,
        )

    def __str__(self) -> str:
        named = ("limits", ", ".join(self.limit)), ("group", self.group), ("run", self.run)
        return ", ".join(f"{what} {text}" for what, text in named if text) or "none"


@dataclass(frozen=True, slots=True)
class NewKeys:
    """The keys under which an edited message is handled."""

    exclusive: tuple[bytes, ...] = ()
    shared: tuple[bytes, ...] = ()
    names: Names | None = None
    """Its limits, group and run; None: as they were."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An unsettled message."""

    id: int
    sequence: int
    """Its position; for a delayed message, which has none yet, its id."""

    attempt: int
    payload: bytes
    keys: tuple[bytes, ...]
    shared: tuple[bytes, ...]
    options: dict[str, bytes]
    """The options of its put that differ from the defaults, by the names of `il1_put`."""

    state: str
    """delayed, waiting, ready, leased, backing_off, held or parked; dead for a dead letter."""

    due: int | None
    """The end of its delay or backoff, or the time of death, µs since 1970; else None."""

    history: bytes
    """The errors of its attempts, in the engine's encoding."""

    @property
    def error(self) -> str:
        """The first line of its last failure; empty if it has not failed."""
        return newest_line(self.history)

    @property
    def failures(self) -> Failures:
        """Its failed attempts, the newest first."""
        return Failures.parse(self.history)

    @property
    def priority(self) -> int:
        """Priority, -100 to 100."""
        return int(self.options.get("PRIORITY", b"0"))

    @property
    def limit(self) -> tuple[str, ...]:
        """Its limit names, sorted."""
        return names_of(self.options.get("LIMIT", b""))

    @property
    def group(self) -> str | None:
        """Its group."""
        return group_of(self.options.get("GROUP", b""))

    @property
    def names(self) -> Names:
        """Its limits, group and run."""
        run = self.options.get("RUN")
        return Names(
            self.limit,
            self.group,
            None if run is None else run.decode(errors="surrogateescape"),
        )

    @property
    def coalesce(self) -> bytes | None:
        """Its coalescing name."""
        return self.options.get("COALESCE")

    @property
    def behind(self) -> Behind | None:
        """Its own outcome behind a failure; None: the queue's."""
        word = self.options.get("BEHIND")
        return None if word is None else cast(Behind, word.decode())


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter."""

    id: int
    attempts: int
    time: int
    """The time of death, µs since 1970."""

    history: bytes
    """The errors of its attempts, in the engine's encoding."""

    priority: int
    payload: bytes
    keys: tuple[bytes, ...]
    shared: tuple[bytes, ...]

    @property
    def error(self) -> str:
        """The first line of its last failure; empty if it has not failed."""
        return newest_line(self.history)

    @property
    def failures(self) -> Failures:
        """Its failed attempts, the newest first."""
        return Failures.parse(self.history)


@dataclass(frozen=True, slots=True)
class Dropped:
    """The outcome of dropping a queue."""

    gone: bool
    """False: the queue did not exist, or has unsettled messages."""

    unsettled: int
    leased: int
    dead: int
    results: int


@dataclass(frozen=True, slots=True)
class Version:
    """The versions and features of the answering server."""

    wire: int
    library: str
    """The library's hash, or the hub's version."""

    features: frozenset[str]

    @property
    def release(self) -> tuple[int, ...]:
        """The release of the library; empty for releases that do not report it."""
        return release_of(self.release_text)

    @property
    def release_text(self) -> str:
        """The same as reported; empty for releases that do not report it."""
        told = (one.removeprefix("release=") for one in self.features if one.startswith("release="))
        return next(told, "")

    @property
    def most_keys(self) -> int:
        """Maximum number of keys of a message."""
        return next(
            (int(one[5:]) for one in self.features if KEYS.fullmatch(one)), MAX_KEYS_ON_REDIS
        )


def release_of(text: str) -> tuple[int, ...]:
    """Return the numbers of a release, for comparison: (1, 2, 3) for 1.2.3rc1."""
    return tuple(int(part) for part in re.findall(r"\d{1,9}", RELEASE.match(text)[0]))  # type: ignore[index]


KEYS = re.compile(r"keys=\d{1,9}")
RELEASE = re.compile(r"[\d.]*")
