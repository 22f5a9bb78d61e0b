"""`interlock cluster status`: the whole cluster at a glance."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from interlock.cli.cluster.on_log import HEAD as HEAD_ON_LOG
from interlock.cli.cluster.on_log import alarms, is_on_log, line, rows, troubles
from interlock.cli.cluster.subcommand import (
    Cluster,
    Refusal,
    ask,
    declare,
    duration,
    emit,
    milliseconds,
)
from interlock.cli.tables import printable, table

if TYPE_CHECKING:
    from interlock.engine.announcements import Announcement

Told = tuple["Announcement", "dict[str, Any] | Refusal"]


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "status",
        lambda given: ask(given, lambda cluster: _status(cluster, given)),
        "the nodes with their lag, links and the database",
        about="All nodes are asked. It exits with 1 where a data centre has no primary, a node "
        "does not answer, or one on a log is stuck or has other rows than another at the same "
        "position.",
    )


def _status(cluster: Cluster, given: argparse.Namespace) -> int:
    nodes = cluster.nodes()
    told = list(zip(nodes, cluster.statuses(nodes), strict=True))
    whole = bool(told) and all(isinstance(found, dict) for _, found in told)
    on_log = [(one, found) for one, found in told if is_on_log(one)]
    dcs = sorted({one.dc for one in nodes if not is_on_log(one)})
    primaries = {dc: _primary(told, dc) for dc in dcs}
    is_stuck = any(isinstance(found, dict) and found.get("state") in STUCK for _, found in on_log)
    is_wrong = is_stuck or next(alarms(on_log), None) is not None
    code = 0 if whole and all(primaries.values()) and not is_wrong else 1
    if given.json:
        for one, found in told:
            emit(found if isinstance(found, dict) else {**_announced(one), "error": str(found)})
        return code
    if not told:
        print(f"no nodes of cluster {cluster.name!r}")
        return code
    print(f"cluster {printable(cluster.name)} at {printable(cluster.url)}")
    print("\n".join([*_picture(told, primaries), *_picture_of_logs(on_log)]))
    return code


def _primary(told: Sequence[Told], dc: str) -> dict[str, Any] | None:
    """Return what the primary of a data centre says; of two that say so, the later."""
    found = [
        status for one, status in told
        if one.dc == dc and isinstance(status, dict) and status.get("role") == "primary"
    ]  # fmt: skip
    return max(found, key=lambda status: int(status.get("token", 0)), default=None)


def _announced(one: Announcement) -> dict[str, Any]:
    from msgspec import structs

    return structs.asdict(one)


def _picture_of_logs(told: Sequence[Told]) -> Iterator[str]:
    if not told:
        return
    for dc in sorted({one.dc for one, _ in told}):
        yield printable(line(dc, [found for found in told if found[0].dc == dc]))
    yield ""
    yield table(HEAD_ON_LOG, list(rows(told)))
    wrong = [*alarms(told), *troubles(told)]
    if wrong:
        yield ""
        yield from map(printable, wrong)


def _picture(told: Sequence[Told], primaries: dict[str, dict[str, Any] | None]) -> Iterator[str]:
    told = [(one, status) for one, status in told if not is_on_log(one)]
    if not told:
        return
    now = time.time()
    for dc, primary in primaries.items():
        if primary is None:
            yield f"{printable(dc)}: NO PRIMARY answers"
            continue
        since = float(primary.get("since") or 0)
        length = f" for {duration(now - since)}, since {_moment(since)}" if since else ""
        acked = _acked(primary.get("ack", 0))
        yield (
            f"{printable(dc)}: {printable(str(primary['id']))} is the primary{length}, under token "
            f"{primary.get('token')}; writes are answered when {acked} them"
        )
    yield ""
    yield table(HEAD, [_row(one, status, now) for one, status in told])
    links = [
        (one.dc, link) for one, status in told
        if isinstance(status, dict) and status.get("role") == "primary"
        for link in status.get("links") or ()
    ]  # fmt: skip
    if links:
        yield ""
        yield table(LINKS, [_link(dc, link) for dc, link in links])
    yield from _databases(told)
    yield from _troubles(told)


def _acked(ack: object) -> str:
    if ack in (0, "0"):
        return "the primary has"
    return "a replica has" if ack in (1, "1") else f"{ack} replicas have"


def _row(one: Announcement, status: dict[str, Any] | Refusal, now: float) -> tuple[str | int, ...]:
    if not isinstance(status, dict):
        return one.id, one.dc, "NO ANSWER", one.address, one.seq, one.lag_changes, "-", "-", "-"
    role = str(status.get("role"))
    return (
        one.id,
        one.dc,
        f"{role}, draining" if status.get("draining") else role,
        one.address,
        int(status.get("seq", 0)),
        int(status.get("lag_changes", 0)),
        milliseconds(float(status.get("lag_ms", 0))),
        f"{int(status.get('rows', 0)):,}",
        duration(now - float(status["started"])) if status.get("started") else "-",
    )


def _link(dc: str, link: dict[str, Any]) -> tuple[str | int, ...]:
    return (
        f"{dc} <- {link.get('dc')}",
        str(link.get("state")),
        milliseconds(float(link.get("lag_ms", 0))),
        _ago(float(link.get("silent_ms", 0))),
        int(link.get("changes", 0)),
        str(link.get("position") or "-"),
        str(link.get("error") or ""),
    )


def _ago(ms: float) -> str:
    return f"{milliseconds(ms)} ago" if ms < NEVER else "never"


def _databases(told: Sequence[Told]) -> Iterator[str]:
    found_rows: list[tuple[str | int, ...]] = []
    for one, status in told:
        # It is the primary that writes.
        writes = isinstance(status, dict) and status.get("role") == "primary"
        database = status.get("database") if writes and isinstance(status, dict) else None
        for found in database if isinstance(database, list) else [database] if database else ():
            found_rows.append(
                (
                    one.id,
                    str(found.get("url")),
                    milliseconds(float(found.get("delay_ms") or 0)),
                    int(found.get("waiting") or 0),
                    str(found.get("error") or ""),
                )
            )
    if found_rows:
        yield ""
        yield table(DATABASES, found_rows)


def _troubles(told: Sequence[Told]) -> Iterator[str]:
    lines = []
    for one, status in told:
        if not isinstance(status, dict):
            lines.append(f"{one.id}: {status}")
            continue
        stream = status.get("stream") or {}
        for what in ("error", "election"):
            if stream.get(what):
                lines.append(f"{one.id}: {stream[what]}")
    if lines:
        yield ""
        yield from map(printable, lines)


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


STUCK = ("stuck", "read-only")
HEAD = ("node", "dc", "role", "address", "change", "behind", "lag", "rows", "up")
LINKS = ("link", "state", "lag", "heard", "changes", "position", "")
NEVER = 1e12
"""Milliseconds that stand for never."""
DATABASES = ("node", "database", "delay", "waiting", "")
