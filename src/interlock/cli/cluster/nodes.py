"""`interlock cluster nodes`: list announced nodes."""

from __future__ import annotations

import argparse
import time
from typing import Any

from interlock.cli.cluster.subcommand import (
    Cluster,
    ask,
    declare,
    duration,
    emit,
    milliseconds,
)
from interlock.cli.tables import table


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "nodes",
        lambda given: ask(given, lambda cluster: _nodes(cluster, given)),
        "list the nodes that announce themselves",
        about="Asks the engine only, not the nodes. A node that was killed is listed for a few "
        "seconds.",
    )


def _nodes(cluster: Cluster, given: argparse.Namespace) -> int:
    from msgspec import structs

    found = cluster.nodes()
    if given.json:
        for one in found:
            emit(structs.asdict(one))
        return 0
    if not found:
        print(f"no nodes of cluster {cluster.name!r}")
        return 0
    now = time.time()
    rows = [
        (
            one.id,
            one.dc,
            f"{one.role}, draining" if one.draining else one.role,
            one.address,
            one.http or "-",
            one.position,
            one.lag_entries,
            milliseconds(one.lag_ms),
            duration(now - one.since) if one.since else "-",
            one.version,
        )
        for one in found
    ]
    print(table(HEAD, rows))
    return 0


HEAD = ("node", "dc", "role", "address", "http", "position", "behind", "lag", "up", "release")
