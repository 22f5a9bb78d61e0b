"""Entries of a change stream: the bytes that the primary appends, and every node reads."""

from __future__ import annotations

import zlib
from typing import Final

import msgspec

from interlock.errors import InterlockError

BARRIER: Final = 0
"""A new primary begins; what older ones append behind it counts for nobody."""
Change = tuple[bytes, bytes]
"""A key, and a state that is to be joined with what it has."""
EVERY: Final = 1 << 30
"""As many replicas as there are."""
CHANGES: Final = 1
"""Changes of rows, answers to other nodes, or neither: then it is a beat."""


class UnreadableEntry(InterlockError):
    """Bytes of a stream are no entry of this version: they are somebody else's, or damaged."""


class Origin(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The place in another data centre's stream up to which its changes have come here."""

    dc: str
    token: int
    number: int
    seq: int
    lineage: int
    position: str
    clock: int = 0
    """The hybrid clock of that entry."""


class Answer(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The reply to a write that a node passed on: it gives it to its client when it reads this."""

    node: str
    number: int
    reply: bytes


class Entry(msgspec.Struct, array_like=True, gc=False):
    """One entry; all of its changes are of one data centre."""

    kind: int
    token: int
    """Of the primary's lease; tokens only rise."""
    node: str
    number: int
    """Its place among the entries under this token; the barrier has 0."""
    seq: int
    """The number of the last change in the stream, with those of this entry."""
    time: int
    """The primary's clock, in ms since 1970."""
    clock: int
    """The primary's hybrid clock."""
    lineage: int = 0
    """A checksum of all entries that counted before this; 0 in a barrier, which does not know."""
    ack: int = 0
    """So many replicas must have a change before its client is answered; `EVERY`: all there are."""
    acked: int = 0
    """All changes up to this number are where `ack` wants them."""
    changes: list[Change] = []
    """Keys with what is joined to their states."""
    answers: list[Answer] = []
    origin: Origin | None = None
    """Another data centre's, if the changes are from there; without changes: so far there were none
    for this one."""
    address: str = ""
    """The `host:port` at which the primary takes what other nodes pass on; not with changes."""
    schema: str = ""
    """Columns and how they merge, and the data centre; not with changes."""
    successor: str = ""
    """The node that shall be the next primary; the others let it go first."""


def encode(entry: Entry) -> bytes:
    """Return an entry's bytes: a version, a checksum, and what it says."""
    body = _ENCODER.encode(entry)
    return VERSION + zlib.crc32(body).to_bytes(4, "big") + body


def lineage_behind(lineage: int, data: bytes) -> int:
    """Return the lineage behind an entry, from that before it and the entry's bytes."""
    return zlib.crc32(data[1:5], lineage)


def decode(data: bytes) -> Entry:
    """Return the entry that bytes are. Raises UnreadableEntry if they are none."""
    body = data[5:]
    if data[:1] != VERSION:
        raise UnreadableEntry(f"an entry of version {data[:1]!r}; this node reads {VERSION!r}")
    if zlib.crc32(body).to_bytes(4, "big") != data[1:5]:
        raise UnreadableEntry("an entry is damaged: its checksum is another")
    try:
        return _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        raise UnreadableEntry(f"an entry cannot be read: {error}") from None


VERSION: Final = b"\x01"
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Entry)
