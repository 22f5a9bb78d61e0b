"""`interlock queue check`: settings of the servers under which queues lose messages."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from interlock.cli.queue.subcommand import BROKEN, ask, declare, emit

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "check",
        check,
        "check a Redis or a Valkey for settings that lose messages",
        about="It looks at the eviction policy, the append-only file, the save points and the role "
        "of each server. Exit code 1: a setting loses messages, or cannot be checked because the "
        "user may not call INFO. A hub has none of these settings.",
        queue=None,
    )


def check(given: argparse.Namespace) -> int:
    """Print the settings of each server."""

    def work(operator: Operator) -> int:
        code = 0
        for address, seen in operator.settings():
            if isinstance(seen, str):
                code = BROKEN
                if given.json:
                    emit({"server": address, "error": seen})
                else:
                    print(f"{address}  could not be checked: {seen}")
                continue
            if not seen and not given.json:
                print(f"{address}  a hub: nothing to check")
            for one in seen:
                code = BROKEN if one.problem else code
                if given.json:
                    emit({"server": address, "setting": one.setting, "value": one.value,
                          "problem": one.problem or None,
                          "advice": one.advice if one.problem else None})  # fmt: skip
                else:
                    said = f": {one.problem}; {one.advice}" if one.problem else "  ok"
                    print(f"{address}  {one.setting} {one.value}{said}")
        return code

    return ask(given, work)
