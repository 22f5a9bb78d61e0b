"""`interlock cluster drain`: have a node be used no more."""

from __future__ import annotations

import argparse
from typing import Any

from interlock.cli.cluster.on_log import is_on_log
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
        "have a node be the primary no more, and clients go elsewhere",
        (WAIT,),
        arguments=(("ID", "the node", None),),
        about="It goes on to answer. Clients of interlock+cluster:// leave it within some seconds, "
        "and a load balancer at its next check. Until it is started anew it stays so.",
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
        if is_on_log(node):
            return is_told and bool(said["draining"]) and not said["waiting"]
        is_followed = not others or said["primary"] != node.id
        return is_told and is_followed and bool(said["draining"]) and said["role"] != "primary"

    took = until(is_done, given.wait)
    if is_on_log(node):
        return _drained(node.id, others, said, took, given)
    if took is None:
        why = "no other is the primary" if said.get("primary") == node.id else "it has not said so"
        return failed(f"{node.id} is not drained after {given.wait:g} s: {why}")
    primary = said["primary"] if said.get("primary") != node.id else ""
    if given.json:
        emit({"node": node.id, "primary": primary, "seconds": round(took, 3)})
    else:
        who = f"the primary is {primary}" if primary else "NO node is left to be the primary"
        print(printable(f"{node.id} is drained; {who}"))
    return 0


def _drained(
    id: str,
    others: list[str],
    said: dict[str, Any],
    took: float | None,
    given: argparse.Namespace,
) -> int:
    if took is None:
        waiting = said.get("waiting")
        why = f"{waiting} writes wait" if waiting else "it has not said so"
        return failed(f"{id} is not drained after {given.wait:g} s: {why}")
    if given.json:
        emit({"node": id, "others": others, "seconds": round(took, 3)})
    else:
        who = f"there are {', '.join(others)}" if others else "NO other node takes reads and writes"
        print(printable(f"{id} is drained; {who}"))
    return 0
