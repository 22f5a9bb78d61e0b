"""Writes docs/reference/cli.md from the flags as they are declared, and compares it.

    python scripts/reference.py           writes the page
    python scripts/reference.py --check   exits with 1 if the page is not what it would write

A flag has one declaration (src/interlock/cli/), so that help, parser and this page cannot differ.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from interlock.cli import replay
from interlock.cli.flags import Flag

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "cli.md"

HEAD = """\
<!-- Made by scripts/reference.py from the flags' declarations: change those, and run it again. -->

# The command line

Data goes to standard output, all else to standard error. `interlock --help` and
`interlock replay --help` say what this page says. `python -m interlock` is the same command.

## interlock replay

Replays recorded messages: in order per key, never two conflicting ones at the same time, all else
in parallel; then checks from outside that it was so.

```text
interlock replay [FLAGS] TRACE
interlock replay [FLAGS] --git REPO
```

`TRACE` is a file of [JSON lines](trace-files.md), plain or gzip, told by its content; `-` is
standard input.

"""

TAIL = """
### Exit codes

| code | means |
|---|---|
| 0 | order was kept: no violation, and the digest equals the serial run's |
| 1 | it was not, or the run broke. (A handler that raises is counted and shown) |
| 2 | wrong usage or bad input; a bad line is named with its number and what is wrong |
| 130 | Ctrl-C |

### Environment

`NO_COLOR` switches colours off. They are used only where standard output is a terminal.

### Examples

```console
$ interlock replay examples/data/redis-commits.jsonl.gz --limit 200 --work sleep:200us
$ interlock replay examples/data/redis-commits.jsonl.gz --limit 200 --way taskgroup --json
$ interlock replay examples/data/redis-commits.jsonl.gz --limit 200 --picture run.svg
```
"""


def page() -> str:
    """The whole page as text."""
    return HEAD + table(replay.FLAGS) + TAIL


def table(flags: tuple[Flag, ...]) -> str:
    """One row for each flag."""
    lines = ["| flag | value | meaning |", "|---|---|---|"]
    for flag in flags:
        lines.append(f"| `{flag.name}` | {value(flag)} | {cell(sentence(flag.help))} |")
    return "\n".join(lines) + "\n"


def value(flag: Flag) -> str:
    """What stands behind the flag; empty for one without a value."""
    if flag.choices is not None:
        return ", ".join(f"`{choice}`" for choice in flag.choices)
    return f"`{cell(flag.metavar)}`" if flag.metavar is not None else ""


def sentence(text: str) -> str:
    """The help's line with a capital, as it stands in a table."""
    return text[:1].upper() + text[1:]


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    if not parser.parse_args().check:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") == page():
        return 0
    print(f"{PAGE.name} is not what the flags say; run scripts/reference.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
