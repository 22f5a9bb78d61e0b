"""`interlock cluster diff`: compare the rows of two nodes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from interlock.cli.cluster.subcommand import (
    Cluster,
    Refusal,
    ask,
    count,
    declare,
    emit,
    until,
)
from interlock.cli.flags import Flag, seconds

if TYPE_CHECKING:
    from interlock.hub.url import Address

SETTLE = Flag(
    "--settle",
    "seconds in which both must reach a common position (5)",
    "SECONDS",
    seconds,
    default=5.0,
)


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "diff",
        lambda given: ask(given, lambda cluster: _diff(cluster, given)),
        "compare the rows of two nodes",
        (SETTLE,),
        arguments=(
            ("A", "a node: its id, or HOST:PORT", None),
            ("B", "another node of its data centre", None),
        ),
        about="Compares checksums of all rows at a position of the log that both have reached. "
        "Exits with 0 if they are equal, with 1 if they differ.",
    )


def _diff(cluster: Cluster, given: argparse.Namespace) -> int:
    places = cluster.place(given.a), cluster.place(given.b)
    told = [cluster.status(place) for place in places]
    if told[0].get("dc") == told[1].get("dc"):
        return _by_checksum(cluster, places, told, given)
    raise Refusal(
        f"{given.a} is in data centre {told[0].get('dc')}, {given.b} in {told[1].get('dc')}: only "
        f"nodes on one log can be compared"
    )


def _by_checksum(
    cluster: Cluster,
    places: tuple[Address, Address],
    told: list[dict[str, Any]],
    given: argparse.Namespace,
) -> int:
    """Compare nodes on one log: at the same position they have the same rows, or one is wrong."""
    known: list[dict[int, dict[str, Any]]] = [{}, {}]
    both: set[int] = set()

    def is_met() -> bool:
        for seen, place in zip(known, places, strict=True):
            status = cluster.status(place)
            seen[int(status["position"])] = status
        both.update(known[0].keys() & known[1].keys())
        return bool(both)

    if until(is_met, given.settle) is None:
        raise Refusal(
            f"{given.a} and {given.b} had no position in common within {given.settle:g} s; if "
            f"clients write a lot, raise --settle"
        )
    at = max(both)
    first, second = known[0][at], known[1][at]
    if first["log_checksum"] != second["log_checksum"]:
        raise Refusal(
            f"{given.a} and {given.b} have other entries before the same position {at}: they are "
            f"of two clusters, or one is about to go back"
        )
    is_equal = first["rows_checksum"] == second["rows_checksum"]
    if given.json:
        if not is_equal:
            emit({"position": at, "checksums": [one["rows_checksum"] for one in (first, second)]})
    elif is_equal:
        rows = count(int(first["rows"]), "row")
        print(f"{given.a} and {given.b} are equal: {rows} at position {at}")
    else:
        print(
            f"{given.a} and {given.b} have other rows at the same position {at}: checksums "
            f"{first['rows_checksum']} and {second['rows_checksum']}"
        )
    return 0 if is_equal else 1
