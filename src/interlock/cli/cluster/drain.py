"""`interlock cluster drain`: take a node out."""

from __future__ import annotations

import argparse
from typing import Any

from interlock.cli.cluster.subcommand import (
    WAIT,
    Cluster,
    ask,
    declare,
    emit,
    failed,
    until,
)
from interlock.cli.tables import printable


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "drain",
        lambda given: ask(given, lambda cluster: _drain(cluster, given)),
        "take a node out: it stops taking writes, and clients leave it",
        (WAIT,),
        arguments=(("ID", "the node", None),),
        about="It still answers reads. Clients of interlock+cluster:// leave it within seconds, "
        "a load balancer at its next check. It drains until it is started again.",
    )


def _drain(cluster: Cluster, given: argparse.Namespace) -> int:
    node = cluster.node(given.id)
    place = cluster.address(node.address)
    others = [
        one.id for one in cluster.nodes()
        if one.dc == node.dc and one.id != node.id and not one.draining and one.role != "joining"
    ]  # fmt: skip
    cluster.call(place, "DRAIN", timeout=10)
    said: dict[str, Any] = {}

    def is_done() -> bool:
        said.update(cluster.status(place))
        announced = next((one for one in cluster.nodes() if one.id == node.id), None)
        is_told = announced is None or announced.draining
        return is_told and bool(said["draining"]) and not said["waiting"]

    took = until(is_done, given.wait)
    if took is None:
        waiting = said.get("waiting")
        why = f"{waiting} writes are not answered yet" if waiting else "it has not announced it"
        return failed(f"{node.id} is not drained after {given.wait:g} s: {why}")
    if given.json:
        emit({"node": node.id, "others": others, "seconds": round(took, 3)})
    else:
        verb = "take" if len(others) > 1 else "takes"
        who = f"{', '.join(others) or 'NO other node'} {verb} reads and writes"
        print(printable(f"{node.id} is drained; {who}"))
    return 0
