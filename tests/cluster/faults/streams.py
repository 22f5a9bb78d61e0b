"""Checks of the change streams themselves: what readers were to believe, found by a reading of its
own. Who is the primary is said by entries alone: a barrier with a higher token begins a term, and
what carries a lower one counts for nobody from then on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from interlock.cluster.entry import BARRIER, Entry, decode
from interlock.hub.client import Client
from tests.cluster.faults.checker import Violation
from tests.cluster.faults.history import OK, Operation

WHO = re.compile(rb"<[a-z]w\d+\.\d+>")
"""The id of a write, as it stands in its change."""
KEY = "il:stream:*"
PAGE = 1000


@dataclass
class Told:
    """Findings of a stream."""

    violations: list[Violation] = field(default_factory=list)
    accepted: set[str] = field(default_factory=set)
    """Ids of writes in entries that count."""
    fenced: set[str] = field(default_factory=set)
    """Ids of writes in entries that do not."""
    terms: int = 0
    late: int = 0
    """Changes in entries that do not count."""


def entries(host: str, port: int) -> list[Entry]:
    """All entries of the stream of an engine, for a thread that is at a machine."""
    found: list[Entry] = []
    with Client(f"{host}:{port}", timeout=20) as client:
        keys = client.call("KEYS", KEY)
        assert isinstance(keys, list)
        for key in keys:
            after = b"-"
            while True:
                page = client.call("XRANGE", key, after, "+", "COUNT", PAGE)
                assert isinstance(page, list)
                found += [decode(fields[1]) for _, fields in page]
                if len(page) < PAGE:
                    break
                after = b"(" + page[-1][0]
    return found


def judged(dc: str, stream: Iterable[Entry], *, whole: bool) -> Told:
    """Follow a stream as a reader should.

    Args:
        whole: the engine never lost any of it.
    """
    told = Told()
    nodes: dict[int, str] = {}
    token = number = seq = 0
    for entry in stream:
        other = nodes.setdefault(entry.token, entry.node)
        if other != entry.node:
            text = f"{dc}: {other} and {entry.node} both have the token {entry.token}"
            told.violations.append(Violation("two primaries", text))
        ids = {found.decode() for _, delta in entry.changes for found in WHO.findall(delta)}
        if entry.token < token:
            told.fenced |= ids
            told.late += len(entry.changes)
            continue
        if entry.kind == BARRIER:
            if entry.token > token:
                told.terms += 1
                # Changes are counted on from what is before it, over all terms.
                token, number = entry.token, entry.number
            continue
        if entry.token > token:
            if whole:
                text = f"{dc}: {entry.node} has the token {entry.token} and began with no barrier"
                told.violations.append(Violation("no barrier", text))
            token, number, seq = entry.token, entry.number - 1, entry.seq - len(entry.changes)
        if entry.number <= number:
            continue  # Appended twice.
        if whole and entry.number != number + 1:
            text = f"{dc}: {number} and {entry.number} follow each other under {token}"
            told.violations.append(Violation("missing", text))
        if whole and entry.seq - len(entry.changes) != seq:
            text = f"{dc}: {entry.seq} with {len(entry.changes)} changes follows {seq}"
            told.violations.append(Violation("missing", text))
        number, seq = entry.number, entry.seq
        told.accepted |= ids
    return told


def believed(history: Sequence[Operation], streams: Sequence[Told]) -> Iterator[Violation]:
    """Yield what was answered or seen though only a primary that was none any more wrote it."""
    accepted = {id for told in streams for id in told.accepted}
    fenced = {id for told in streams for id in told.fenced} - accepted
    for one in history:
        if not one.reads and one.answer == OK and one.id in fenced:
            yield Violation("fenced", f"{one.id} was answered as done", (one,))
        elif one.reads and one.row and one.row.get("who") in fenced:
            yield Violation("fenced", f"{one.row['who']} was seen", (one,))
