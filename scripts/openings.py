"""Refuses docstrings and doc comments that open with a question word.

    scripts/openings.py

A docstring opens with a verb or a noun: "Return whether it is there", not "Whether it is there". So
do the doc comments of the crates.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ("src", "tests", "scripts", "examples", "benchmarks")
RUST = ("crates", "benchmarks")
OURS = re.compile(r"/(\.peers|\.venv|target|node_modules)/")
REFUSED = re.compile(r"\W*(Wh(at|ether|o|om|ose|ere|en|ich|y)|How|That|If)\b")
COMMENT = re.compile(r"\s*//[/!](.*)")


def of_python(text: str) -> Iterator[tuple[int, str]]:
    """Yield the docstrings, and the strings under attributes, with their lines."""
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        for one in body if isinstance(body, list) else ():
            constant = one.value if isinstance(one, ast.Expr) else None
            if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                yield one.lineno, constant.value


def of_rust(text: str) -> Iterator[tuple[int, str]]:
    """Yield the first lines of doc comments, with their places."""
    before = None
    for number, line in enumerate(text.splitlines(), 1):
        found = COMMENT.match(line)
        if found and not before:
            yield number, found[1]
        before = found


def files(folders: tuple[str, ...], *suffixes: str) -> Iterator[Path]:
    """Yield our own files in these folders."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and not OURS.search(str(path.relative_to(ROOT.parent))):
                yield path


def main() -> int:
    """Print the openings that are refused; return 0 if all are accepted."""
    wrong = []
    for parse, paths in (
        (of_python, files(PYTHON, ".py", ".pyi")),
        (of_rust, files(RUST, ".rs")),
    ):
        for path in paths:
            for line, text in parse(path.read_text(encoding="utf-8")):
                if first := REFUSED.match(text):
                    wrong.append(f"{path.relative_to(ROOT)}:{line}: opens with {first[1]!r}")
    if wrong:
        print(*wrong, sep="\n", file=sys.stderr)
        print("begin with a verb or a noun: 'Return whether ...', 'True if ...'", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
