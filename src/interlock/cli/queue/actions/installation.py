"""`interlock queue install`: install the library of functions in a Redis."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag
from interlock.cli.queue.subcommand import ask, declare, emit

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator

REPLACE = Flag("--replace", "also replace the library of a newer release")


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "install",
        install,
        "install the library of functions on a Redis or Valkey, or on all primaries of a cluster",
        (REPLACE,),
        about="Clients install it automatically if their user may load functions. If only an "
        "operator may, run this once after each upgrade. The library of a newer release is "
        "kept. A hub has its functions built in.",
        queue=None,
    )


def install(given: argparse.Namespace) -> int:
    """Install it, and print the result for each server."""

    def work(operator: Operator) -> int:
        for address, release, became in operator.install(replace=given.replace):
            if given.json:
                emit({"server": address, "release": release, "became": became})
            else:
                print(f"{address}  {SAID[became].format(release=release)}")
        return 0

    return ask(given, work)


SAID = {
    "installed": "the library of release {release} is installed",
    "known": "already has the library of release {release}",
    "newer": "keeps the library of release {release}, which is newer; --replace replaces it",
    "built-in": "has the functions of release {release} built in",
}
