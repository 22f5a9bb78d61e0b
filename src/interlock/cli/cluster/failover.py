"""`interlock cluster failover`: have another node be the primary."""

from __future__ import annotations

import argparse
from typing import Any

from interlock.cli.cluster.on_log import is_on_log
from interlock.cli.cluster.subcommand import (
    BAD_INPUT,
    WAIT,
    Cluster,
    Refusal,
    ask,
    declare,
    emit,
    failed,
    until,
)
from interlock.cli.flags import Flag
from interlock.cli.tables import printable

NO_PRIMARY = (
    "every node takes writes; there is no primary to move. To take a node out: interlock cluster "
    "drain ID"
)
DC = Flag("--dc", "the data centre, where the engine has nodes of several", "NAME")


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "failover",
        lambda given: ask(given, lambda cluster: _failover(cluster, given)),
        "have another node be the primary",
        (DC, WAIT),
        arguments=(("ID", "the node that is to be it (any other)", "?"),),
        about="The primary takes no more writes, has those that it took answered, and lets its "
        "lease go. Clients wait meanwhile, and see no error.",
    )


def _failover(cluster: Cluster, given: argparse.Namespace) -> int:
    nodes = cluster.nodes()
    if any(is_on_log(one) for one in nodes):
        return failed(NO_PRIMARY, BAD_INPUT)
    dc = given.dc or (cluster.node(given.id).dc if given.id else "")
    said = [
        (one, status)
        for one, status in zip(nodes, cluster.statuses(nodes), strict=True)
        if not dc or one.dc == dc
    ]
    primaries = [
        (one, status) for one, status in said
        if isinstance(status, dict) and status["role"] == "primary"
    ]  # fmt: skip
    if not primaries:
        raise Refusal("no primary answers; when its lease is over, another node takes its place")
    if len({one.dc for one, _ in primaries}) > 1:
        names = ", ".join(sorted({one.dc for one, _ in primaries}))
        raise Refusal(f"several data centres have a primary: {names}; name one with --dc")
    before, status = max(primaries, key=lambda found: int(found[1]["token"]))
    token = int(status["token"])
    cluster.call(
        cluster.address(before.address), "FAILOVER", *([given.id] if given.id else []),
    )  # fmt: skip
    others = [one for one in nodes if one.dc == before.dc and one.id != before.id]
    found: list[dict[str, Any]] = []

    def is_done() -> bool:
        for one in cluster.statuses(others):
            if isinstance(one, dict) and one["role"] == "primary" and int(one["token"]) > token:
                found.append(one)
                return True
        return False

    took = until(is_done, given.wait)
    if took is None:
        return failed(f"{before.id} was asked, and no other is the primary after {given.wait:g} s")
    after = found[0]
    if given.json:
        emit({"before": before.id, "primary": after["id"], "token": after["token"],
              "seconds": round(took, 3)})  # fmt: skip
    else:
        print(
            f"{printable(str(after['id']))} is the primary under token {after['token']}, after "
            f"{before.id}; it took {took:.2f} s"
        )
    return 0
