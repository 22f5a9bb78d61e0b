"""`interlock cluster resync`: have a node read all rows again."""

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
        "make a node drop its rows and read them again",
        (WAIT,),
        arguments=(("ID", "the node", None),),
        about="It continues from the oldest of its checkpoints whose position the log still has, "
        "or copies another node's checkpoint. Refused by the last serving node.",
    )


def _resync(cluster: Cluster, given: argparse.Namespace) -> int:
    node = cluster.node(given.id)
    place = cluster.address(node.address)
    before = int(cluster.status(place)["resyncs"])
    cluster.call(place, "RESYNC")
    said: dict[str, Any] = {}

    def is_done() -> bool:
        said.update(cluster.status(place))
        return int(said["resyncs"]) > before and said["state"] == "serving"

    took = until(is_done, given.wait)
    if took is None:
        wrong = [str(one["text"]) for one in said.get("trouble") or ()]
        why = wrong[0] if wrong else f"it is {said.get('state')}"
        return failed(f"{node.id} is not back after {given.wait:g} s: {why}")
    if given.json:
        emit({"node": node.id, "rows": said["rows"], "seconds": round(took, 3)})
    else:
        rows = count(said["rows"], "row")
        print(f"{node.id} has read its log again: {rows} in {took:.2f} s")
    return 0
