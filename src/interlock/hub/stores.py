"""Stores of a hub, as `[[store]]` tables declare them, which keep what is published."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from interlock import _core
from interlock.hub.checks import file, one_of, truth, whole
from interlock.hub.invalid_value import InvalidValue
from interlock.hub.listed import WORDS, Key, ListOf, words


@dataclass(frozen=True)
class Store:
    """A store and the topics that it keeps."""

    name: str
    kind: str
    topics: tuple[str, ...]
    """Globs of the topics it keeps."""

    exclude: tuple[str, ...]
    """Globs of those among them that it does not."""

    queue: int
    """Bytes that may wait to be written."""

    full: str
    ack: str
    path: str
    rotate: str
    """Empty: only as the path asks for."""

    sync: str
    compress: int
    """The level of zstd; 0: closed files stay as they are."""

    keep: str
    """The time that a closed file stays; empty: for ever."""

    keep_bytes: int
    """Bytes of all its files; 0: any number."""

    local: bool

    def table(self) -> dict[str, object]:
        """Return it as a `[[store]]` table that would give it."""
        table = asdict(self)
        if self.kind != "file":
            for name in OF_FILE:
                del table[name]
        return table

    def for_server(self) -> dict[str, Any]:
        """Return what the native server is given."""
        rotate_bytes, rotate_minutes = rotation(self.rotate)
        return {
            "name": self.name,
            "kind": self.kind,
            "topics": [topic.encode() for topic in self.topics],
            "exclude": [topic.encode() for topic in self.exclude],
            "queue": self.queue,
            "full": self.full,
            "ack": self.ack,
            "path": self.path,
            "host": socket.gethostname(),
            "local": self.local,
            "rotate_bytes": rotate_bytes,
            "rotate_minutes": rotate_minutes,
            "sync": self.sync,
            "compress": self.compress or None,
            "keep": duration(self.keep) * 1_000_000 if self.keep else None,
            "keep_bytes": self.keep_bytes or None,
        }

    def describe(self) -> str:
        """Return a line for people."""
        where = f" in {self.path}" if self.path else ""
        without = f" without {' '.join(self.exclude)}" if self.exclude else ""
        return f"store {self.name}: {self.kind}{where}: {' '.join(self.topics)}{without}"


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


def duration(text: str) -> int:
    """Return the seconds of a text such as "30d"."""
    found = DURATION.fullmatch(text)
    if found is None:
        raise InvalidValue
    return int(found[1]) * SECONDS[found[2]]


def rotation(text: str) -> tuple[int | None, int | None]:
    """Return the bytes and the minutes after which a file is closed; None: not for that."""
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


def _name(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", value):
        raise InvalidValue
    if len(value) > LONGEST_NAME:
        raise InvalidValue
    return value


def _globs(value: object) -> tuple[str, ...]:
    globs = words(value)
    for glob in globs:
        try:
            if len(glob.encode()) > LONGEST_GLOB:
                raise InvalidValue
        except UnicodeEncodeError:
            raise InvalidValue from None
    return globs


def _rotate(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue
    rotation(value)
    return value


def _compress(value: object) -> int:
    if isinstance(value, bool):
        return LEVEL if value else 0
    return whole(0, 19)(value)


def _keep(value: object) -> str:
    if not isinstance(value, str) or (value and not 0 < duration(value) <= 100 * 366 * 86400):
        raise InvalidValue
    return value


def _made(values: Mapping[str, Any], given: frozenset[str]) -> Store:
    kind = values["kind"]
    if kind != "file":
        for name in OF_FILE:
            if name in given:
                raise InvalidValue(f".{name}", values[name], f"no {name}: a {kind} store has none")
        if values["ack"] == "disk":
            raise InvalidValue(".ack", "disk", f"none, memory: a {kind} store writes nothing")
    else:
        if not values["path"]:
            raise InvalidValue(".path", "missing", PATH)
        refused = _core.HubServer.refused_path(values["path"], values["name"])
        if refused is not None:
            raise InvalidValue(".path", values["path"], f"{PATH} ({refused})")
    if values["ack"] == "disk" and "sync" in given and values["sync"] != "always":
        raise InvalidValue(".sync", values["sync"], 'always, where ack is "disk"')
    if values["ack"] != "none" and values["full"] == "drop":
        raise InvalidValue(
            ".full", "drop", "wait, where ack is not none: what is dropped cannot be acknowledged"
        )
    if values["ack"] == "disk":
        values = {**values, "sync": "always"}
    return Store(**values)


LONGEST_NAME = 64
LONGEST_GLOB = 1024
LEVEL = 3
MOST_BYTES = 2**50
UNITS = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40}
SIZE = re.compile(r"([0-9]{1,15})(B|KB|MB|GB|TB)")
SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}
DURATION = re.compile(r"([0-9]{1,9})(s|min|h|d)")
PERIODS: dict[str, int | None] = {"": None, "hour": 60, "day": 1440}
OF_FILE = ("path", "rotate", "sync", "compress", "keep", "keep_bytes", "local")
PATH = "the path of a file such as out/[topic]/[date].log"
BYTES = 'a number of bytes, or a text such as "64MB"'

STORES = ListOf(
    "store",
    (
        Key(
            "name",
            _name,
            f"a text of up to {LONGEST_NAME} letters, digits, `.`, `_` and `-`, no dot first",
            "its name, by which its files know it",
            required=True,
        ),
        Key("kind", one_of("file", "null"), "file, null", "where it puts messages", "file"),
        Key("topics", _globs, WORDS, "globs of the topics it keeps", ("*",)),
        Key("exclude", _globs, WORDS, "globs of those among them that it does not keep", ()),
        Key("queue", size, BYTES, "bytes that may wait to be written", 64 * 2**20),
        Key(
            "full",
            one_of("wait", "drop"),
            "wait, drop",
            "when the queue is full, the publisher waits, or the message is left out and counted",
            "wait",
        ),
        Key(
            "ack",
            one_of("none", "memory", "disk"),
            "none, memory, disk",
            "when a PUBLISH is answered: at once, once it is in the queue, or once it is on disk",
            "none",
        ),
        Key("path", file, PATH, "where messages go; [topic], [date], [hour] and so on differ", ""),
        Key(
            "rotate",
            _rotate,
            '"64MB", "10min", "hour", "day"',
            "when a file is closed and the next begun, beside what the path asks for",
            "",
        ),
        Key(
            "sync",
            one_of("always", "everysec", "no"),
            "always, everysec, no",
            "when what was written is brought to the disk",
            "everysec",
        ),
        Key(
            "compress",
            _compress,
            "true, false, or a level of zstd from 0 (none) to 19",
            "compress files that are closed",
            0,
        ),
        Key("keep", _keep, '"30d", "12h", ""', 'how long a closed file stays; "" for ever', ""),
        Key("keep_bytes", size, BYTES, "bytes of all its files; 0 for any number", 0),
        Key("local", truth, "true, false", "dates and hours in local time, not UTC", False),
    ),
    _made,
    Store,
)
