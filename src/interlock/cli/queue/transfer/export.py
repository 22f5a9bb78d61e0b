"""`interlock queue export`: a queue as lines of JSON, to be imported elsewhere."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag, seconds
from interlock.cli.queue.show import command
from interlock.cli.queue.subcommand import BROKEN, count, declare, escaped, failed, on_queue
from interlock.cli.queue.views.contents import place
from interlock.explanation import printable_json

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator
    from interlock.client.wire.records import Stored

MOVE = Flag("--move", "first seal and pause the queue, and wait until nothing is leased")
DRAIN = Flag("--drain", "wait until nothing is leased, at most S seconds", "S", seconds)
LIVE = Flag("--live", "export while the queue is in use; the copy may miss or repeat messages")


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "export",
        export,
        "write a queue to standard output, one line of JSON per message",
        (MOVE, DRAIN, LIVE),
        about="In order, with everything known about each message, for `interlock queue import`. "
        "The queue must be sealed and paused, which --move does. Leased messages are not exported.",
    )


def export(given: argparse.Namespace) -> int:
    """Write the queue."""
    if given.move and given.live:
        given.fail("give either --move or --live")
    return on_queue(given, lambda operator: _export(operator, given))


def _export(operator: Operator, given: argparse.Namespace) -> int:
    queue = given.queue
    if given.move:
        operator.change("seal", queue)
        operator.gate("pause", queue)
        say(f"{queue} is sealed and paused")
    elif not given.live:
        still = []
        if not operator.stats(queue)["sealed"]:
            still.append("sealed")
        if b"" not in operator.paused(queue):
            still.append("paused")
        if still:
            return failed(
                f"{queue} is not {' and not '.join(still)}: messages would be missing or "
                "duplicated; --move seals and pauses it first, --live exports it anyway"
            )
    if (given.move or given.drain) and (code := drained(operator, given)):
        return code
    return write(operator, given)


def drained(operator: Operator, given: argparse.Namespace) -> int:
    """Wait until no message is leased; return 0, or the exit code if it took too long."""
    until = None if given.drain is None else time.monotonic() + given.drain
    told = 0
    while leased := operator.stats(given.queue)["leased"]:
        if leased != told:
            say(f"waiting for {count(leased, 'message')} that {'is' if leased == 1 else 'are'} "
                "leased")  # fmt: skip
            told = leased
        if until is not None and time.monotonic() >= until:
            return failed(
                f"{leased:,} still leased after {given.drain:g} s, and nothing was written; "
                f"`{command(given, 'peek', given.queue, '--state', 'leased')}` shows them"
            )
        time.sleep(PAUSE)
    return 0


def write(operator: Operator, given: argparse.Namespace) -> int:
    """Write all messages that are not leased."""
    from interlock.cli.queue.transfer import json_lines

    queue = given.queue
    messages: list[Stored] = []
    leased = 0
    for message in operator.messages(queue):
        if message.state == "leased":
            leased += 1
        else:
            messages.append(message)
    messages.sort(key=place)
    letters = list(operator.dead(queue))
    counts = operator.stats(queue)
    # The pause of the queue itself means nothing: it was required.
    paused = operator.paused(queue) - {b""}
    lines = [json_lines.head(queue, operator.options(queue), counts, paused, leased)]
    lines += map(json_lines.letter_line, letters)
    lines += map(json_lines.message_line, messages)
    lines.append(json_lines.end(len(messages), len(letters)))
    for line in lines:
        sys.stdout.write(printable_json(line, ascii=escaped(), separators=(",", ":")) + "\n")
    sys.stdout.flush()
    say(f"{count(len(messages), 'message')} and {count(len(letters), 'dead letter')} of {queue} "
        "exported")  # fmt: skip
    if leased:
        failed(
            f"{count(leased, 'message')} leased, not exported: export again when "
            f"{'it has' if leased == 1 else 'they have'} ended, or with --drain S"
        )
        return BROKEN
    if given.move:
        say(f"when they are imported: {command(given, 'drop', queue, '--force', '--yes')}")
    return 0


def say(text: str) -> None:
    """Print progress, for people."""
    print(f"interlock: {text}", file=sys.stderr, flush=True)


PAUSE = 0.1
