"""`interlock worker stacks`: what the handlers of running workers are doing now."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from typing import Any

from interlock.cli.flags import Flag, positive
from interlock.cli.tables import printable

# fmt: off
FLAGS = (
    Flag("--json", "the same as --log-format json; with stacks, print the answers as JSON"),
    Flag("--pid", "with stacks: only the worker with this process id", "N", positive),
)
# fmt: on


def run(given: argparse.Namespace) -> int:
    """Query, and print. Return 1 if no worker answers."""
    from interlock.worker.reports.stacks import ask_all

    try:
        answers = ask_all(given.pid)
    except OSError as error:
        print(f"interlock: {error}", file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps(answers, indent=2))
    elif answers:
        print("\n\n".join(as_text(answer) for answer in answers))
    if not answers:
        which = "no worker of this user runs here" if given.pid is None else (
            f"process {given.pid} is not a worker of this user"
        )  # fmt: skip
        print(f"interlock: {which}", file=sys.stderr)
        return 1
    return 0


def as_text(answer: dict[str, Any]) -> str:
    """Return one worker's answer, for people."""
    handlers = answer["handlers"]
    lines = [f"process {answer['process']}"]
    if "error" in answer:
        return f"{lines[0]} {answer['error']}"
    lines[0] += f": {answer['app']}, {len(handlers)} of {answer['concurrency']} handlers running"
    for handler in handlers:
        keys = f", keys {', '.join(handler['keys'])}" if handler["keys"] else ""
        lost = ", its lease is lost" if handler["lost"] else ""
        lines.append(
            f"\n{handler['task']}: message {handler['id']} in queue {handler['queue']!r}, attempt "
            f"{handler['attempt']}, for {handler['seconds']:.1f} s{keys}{lost}"
        )
        lines.append(textwrap.indent(handler["stack"].rstrip(), "  "))
    # Another machine wrote it, and anyone may announce.
    return printable("\n".join(lines), "\n\t")
