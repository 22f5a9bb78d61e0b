"""A log as nodes see it: entries in one total order, whichever engine keeps them."""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import Literal, NamedTuple, Protocol

from interlock.errors import InterlockError

Role = Literal["append", "read"]
ABSENT = 0.1
"""Seconds that a read waits if the log does not exist yet."""
TIMEOUT = 5.0
"""Seconds to wait for an answer, in addition to the wait of a read."""
LEAST = 1_000_000
"""Bytes of the largest entry that every engine must take."""


LOGIN = "its login is refused, check the user and the password in the URL"


class StreamUnavailable(InterlockError, ConnectionError):
    """The engine of a stream did not answer in time, refused, or the stream was closed.

    If an append raises it, any number of its entries may have been written: only a reader can see.
    """


class StreamMissing(StreamUnavailable):
    """The log does not exist yet, or was deleted: only ``begin`` makes one."""


class StreamUnfit(StreamUnavailable):
    """The engine does not keep the stream as a log must be kept; the text says what to set."""


class StreamDenied(StreamUnavailable):
    """The engine's user may not do this; the text says what it may not."""


class PositionLost(InterlockError, LookupError):
    """Entries behind a position can no longer be read in full.

    They were trimmed away, or the log does not have them: an engine that lost its tail, as a
    promoted replica may have, or that was emptied.

    Attributes:
        first: position of the first entry that is kept; ``""`` in an empty log.
        last: position of the last entry; ``""`` in an empty log.
    """

    def __init__(self, after: str, first: str, last: str) -> None:
        self.after = after
        self.first = first
        self.last = last
        kept = f"it has {first} to {last}" if first else "it is empty"
        super().__init__(f"the stream does not have position {after}: {kept}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.after, self.first, self.last)


class Entry(NamedTuple):
    """An entry of a log. Its position is ``ID.MARK``, with a mark of ``data``."""

    id: str
    """``NUMBER``; of Redis ``MS-NUMBER``. They rise along a log, perhaps with holes."""
    time: int
    """The engine's time, in ms since 1970. It may fall from an entry to the next."""
    data: bytes


class Found(NamedTuple):
    """Entries that were read."""

    entries: list[Entry]
    at_end: bool
    """They reach the end of the log at that moment."""


def log_name(table: str, dc: str, source: str | None = None) -> str:
    """Return the name of a table's log, in characters that every engine takes."""

    def plain(name: str) -> str:
        return re.sub(
            r"[^A-Za-z0-9-]",
            lambda found: "".join(f"_{byte:02x}" for byte in found[0].encode()),
            name,
        )

    return "__".join(map(plain, (table, dc) if source is None else (table, dc, source)))


def seen(positions: Sequence[str], known: set[str], first: int) -> Generator[str, bool, list[bool]]:
    """Yield positions of which to send whether they are in a log, as few as possible; return all.

    An entry that was seen there is there still if one behind it is, and if the log begins before.

    Args:
        positions: as ``ChangeStream.look``.
        known: those that were seen before; those that are seen now are put in.
        first: the first number that the log has now.
    """
    found: dict[str, bool] = {}
    is_known = False
    for position in sorted(set(positions), key=_number, reverse=True):
        if _number(position) < first:
            found[position] = False
        elif is_known and position in known:
            found[position] = True
        else:
            found[position] = yield position
            is_known |= found[position]
    known.clear()
    known.update(one for one, is_so in found.items() if is_so)
    return [found[position] for position in positions]


def _number(position: str) -> int:
    return int(position.partition(".")[0])


class ChangeStream(Protocol):
    """One stream as one object reads or appends to it.

    An object is for one role and one thread at a time; ``close`` is for any thread. It connects
    when it is first used, and again after each ``StreamUnavailable``. Entries of one object are in
    the log in the order of its appends. An entry whose append failed may appear later, or twice.
    """

    def append(self, entries: Sequence[bytes]) -> list[str] | None:
        """Append entries; once the engine has all, return their ids, if it reports them.

        Raises:
            StreamMissing: the log does not exist; nothing was written.
            StreamUnavailable: it is unknown which of them were written.
        """

    def begin(self, entry: bytes) -> list[str] | None:
        """Append the first entry of a log, creating it if needed; as ``append``."""

    def entries(self, after: str, most: int, wait: float) -> Found:
        """Return entries behind a position, oldest first.

        Args:
            after: the position of an entry; ``ID.``: behind whichever entry has that id, and
                whether it is there or not; ``""``: from the first that is kept.
            most: the most entries that are returned; fewer may be where they are large.
            wait: seconds to wait for the first one; 0: not at all. It may be shorter the first time
                it reaches the end, and while the log does not exist.

        Raises:
            PositionLost: entries behind ``after`` are gone, or the log ends before it.
            StreamUnavailable: the engine did not answer.
        """

    untrimmed: str
    """Reason why ``trim`` does nothing on this engine; empty if it works."""

    def largest(self) -> tuple[int, str]:
        """Return the maximum bytes of an entry, and the engine's setting for it.

        Raises:
            StreamUnfit: that is too little for a log.
        """

    def look(self, positions: Sequence[str]) -> list[bool]:
        """Return for each position whether its entry is in the log unchanged."""

    def trim(self, positions: Sequence[str]) -> int:
        """Trim the log before the last of some positions, if all of them are in the log.

        Returns the number of entries removed; some engines remove fewer.

        Raises:
            StreamUnfit: this engine cannot.
            StreamDenied: the user may not.
            StreamUnavailable: it did not answer, or refused.
        """

    def ends(self) -> tuple[Entry, Entry] | None:
        """Return the first and the last entry; None in an empty log."""

    def last(self) -> str:
        """Return the position of the last entry; ``""`` in an empty log."""

    def close(self) -> None:
        """Close the connection. A call under way ends with ``StreamUnavailable``."""
