"""`interlock cluster status`: show all nodes, links and databases."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from interlock.cli.cluster.seen import UNKNOWN, find
from interlock.cli.cluster.subcommand import (
    Cluster,
    Refusal,
    ask,
    declare,
    duration,
    emit,
    failed,
    milliseconds,
)
from interlock.cli.flags import Flag, address
from interlock.cli.tables import printable, table

if TYPE_CHECKING:
    from interlock.client.rows.announcements import Announcement

Told = tuple["Announcement", "dict[str, Any] | Refusal"]


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "status",
        lambda given: ask(given, lambda cluster: _status(cluster, given)),
        "show all nodes, links and databases",
        (NODE,),
        about="Asks every node. Exits with 1 if the engine or a node does not answer, if a node "
        "is stuck or read-only, reports trouble, or has different rows from another at the "
        "same position, if a link is cut for more than 60 s, or if a database cannot be "
        "written. While the engine is away, it asks the nodes that it has seen before on "
        "this machine (kept in ~/.cache), and those of --node.",
    )


def _status(cluster: Cluster, given: argparse.Namespace) -> int:
    nodes, trouble = find(cluster, given.node or ())
    told = list(zip(nodes, cluster.statuses([one.address for one in nodes]), strict=True))
    statuses = [status for _, status in told if isinstance(status, dict)]
    is_stuck = any(status.get("state") in STUCK for status in statuses)
    is_wrong = (
        is_stuck
        or bool(trouble)
        or next(_alarms(told), None) is not None
        or any(link["state"] == "cut" and float(link["silent_ms"]) > LONG_CUT
               for status in statuses for link in status.get("links") or ())
        or any(_error(status.get("database")) or status.get("trouble") for status in statuses)
    )  # fmt: skip
    code = 0 if told and len(statuses) == len(told) and not is_wrong else 1
    if trouble:
        # Beside what the nodes say, in both forms.
        failed(f"{trouble}; shown is what nodes say that are known")
    if given.json:
        for one, found in told:
            emit(found if isinstance(found, dict) else {**_announced(one), "error": str(found)})
        return code
    if not told:
        print(f"no nodes of cluster {cluster.name!r}")
        return code
    print(f"cluster {printable(cluster.name)} at {printable(cluster.url)}")
    print("\n".join(_picture(told)))
    return code


def _announced(one: Announcement) -> dict[str, Any]:
    from msgspec import structs

    return structs.asdict(one)


def _picture(told: Sequence[Told]) -> Iterator[str]:
    for dc in sorted({one.dc for one, _ in told} - {UNKNOWN}):
        yield printable(_line(dc, [found for found in told if found[0].dc == dc]))
    yield ""
    yield table(HEAD, list(_rows(told)))
    for head, found in ((LINKS, list(_links(told))), (DATABASES, list(_databases(told)))):
        if found:
            yield ""
            yield table(head, found)
    wrong = [*_alarms(told), *_troubles(told), *_awaited(told)]
    if wrong:
        yield ""
        yield from map(printable, wrong)


def _line(dc: str, told: Sequence[Told]) -> str:
    """Return the summary of a data centre."""
    serving = [one for one, status in told if _is_well(status)]
    return f"{dc}: {len(serving)} of {len(told)} nodes take reads and writes"


def _is_well(status: dict[str, Any] | Refusal) -> bool:
    """Return whether a node answers, serves, can append to its log and does not drain."""
    if not isinstance(status, dict) or status.get("draining"):
        return False
    kinds = {one.get("kind") for one in status.get("trouble") or ()}
    return status.get("state") == "serving" and not kinds & {"engine", "append"}


def _rows(told: Sequence[Told]) -> Iterator[tuple[str | int, ...]]:
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


def _links(told: Sequence[Told]) -> Iterator[tuple[str | int, ...]]:
    """Yield a row for each link, of the node that sends or else of an idle one."""
    found: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}
    for one, status in told:
        for link in (status.get("links") or ()) if isinstance(status, dict) else ():
            way = one.dc, str(link.get("dc"))
            if way not in found or found[way][1].get("state") == "idle":
                found[way] = one.id, link
    for (dc, other), (id, link) in sorted(found.items()):
        silent = float(link.get("silent_ms", 0))
        yield (
            f"{dc} -> {other}",
            id,
            str(link.get("state")),
            milliseconds(float(link.get("lag_ms", 0))),
            f"{milliseconds(silent)} ago" if silent < NEVER else "never",
            int(link.get("changes", 0)),
            str(link.get("position") or "-"),
            str(link.get("error") or ""),
        )


def _databases(told: Sequence[Told]) -> Iterator[tuple[str | int, ...]]:
    for one, status in told:
        found = status.get("database") if isinstance(status, dict) else None
        if isinstance(found, dict):
            yield (
                one.id,
                str(found.get("url")),
                milliseconds(float(found.get("delay_ms") or 0)),
                int(found.get("waiting") or 0),
                int(found.get("written") or 0),
                str(found.get("error") or ""),
            )


def _troubles(told: Sequence[Told]) -> Iterator[str]:
    """Yield a line for each problem."""
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
                f"{one.id}: {merged:,} rows were merged after a loss; older writes may have won, "
                f"and sums may be wrong"
            )


def _error(database: Any) -> str:
    return str(database.get("error") or "") if isinstance(database, dict) else ""


def _awaited(told: Sequence[Told]) -> Iterator[str]:
    """Yield a line for each data centre whose log waits for a node that is away."""
    for dc in sorted({one.dc for one, _ in told}):
        statuses = [status for one, status in told if one.dc == dc and isinstance(status, dict)]
        found = max(statuses, key=lambda status: int(status.get("position", 0)), default={})
        awaited = ", ".join(map(str, found.get("awaited") or ()))
        grows = any(one.get("kind") == "growth" for one in found.get("trouble") or ())
        if awaited and not grows:
            yield (
                f"{dc}: the log is trimmed only after a checkpoint of {awaited}, not announced; "
                "if it is gone for good: interlock cluster forget ID"
            )


def _alarms(told: Sequence[Told]) -> Iterator[str]:
    """Yield the nodes that differ at the same position."""
    known = set()
    statuses = [(one, status) for one, status in told if isinstance(status, dict)]
    for (one, status), (other, theirs) in combinations(statuses, 2):
        # With different log checksums one is about to roll back. If not, both report it as trouble.
        same = one.dc == other.dc and all(
            status.get(name) == theirs.get(name) for name in ("position", "log_checksum")
        )
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
        f"ALARM: {one} and {other} have different rows at the same position {position}: see "
        f"'interlock cluster diff {one} {other}'"
    )


NODE = Flag("--node", "a node to ask if the engine does not answer, which names the others; "
            "repeatable", "HOST:PORT", address, many=True)  # fmt: skip
STUCK = ("stuck", "read-only")
HEAD = ("node", "dc", "state", "address", "position", "behind", "lag", "rows", "checksum", "up")
LINKS = ("link", "node", "state", "lag", "heard", "changes", "position", "")
DATABASES = ("node", "database", "delay", "waiting", "written", "")
LONG_CUT = 60_000.0
"""Milliseconds after which a cut link counts as an error."""
NEVER = 1e12
"""`silent_ms` of a link that never reached the other data centre."""
SHOWN = 8
"""Digits of a checksum in the table."""
