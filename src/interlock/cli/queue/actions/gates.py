"""`interlock queue pause`, `resume`, `seal` and `reopen`: the gates for leases and for puts."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from interlock.cli.flags import Flag
from interlock.cli.queue.subcommand import ask, declare, emit, on_queue
from interlock.cli.tables import printable

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator


NEW = Flag("--new", "even if the queue does not exist yet")
KEY = Flag("--key", "only this key; repeatable", "KEY", many=True)


def add_to(commands: Any) -> None:
    """Declare the subcommands."""
    pauses: tuple[tuple[Literal["pause", "resume"], str, str], ...] = (
        ("pause", "stop leasing messages of a queue, or of some of its keys", PAUSED),
        ("resume", "lease messages again", "Without --key the queue; paused keys stay paused."),
    )
    # Closing an unknown queue is a typing error, unless it is meant.
    closing = {"pause": (NEW,), "resume": ()}
    for name, text, about in pauses:
        declare(commands, name, gate(name), text, (KEY, *closing[name]), about=about)
    declare(
        commands,
        "seal",
        entrance("seal", "sealed: puts are refused", "it was already sealed"),
        "refuse puts into a queue",
        (NEW,),
        about="Messages in it are leased as before.",
    )
    declare(
        commands,
        "reopen",
        entrance("reopen", "open: puts are taken", "it was not sealed"),
        "accept puts again",
    )


def gate(name: Literal["pause", "resume"]) -> Callable[[argparse.Namespace], int]:
    """Return the function of pause and resume."""

    def run(given: argparse.Namespace) -> int:
        def work(operator: Operator) -> int:
            keys = [key.encode(errors="surrogateescape") for key in given.key or ()]
            changed = operator.gate(name, given.queue, keys)
            for what, one in zip(given.key or [None], changed, strict=True):
                if given.json:
                    emit({"queue": given.queue, "key": what, "changed": one})
                    continue
                shown = f"key {printable(what)}" if what is not None else given.queue
                print(f"{shown}  {f'{name}d' if one else f'was already {name}d'}"
                      .replace("was already resumed", "was not paused"))  # fmt: skip
            return 0

        return (ask if getattr(given, "new", False) else on_queue)(given, work)

    return run


def entrance(name: str, done: str, not_done: str) -> Callable[[argparse.Namespace], int]:
    """Return the function of seal and reopen."""

    def run(given: argparse.Namespace) -> int:
        def work(operator: Operator) -> int:
            changed = operator.change(name, given.queue)
            if given.json:
                emit({"queue": given.queue, "changed": changed})
            else:
                print(f"{given.queue}  {done if changed else not_done}")
            return 0

        return (ask if getattr(given, "new", False) else on_queue)(given, work)

    return run


PAUSED = "Current leases continue. A paused queue accepts puts."
