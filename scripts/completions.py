"""Writes the shells' completion files from the command's parser, or checks them.

    python -m scripts.completions [--check]

The wheel installs packaging/data under the environment's prefix, where a system's shells look for
it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import shtab

from interlock.cli import parser

ROOT = Path(__file__).resolve().parent.parent
SHARE = ROOT / "packaging" / "data" / "share"
FILES = {
    "bash": SHARE / "bash-completion" / "completions" / "interlock",
    "zsh": SHARE / "zsh" / "site-functions" / "_interlock",
    "fish": SHARE / "fish" / "vendor_completions.d" / "interlock.fish",
}
PATHS = {
    **dict.fromkeys(("FILE", "FILE.html|.svg", "PATH", "TRACE", "FROM"), shtab.FILE),
    **dict.fromkeys(("FOLDER", "REPO", "DESTINATION"), shtab.DIRECTORY),
}
"""Placeholders of values that are paths."""


def actions(of: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the flags and arguments of a parser and of its subcommands."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            # A shell has one line for each: the help, not the whole description.
            for one in action._choices_actions:
                action.choices[one.dest].description = one.help
            for below in action.choices.values():
                yield from actions(below)
        else:
            yield action


def main() -> int:
    """Return 1 if `--check` finds a file that does not match the parser."""
    whole = parser()
    for action in actions(whole):
        if action.metavar in PATHS:
            action.complete = PATHS[action.metavar]  # type: ignore[attr-defined]
    stale = []
    for shell, path in FILES.items():
        text = shtab.complete(whole, shell=shell).rstrip() + "\n"
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(str(path.relative_to(ROOT)))
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(*stale, "stale; run make generate", sep="\n", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
