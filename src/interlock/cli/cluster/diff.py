"""`interlock cluster diff`: compare the rows of two nodes."""

from __future__ import annotations

import argparse
import time
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
from interlock.cli.flags import Flag, positive, seconds
from interlock.cli.tables import printable
from interlock.explanation import printable_json

if TYPE_CHECKING:
    from interlock.cluster.comparison import Difference
    from interlock.hub.url import Address

LIMIT = Flag("--limit", "show so many rows that differ (20)", "N", positive, default=20)
SETTLE = Flag(
    "--settle",
    "seconds in which each node is to have what the other had (5)",
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
        "compare the rows of two nodes, and name what differs",
        (LIMIT, SETTLE),
        arguments=(
            ("A", "a node: its id, or HOST:PORT", None),
            ("B", "another, of any data centre", None),
        ),
        about="Rows that clients change meanwhile do not count, unless a node still lacks a "
        "change when --settle is over. It exits with 0 if they are equal, with 1 if they differ.",
    )


def _diff(cluster: Cluster, given: argparse.Namespace) -> int:
    from interlock.cluster.comparison import differences, rules_by, suspects

    places = cluster.place(given.a), cluster.place(given.b)
    told = [cluster.status(place) for place in places]
    if all("rows_checksum" in one for one in told) and told[0]["dc"] == told[1]["dc"]:
        return _by_checksum(cluster, places, told, given)
    said = [str(one.get("rules", "")) for one in told]
    if said[0] != said[1]:
        raise Refusal(
            f"they have other columns or rules: {given.a} has {said[0]}; {given.b} has {said[1]}"
        )
    try:
        rules = rules_by(said[0])
    except ValueError as error:
        raise Refusal(f"{given.a} and {given.b} cannot be compared: {error}") from None
    before = _states(places[0]), _states(places[1])
    found: list[Difference] = []
    if suspects(*before):
        _settle(cluster, places, told, given.settle)
        after = _states(places[0]), _states(places[1])
        found = list(differences(rules, before, after, time.time_ns() // 1_000_000))
        before = after
    shown = [one for one in found if one.columns]
    for difference in shown[: given.limit]:
        _tell(difference, given)
    if given.json:
        return 1 if shown else 0
    rows = max(map(len, before))
    if not shown:
        print(f"{given.a} and {given.b} are equal: {count(rows, 'key')}{_beneath(found, shown)}")
        return 0
    if len(shown) > given.limit:
        print(f"and {count(len(shown) - given.limit, 'more row')}")
    print(
        f"{count(len(shown), 'row')} of {rows:,} differ between {given.a} and {given.b}"
        f"{_beneath(found, shown)}"
    )
    return 1


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
            f"{given.a} and {given.b} were at no position both in {given.settle:g} s; while "
            f"clients write much, give --settle more"
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


def _beneath(found: list[Difference], shown: list[Difference]) -> str:
    hidden = len(found) - len(shown)
    return f"; {count(hidden, 'row')} with the same values and other stamps" if hidden else ""


def _settle(
    cluster: Cluster, places: tuple[Address, Address], told: list[dict[str, Any]], wait: float
) -> None:
    """Wait until each node should have what the other had."""
    if told[0]["dc"] != told[1]["dc"]:
        time.sleep(wait)
        return
    # Of one data centre they count alike.
    goal = max(int(cluster.status(place)["seq"]) for place in places)
    until(lambda: all(int(cluster.status(place)["seq"]) >= goal for place in places), wait)


def _states(place: Address) -> dict[bytes, bytes]:
    from interlock.cluster.transfer import ScanLost, scan

    try:
        return {key: state for _, rows in scan(place) for key, state in rows}
    except ScanLost as lost:
        raise Refusal(f"{place}: {lost}") from None
    except OSError as error:
        raise Refusal(f"{place} does not answer: {error.strerror or error}") from None


def _tell(difference: Difference, given: argparse.Namespace) -> None:
    from interlock.cli.table.subcommand import moment, plain, text_of
    from interlock.cluster.comparison import ABSENT

    key = _key(difference.key)
    if given.json:
        emit({
            "key": plain(key),
            "differs": {
                name: [_as_json(one, name, plain, moment) for one in both]
                for name, both in difference.columns.items()
            },
        })  # fmt: skip
        return
    shown = printable(text_of(key))
    if difference.absent is not None:
        nodes = (given.a, given.b)
        print(f"{shown}: only at {nodes[1 - difference.absent]}")
        return
    for name, both in difference.columns.items():
        values = [
            (moment(one / 1000) if one else "never") if name == "_expires"
            else ABSENT if one is ABSENT else printable_json(plain(one))
            for one in both
        ]  # fmt: skip
        print(f"{shown}: {name} is {values[0]} at {given.a}, {values[1]} at {given.b}")


def _key(key: bytes) -> Any:
    from interlock.table.views import shown

    return shown(key)


def _as_json(value: Any, name: str, plain: Any, moment: Any) -> Any:
    from interlock.cluster.comparison import ABSENT

    if value is ABSENT:
        return None
    if name == "_expires":
        return moment(value / 1000) if value else None
    return plain(value)
