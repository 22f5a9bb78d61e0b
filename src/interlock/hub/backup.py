"""Copies of a hub's journal, made while it runs: from the hub, or from its folder.

The first file written names the last record of the copy. If a copy is incomplete, because its
process was killed or the disk was full, a hub that starts on it reports what is missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Protocol

from interlock import _core
from interlock.hub.client import Client
from interlock.hub.resp import ProtocolError, ReplyError


@dataclass(frozen=True)
class Part:
    """A file of a copy."""

    name: str
    bytes: int
    """Number of bytes to be copied."""

    length: int
    """Length of the file, with zeroes behind those bytes."""


class Source(Protocol):
    """The source of a copy, as of the moment it was opened."""

    @property
    def last(self) -> int:
        """Number of its last record."""

    @property
    def parts(self) -> list[Part]:
        """Its files, in the order in which they are written."""

    def pieces(self, number: int) -> Iterator[bytes]:
        """Yield the bytes to be written into a file, given its index in `parts`."""


class Folder:
    """A journal's folder on this machine, whether a hub has it open or not. Opening it reads
    everything; an OSError names any damage."""

    def __init__(self, path: Path) -> None:
        self._copy = _core.JournalCopy(path)
        self.last = self._copy.last
        self.parts = [Part(*file) for file in self._copy.files]

    def pieces(self, number: int) -> Iterator[bytes]:
        """Yield a file's bytes."""
        offset = 0
        while piece := self._copy.read(number, offset, PIECE):
            yield piece
            offset += len(piece)


class Asked:
    """A running hub. Raises ReplyError if it has no journal, or the user no right to it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        try:
            last, *files = _items(client.call("BACKUP", "BEGIN"))
        except ReplyError as error:
            if "unknown command" not in str(error):
                raise
            text = "the server has no command BACKUP: it is not a hub, or an older one"
            raise ReplyError(f"ERR {text}") from None
        self.last = _number(last)
        self.parts = [_part(file) for file in files]

    def pieces(self, number: int) -> Iterator[bytes]:
        """Yield a file's bytes, with several requests in flight."""
        size = self.parts[number].bytes
        for begin in range(0, size, PIECE * AHEAD):
            offsets = range(begin, min(size, begin + PIECE * AHEAD), PIECE)
            asked = [("BACKUP", "READ", number, offset, PIECE) for offset in offsets]
            for reply in self._client.pipeline(asked):
                if isinstance(reply, ReplyError):
                    raise reply
                if not isinstance(reply, bytes):
                    raise ProtocolError(f"BACKUP READ was answered with {reply!r}")
                yield reply

    def end(self) -> None:
        """Have the hub close its files; the end of the connection does it too."""
        self._client.call("BACKUP", "END")


def check(destination: Path) -> None:
    """Raise OSError, in words, if a copy cannot go there: an existing folder must be empty."""
    if destination.is_dir():
        if any(destination.iterdir()):
            raise FileExistsError(f"{destination} is not empty: a copy needs a folder of its own")
    elif os.path.lexists(destination):
        raise FileExistsError(f"{destination} exists, and is not a folder")


def write(
    source: Source, destination: Path, told: Callable[[int, int], None] = lambda done, all: None
) -> int:
    """Write a copy into an empty or new folder; return the number of its bytes.

    The copy is then on disk, and was read once more. `told` is called with the bytes written and
    the total. After a failure the partial copy is removed; raises OSError, or the error of
    `source`.
    """
    check(destination)
    fresh = not destination.exists()
    destination.mkdir(mode=0o700, parents=True, exist_ok=True)
    size, done = sum(part.bytes for part in source.parts), 0
    try:
        for number, part in enumerate(source.parts):
            path, written = destination / part.name, 0
            # Unbuffered: a write error is raised here, and not on close.
            with open(path, "xb", buffering=0, opener=_private) as file:
                for piece in source.pieces(number):
                    with _named(path):
                        _write(file, piece)
                    written, done = written + len(piece), done + len(piece)
                    told(done, size)
                if written != part.bytes:
                    raise OSError(f"{part.name} ended after {written} of {part.bytes} bytes")
                with _named(path):
                    file.truncate(part.length)
                    os.fsync(file.fileno())
        _sync(destination)
        _sync(destination.absolute().parent)
        found = _core.JournalCopy(destination).last
        if found != source.last:
            raise OSError(f"{destination} ends with record {found}, and not with {source.last}")
    except BaseException:
        for part in source.parts:
            with suppress(OSError):
                (destination / part.name).unlink()
        if fresh:
            with suppress(OSError):
                destination.rmdir()
        raise
    return done


def _write(file: FileIO, piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:
        rest = rest[file.write(rest) :]


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Add the file's name to the system's error."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _items(reply: object) -> list[object]:
    if not isinstance(reply, list) or not reply:
        raise ProtocolError(f"BACKUP BEGIN was answered with {reply!r}")
    return reply


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise ProtocolError(f"BACKUP BEGIN was answered with {value!r}")
    return value


def _part(value: object) -> Part:
    match value:
        case [bytes(name), int(size), int(length)] if b"/" not in name and not name.startswith(
            b"."
        ):
            return Part(name.decode("ascii"), size, length)
    raise ProtocolError(f"BACKUP BEGIN was answered with {value!r}")


PIECE = 256 << 10
"""Bytes per request: while a hub reads them, it does nothing else."""
AHEAD = 4
"""Number of requests in flight."""
