"""The end of a run: the wait until all nodes have the same, and what they have then."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from interlock.hub.resp import ReplyError
from tests.cluster.faults.checker import Violation
from tests.cluster.faults.cluster import Cluster
from tests.cluster.faults.rows import TABLE, Shown, shown
from tests.cluster.faults.servers import Node


@dataclass
class Seen:
    """All that the nodes had when they were last looked at."""

    rows: dict[str, dict[str, Shown]] = field(default_factory=dict)
    """By node and key, as clients read them."""
    status: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By node, what it says of itself."""
    saved: dict[str, dict[str, Shown]] = field(default_factory=dict)
    """By node with a database and key, what that has."""
    trouble: dict[str, str] = field(default_factory=dict)
    """By node, why nothing is known of it."""

    def settled(self) -> bool:
        """All have the same, in their databases too, nothing that is to go is there, and each
        says that it is well."""
        rows = list(self.rows.values())
        places: dict[str, set[tuple[int, str, str]]] = {}
        for one in self.status.values():
            place = (one["position"], one["log_checksum"], one["rows_checksum"])
            places.setdefault(one["dc"], set()).add(place)
        return (
            not self.trouble
            and all(one == rows[0] for one in rows)
            and all(len(found) == 1 for found in places.values())
            and all(is_well(one) for one in self.status.values())
            and all(saved == self.rows[node] for node, saved in self.saved.items())
            and not any(key.startswith("ttl-") for key in rows[0])
        )


def is_well(status: dict[str, Any]) -> bool:
    """Return whether a node says that it lacks nothing."""
    return (
        status["state"] == "serving"
        and not status["trouble"]
        and not status["fault"]
        and not status["lag_entries"]
        and not status["waiting"]
    )


def wait(cluster: Cluster, keys: Sequence[str], seconds: float) -> tuple[Seen, float]:
    """Return what the nodes have once they agree or the seconds are over, and how long it took.

    A node compares its clock with new entries only, so one is appended where a clock was wrong.
    """
    begin = time.monotonic()
    while True:
        seen = look(cluster, keys)
        took = time.monotonic() - begin
        if seen.settled() or took > seconds:
            return seen, took
        for name, status in seen.status.items():
            if any(one["kind"] == "clock" for one in status["trouble"]):
                cluster.ask_lightly(cluster.nodes[name], "TABLE", "BARRIER", TABLE)
        time.sleep(0.1)  # Between two looks.


def look(cluster: Cluster, keys: Sequence[str]) -> Seen:
    seen = Seen()
    for name, node in cluster.nodes.items():
        try:
            rows, status = cluster.within(node.host, lambda node=node: _of(node, keys))  # type: ignore[misc]
            if cluster.layout.database:
                seen.saved[name] = saved(node, set(keys))
        except (OSError, ReplyError, sqlite3.Error) as error:
            seen.trouble[name] = f"{error!r} (it runs: {node.runs})"
        else:
            seen.rows[name], seen.status[name] = rows, status
    return seen


def _of(node: Node, keys: Sequence[str]) -> tuple[dict[str, Shown], dict[str, Any]]:
    with node.client() as client:
        replies = client.pipeline([("HGETALL", f"{TABLE}:{key}") for key in keys])
        for reply in replies:
            if isinstance(reply, ReplyError):
                raise reply
        rows = {key: shown(reply) for key, reply in zip(keys, replies, strict=True)}
        said = client.call("NODE", "STATUS")
        assert isinstance(said, bytes)
        status = json.loads(said)
        return {key: row for key, row in rows.items() if row is not None}, status


def saved(node: Node, keys: set[str]) -> dict[str, Shown]:
    """The rows of a node's database."""
    sql = f"SELECT interlock_key, count, net, high, marks, last, who FROM {TABLE}"
    names = ("count", "net", "high", "marks", "last", "who")
    with closing(sqlite3.connect(node.database, timeout=5)) as database:
        now = time.time() * 1000
        lives = "interlock_alive AND (interlock_expires IS NULL OR interlock_expires > ?)"
        found = database.execute(f"{sql} WHERE {lives}", (now,)).fetchall()
    rows: dict[str, Shown] = {}
    for key, *values in found:
        if bytes(key).decode() in keys:
            pairs = zip(names, values, strict=True)
            rows[bytes(key).decode()] = {name: value for name, value in pairs if value}
    return rows


def violations(seen: Seen) -> list[Violation]:
    """Nodes that do not answer, that are not well, or that differ."""
    found = [Violation("silent", f"{name}: {why}") for name, why in seen.trouble.items()]
    for name, status in seen.status.items():
        if not is_well(status):
            found.append(Violation("not well", f"{name}: {json.dumps(status)}"))
        else:
            place = f"{status['position']}, {status['log_checksum']}, {status['rows_checksum']}"
            found.append(Violation("not settled", f"{name} is at {place}"))
    for name, rows in seen.saved.items():
        has = seen.rows.get(name, {})
        for key in sorted(key for key in {*rows, *has} if rows.get(key) != has.get(key))[:5]:
            text = f"{key} is {rows.get(key)} in the database of {name}, which has {has.get(key)}"
            found.append(Violation("database", text))
    return found


class Watch:
    """Watches the status of nodes during a run.

    Nodes of a data centre at one position of one log have the same rows, at any time.
    """

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._sums: dict[tuple[str, int, str], tuple[str, str]] = {}

    def saw(self, status: dict[str, Any]) -> None:
        if not status["serves"]:
            return
        place = (status["dc"], status["position"], status["log_checksum"])
        who, rows = self._sums.setdefault(place, (status["id"], status["rows_checksum"]))
        if rows != status["rows_checksum"]:
            text = f"{who} and {status['id']} differ at position {status['position']}"
            self.violations.append(Violation("checksum", f"{text}: {rows}, {json.dumps(status)}"))
        for one in status["trouble"]:
            if one["kind"] == "checksum":
                self.violations.append(Violation("checksum", f"{status['id']}: {one['text']}"))


@contextmanager
def watched(cluster: Cluster) -> Iterator[Watch]:
    """Look at all nodes again and again."""
    watch, ends = Watch(), threading.Event()

    def look() -> None:
        while not ends.wait(0.2):
            for node in cluster.nodes.values():
                status = cluster.status(node, 0.5)
                if status is not None:
                    watch.saw(status)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield watch
    finally:
        ends.set()
        thread.join()
