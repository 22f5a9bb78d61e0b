"""`interlock cluster forget`: trim the log without waiting for a node that is gone."""

from __future__ import annotations

import argparse
from typing import Any

from interlock.cli.cluster.subcommand import Cluster, Refusal, ask, declare, emit
from interlock.cli.tables import printable


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "forget",
        lambda given: ask(given, lambda cluster: _forget(cluster, given)),
        "trim the log without waiting for a node that is gone for good",
        (),
        arguments=(("ID", "the node", None),),
        about="The log is trimmed behind what two machines keep. If one of only two is gone, it "
        "grows until that node is started again or forgotten. A node that still announces "
        "itself is refused. If a forgotten node comes back, it counts again.",
    )


def _forget(cluster: Cluster, given: argparse.Namespace) -> int:
    nodes = [one for one in cluster.nodes() if one.role == "serving"]
    if not nodes:
        raise Refusal(f"no node of cluster {cluster.name!r} serves")
    others = [one for one in nodes if one.id != given.id] or nodes
    cluster.call(cluster.address(others[0].address), "FORGET", given.id, timeout=10)
    if given.json:
        emit({"forgotten": given.id})
    else:
        print(printable(f"{given.id} is forgotten: the log is trimmed without it"))
    return 0
