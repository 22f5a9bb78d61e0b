"""Metrics of a node: their names and help, and their lines on /metrics."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from interlock.hub.serve.metrics import escaped, metric

PREFIX = "interlock_node_"
GAUGES = (
    ("serves", "1 while the node takes reads and writes, else 0"),
    ("position", "entries of its log that the node has applied"),
    ("lag_entries", "entries that the most advanced node has applied and this one has not"),
    ("lag_seconds", "seconds the node is behind its log"),
    ("rows", "rows of the table"),
    ("tombstones", "deleted rows that are remembered"),
    ("checkpoint_position", "position of the newest checkpoint"),
    ("ring_entries", "entries that the node could put back"),
    ("waiting_writes", "writes waiting for their answers"),
    ("ack_waiting_writes", "writes waiting for other machines to acknowledge them"),
    ("clients", "clients that number their writes"),
    ("checksum_mismatch", "1 if a node at the same position has different rows: an alarm; else 0"),
)
COUNTERS = (
    ("went_back_total", "times the node went back because the log had lost entries"),
    ("resyncs_total", "times the node read its log again because it was asked to"),
    ("put_back_total", "lost entries that the node has put back"),
    ("merged_rows_total", "rows that were merged after a loss, and may have wrong sums"),
    ("noack_replies_total", "writes answered before enough machines had acknowledged them"),
    ("appended_entries_total", "entries that the node has appended"),
    ("appended_bytes_total", "bytes of entries that the node has appended"),
)
LINKS = (
    ("link_cut", "1 while the link to a data centre is cut, else 0"),
    ("link_lag_seconds", "seconds that the oldest row not yet sent there has waited"),
)
DATABASE = (
    ("database_failing", "1 while nothing can be written to the database, else 0"),
    (
        "database_lag_seconds",
        ("seconds that the oldest row not yet written to the database has waited"),
    ),
    ("database_waiting_rows", "rows that are not written to the database yet"),
)
TROUBLES = ("engine", "append", "trim", "disk", "checkpoint", "table", "lost", "stuck", "settings",
            "clock", "checksum", "ack", "name", "growth", "announcement", "peer")  # fmt: skip
"""Kinds of trouble, each a value of the label ``kind``."""


def node_lines(state: Mapping[str, Any], kinds: Collection[str]) -> Iterator[str]:
    """Yield the lines about the node itself.

    Args:
        state: values by the names of metrics, without prefix and ``_total``.
        kinds: kinds of trouble that it has now.
    """
    for kind, metrics in (("gauge", GAUGES), ("counter", COUNTERS)):
        for name, help in metrics:
            yield from metric(f"{PREFIX}{name}", kind, help)
            yield f"{PREFIX}{name} {state[name.removesuffix('_total')]}"
    help = "1 while the node has this kind of trouble, else 0"
    yield from metric(f"{PREFIX}trouble", "gauge", help)
    for one in TROUBLES:
        yield f'{PREFIX}trouble{{kind="{escaped(one)}"}} {int(one in kinds)}'


def link_lines(links: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the lines about links to other data centres."""
    for name, help in LINKS if links else ():
        yield from metric(f"{PREFIX}{name}", "gauge", help)
        for one in links:
            is_cut = int(one["state"] == "cut")
            value = is_cut if name == "link_cut" else one["lag_ms"] / 1000
            yield f'{PREFIX}{name}{{dc="{escaped(one["dc"])}"}} {value}'


def database_lines(database: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the lines about the database; none without one."""
    if database is None:
        return
    values = int(database["error"] != ""), database["delay_ms"] / 1000, database["waiting"]
    for (name, help), value in zip(DATABASE, values, strict=True):
        yield from metric(f"{PREFIX}{name}", "gauge", help)
        yield f"{PREFIX}{name} {value}"
