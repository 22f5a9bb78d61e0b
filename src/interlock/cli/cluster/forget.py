"""`interlock cluster forget`: trim the log without waiting for a node that is gone."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from interlock.cli.cluster.subcommand import Cluster, Refusal, Unanswered, ask, declare, emit
from interlock.cli.tables import printable

if TYPE_CHECKING:
    from interlock.client.rows.announcements import Announcement


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "forget",
        lambda given: ask(given, lambda cluster: _forget(cluster, given)),
        "trim the log without waiting for a node that is gone for good",
        (),
        arguments=(("ID", "the node", None),),
        about="Entries stay in the log until the checkpoints of two machines have them. If one of "
        "only two is gone, the log grows until that node is started again or forgotten. "
        "Refused while the node announces itself. If a forgotten node returns, it counts "
        "again.",
    )


def _forget(cluster: Cluster, given: argparse.Namespace) -> int:
    nodes = [one for one in cluster.nodes() if one.role == "serving"]
    if not nodes:
        raise Refusal(f"no node of cluster {cluster.name!r} is serving")
    # The node itself last: it says why it cannot.
    nodes.sort(key=lambda one: one.id == given.id)
    _ask_one(cluster, nodes, given.id)
    if given.json:
        emit({"forgotten": given.id})
    else:
        print(printable(f"{given.id} is forgotten: the log is trimmed without it"))
    return 0


def _ask_one(cluster: Cluster, nodes: Sequence[Announcement], id: str) -> None:
    """Ask the first node that answers: one that was killed is announced for a few seconds more."""
    for node in nodes:
        try:
            cluster.call(cluster.address(node.address), "FORGET", id, timeout=10)
            return
        except Unanswered as error:
            silent = error
    raise silent
