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

LIMIT = Flag("--limit", "maximum number of rows to show (20)", "N", positive, default=20)
SETTLE = Flag(
    "--settle",
    "seconds for both to reach a common position, or to receive each other's changes (5)",
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
        (LIMIT, SETTLE),
        arguments=(
            ("A", "a node: its id, or HOST:PORT", None),
            ("B", "another node, of any data centre", None),
        ),
        about="Nodes of one data centre are compared by the checksums of all rows at a common "
        "position of their log. If these differ, and between data centres, all rows are read and "
        "those that differ are listed, with the values that clients see. A row that changes "
        "meanwhile counts only if a node still lacks a change after --settle. Exits with 0 if "
        "the rows are equal, with 1 if they differ.",
    )


def _diff(cluster: Cluster, given: argparse.Namespace) -> int:
    places = cluster.place(given.a), cluster.place(given.b)
    told = [cluster.status(place) for place in places]
    if told[0].get("dc") == told[1].get("dc"):
        equal = _by_checksum(cluster, places, given)
        if equal:
            return 0
    return _by_rows(cluster, places, told, given)


def _by_checksum(
    cluster: Cluster, places: tuple[Address, Address], given: argparse.Namespace
) -> bool:
    """Return whether nodes of one log have the same rows at the same position, and print it."""
    known: list[dict[int, dict[str, Any]]] = [{}, {}]
    both: set[int] = set()

    def is_met() -> bool:
        for seen, place in zip(known, places, strict=True):
            status = cluster.status(place)
            seen[int(status["position"])] = status
        both.update(known[0].keys() & known[1].keys())
        return bool(both)

    if until(is_met, given.settle) is None:
        # Their rows may be equal: read them.
        return False
    at = max(both)
    first, second = known[0][at], known[1][at]
    if first["log_checksum"] != second["log_checksum"]:
        _say(
            f"{given.a} and {given.b} have different entries before position {at}: they belong "
            "to two clusters, or one is about to go back",
            given,
        )
        return False
    if first["rows_checksum"] != second["rows_checksum"]:
        _say(
            f"{given.a} and {given.b} have different rows at position {at}: checksums "
            f"{first['rows_checksum']} and {second['rows_checksum']}",
            given,
        )
        return False
    rows = count(int(first["rows"]), "row")
    _say(f"{given.a} and {given.b} are equal: {rows} at position {at}", given)
    return True


def _by_rows(
    cluster: Cluster,
    places: tuple[Address, Address],
    told: list[dict[str, Any]],
    given: argparse.Namespace,
) -> int:
    from interlock._core import StateRules
    from interlock.cluster.comparison import differences, suspects

    said = [str(one.get("rules", "")) for one in told]
    if said[0] != said[1]:
        raise Refusal(
            f"they have different columns or rules: {given.a} has {said[0]}; {given.b} has "
            f"{said[1]}"
        )
    try:
        rules = StateRules(said[0])
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
    hidden = len(found) - len(shown)
    same = f"; {count(hidden, 'row')} with the same values and different stamps" if hidden else ""
    rows = max(map(len, before))
    if not shown:
        _say(f"{given.a} and {given.b} are equal: {count(rows, 'key')}{same}", given)
        return 0
    if len(shown) > given.limit:
        _say(f"and {count(len(shown) - given.limit, 'more row')}", given)
    _say(
        f"{count(len(shown), 'row')} of {rows:,} differ between {given.a} and {given.b}{same}",
        given,
    )
    return 1


def _say(text: str, given: argparse.Namespace) -> None:
    if not given.json:
        print(text)


def _settle(
    cluster: Cluster, places: tuple[Address, Address], told: list[dict[str, Any]], wait: float
) -> None:
    """Wait until each node should have the other's rows."""
    if told[0]["dc"] != told[1]["dc"]:
        time.sleep(wait)
        return
    goal = max(int(cluster.status(place)["position"]) for place in places)
    until(lambda: all(int(cluster.status(place)["position"]) >= goal for place in places), wait)


def _states(place: Address) -> dict[bytes, bytes]:
    from interlock.cluster.scans import ScanLost, scan

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
