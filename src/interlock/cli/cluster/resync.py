"""`interlock cluster resync`: have a node take all rows from another."""

from __future__ import annotations

import argparse
from typing import Any

from interlock.cli.cluster.on_log import is_on_log
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
        "have a node take all rows anew",
        (WAIT,),
        arguments=(("ID", "the node", None),),
        about="A node on a log forgets its rows and reads the log. A replica takes a snapshot of "
        "another node, which is joined to what it has itself; nothing is lost.",
    )


def _resync(cluster: Cluster, given: argparse.Namespace) -> int:
    node = cluster.node(given.id)
    place = cluster.address(node.address)
    on_log = is_on_log(node)
    counted = "went_back" if on_log else "resyncs"
    before = int(cluster.status(place).get(counted, 0))
    cluster.call(place, "RESYNC")
    said: dict[str, Any] = {}

    def is_done() -> bool:
        said.update(cluster.status(place))
        joins = said["state"] != "serving" if on_log else said["role"] == "joining"
        return int(said.get(counted, 0)) > before and not joins

    took = until(is_done, given.wait)
    if took is None:
        wrong = [str(one["text"]) for one in said.get("trouble") or ()]
        wrong += filter(None, [(said.get("stream") or {}).get("error")])
        why = wrong[0] if wrong else f"it is {said.get('state') or said.get('role')}"
        what = "is not back" if on_log else "has no snapshot"
        return failed(f"{node.id} {what} after {given.wait:g} s: {why}")
    if given.json:
        emit({"node": node.id, "rows": said["rows"], "seconds": round(took, 3)})
    else:
        what = "has read its log anew" if on_log else "has taken a snapshot"
        print(f"{node.id} {what}: {count(said['rows'], 'row')}; it took {took:.2f} s")
    return 0
