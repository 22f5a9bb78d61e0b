"""`interlock cluster failover`: explain that there is nothing to fail over."""

from __future__ import annotations

from typing import Any

from interlock.cli.cluster.subcommand import BAD_INPUT, declare, failed

NO_PRIMARY = (
    "every node takes writes; there is no primary to move. To take a node out: interlock cluster "
    "drain ID"
)


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "failover",
        lambda given: failed(NO_PRIMARY, BAD_INPUT),
        "explain why there is nothing to fail over",
        arguments=(("ID", "a node", "?"),),
        about="Every node takes writes; there is no primary to move. To take a node out, use "
        "`interlock cluster drain ID`.",
    )
