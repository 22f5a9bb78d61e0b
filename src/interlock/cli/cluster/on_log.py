"""Nodes on a log, for the subcommands of `interlock cluster`: their rows of a table, and alarms."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from interlock.cli.cluster.subcommand import Refusal, duration, milliseconds

if TYPE_CHECKING:
    from interlock.engine.announcements import Announcement

Told = tuple["Announcement", "dict[str, Any] | Refusal"]


def is_on_log(one: Announcement) -> bool:
    """Return whether a node is one on a log, and not one with a primary."""
    return bool(one.rows_checksum)


def line(dc: str, told: Sequence[Told]) -> str:
    """Return what there is to say of the nodes of a data centre."""
    serving = [one for one, status in told if is_well(status)]
    return f"{dc}: {len(serving)} of {len(told)} nodes serve; each takes reads and writes"


def is_well(status: dict[str, Any] | Refusal) -> bool:
    """Return whether a node answers, and serves."""
    return isinstance(status, dict) and status.get("state") == "serving"


def rows(told: Sequence[Told]) -> Iterator[tuple[str | int, ...]]:
    """Yield a row of the table for each node."""
    now = time.time()
    for one, status in told:
        if not isinstance(status, dict):
            yield (one.id, one.dc, "NO ANSWER", one.address, one.position, one.lag_entries, "-",
                   "-", "-", "-")  # fmt: skip
            continue
        state = str(status.get("state"))
        yield (
            one.id,
            one.dc,
            f"{state}, draining" if status.get("draining") else state,
            one.address,
            int(status.get("position", 0)),
            int(status.get("lag_entries", 0)),
            milliseconds(float(status.get("lag_s", 0)) * 1000),
            f"{int(status.get('rows', 0)):,}",
            str(status.get("rows_checksum", ""))[:SHOWN],
            duration(now - float(status["started"])) if status.get("started") else "-",
        )


def troubles(told: Sequence[Told]) -> Iterator[str]:
    """Yield all that is wrong, a line each."""
    for one, status in told:
        if not isinstance(status, dict):
            yield f"{one.id}: {status}"
            continue
        found = status.get("trouble")
        for trouble in found if isinstance(found, list) else ():
            if trouble.get("kind") == "checksum":
                continue
            length = duration(time.time() - float(trouble.get("since") or 0))
            yield f"{one.id}: {trouble.get('text')}, for {length}"
        merged = int(status.get("merged_rows") or 0)
        if merged:
            yield (
                f"{one.id}: {merged:,} rows were merged after a loss that was deeper than every "
                f"ring; an older write may have won"
            )


def alarms(told: Sequence[Told]) -> Iterator[str]:
    """Yield the differences that must not be: other rows at the same position."""
    known = set()
    statuses = [(one, status) for one, status in told if isinstance(status, dict)]
    for (one, status), (other, theirs) in combinations(statuses, 2):
        same = one.dc == other.dc and status.get("position") == theirs.get("position")
        if same and status.get("rows_checksum") != theirs.get("rows_checksum"):
            known.add(frozenset((one.id, other.id)))
            yield _alarm(one.id, other.id, status.get("position"))
    for one, status in statuses:
        for trouble in status.get("trouble") or ():
            other_id = str(trouble.get("text", "")).removeprefix("node ").partition(" ")[0]
            pair = frozenset((one.id, other_id))
            if trouble.get("kind") == "checksum" and pair not in known:
                known.add(pair)
                yield _alarm(one.id, other_id, str(trouble["text"]).rpartition(" ")[2])


def _alarm(one: str, other: str, position: object) -> str:
    return (
        f"ALARM: {one} and {other} have other rows at the same position {position}: see "
        f"'interlock cluster diff {one} {other}'"
    )


HEAD = ("node", "dc", "state", "address", "position", "behind", "lag", "rows", "checksum", "up")
SHOWN = 8
"""Digits of a checksum that are shown to people."""
