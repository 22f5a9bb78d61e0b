"""`interlock cluster resync`: have a node take all rows from another."""

from __future__ import annotations

import argparse
from typing import Any

from interlock.cli.cluster.subcommand import (
    WAIT,
    Cluster,
    ask,
    count,
    declare,
    emit,
    failed,
    until,
)


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "resync",
        lambda given: ask(given, lambda cluster: _resync(cluster, given)),
        "have a replica take a snapshot of another node",
        (WAIT,),
        arguments=(("ID", "the node", None),),
        about="What the other has is joined to what it has itself; nothing is lost.",
    )


def _resync(cluster: Cluster, given: argparse.Namespace) -> int:
    node = cluster.node(given.id)
    place = cluster.address(node.address)
    before = int(cluster.status(place).get("resyncs", 0))
    cluster.call(place, "RESYNC")
    said: dict[str, Any] = {}

    def is_done() -> bool:
        said.update(cluster.status(place))
        return int(said.get("resyncs", 0)) > before and said["role"] != "joining"

    took = until(is_done, given.wait)
    if took is None:
        why = (said.get("stream") or {}).get("error") or f"it is {said.get('role')}"
        return failed(f"{node.id} has no snapshot after {given.wait:g} s: {why}")
    if given.json:
        emit({"node": node.id, "rows": said["rows"], "seconds": round(took, 3)})
    else:
        print(f"{node.id} has taken a snapshot: {count(said['rows'], 'row')}; it took {took:.2f} s")
    return 0
