"""Refuses docstrings and comments that open with a clause in place of a noun or a verb.

    scripts/openings.py

A docstring opens with a verb or a noun: "Return whether it exists", not "Whether it exists". So do
the doc comments of the crates. A comment may open with a question word of a clause, such as "Where"
or "If", but not with "What was read", "Of the answer" or "Those who wait": write "Data that was
read", "Fields of the answer", "Waiting clients".
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
CLAUSES = (
    r"Wh(?:at|o|om|ose|oever)|Of (?:the|an?|what|those|these|it|them|each|all|its|that)"
    r"|Those (?:who|that|which)|By (?:what|whom|which)|That (?:which|what)"
    r"|So (?:many|much|long)(?! as)|To (?:each|all|what|those)|As (?:of|much|long)"
)
REFUSED = re.compile(rf"\W*({CLAUSES}|Wh(?:ether|ere|en|ich|y)|How|That|If)\b")
QUESTIONS = re.compile(r"\W*(Wh(?:at|ether|o|om|ose|ere|en|ich|y)|How|That|If)\b")
REFUSED_IN_COMMENTS = re.compile(rf"\W*({CLAUSES})\b")
COMMENT = re.compile(r"\s*//[/!](.*)")
MARKS = {".py": "#", ".pyi": "#", ".rs": "//", ".lua": "--", ".js": "//"}
"""Beginnings of comments."""
LATER = (
    "crates/interlock-core/",
    "crates/interlock-engine/",
    "crates/interlock-hub/",
    "crates/interlock-journal/",
    "crates/interlock-python/",
    "crates/interlock-stores/",
    "crates/interlock-table/",
)
"""Folders in which only doc comments are read, and only for question words."""


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


def of_comments(text: str, mark: str) -> Iterator[tuple[int, str]]:
    """Yield the first lines of comments on lines of their own, with their places."""
    before = False
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        comment = words.startswith(mark) and not words.startswith("##")
        if comment and not before:
            yield number, words
        before = comment and bool(words.strip("#/-!"))


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
            place = str(path.relative_to(ROOT))
            rule = QUESTIONS if place.startswith(LATER) else REFUSED
            for line, text in parse(path.read_text(encoding="utf-8")):
                if first := rule.match(text):
                    wrong.append(f"{place}:{line}: opens with {first[1]!r}")
    for path in files(PYTHON, *MARKS):
        place = str(path.relative_to(ROOT))
        if not place.startswith(LATER):
            for line, text in of_comments(path.read_text(encoding="utf-8"), MARKS[path.suffix]):
                if first := REFUSED_IN_COMMENTS.match(text):
                    wrong.append(f"{place}:{line}: opens with {first[1]!r}")
    if wrong:
        print(*wrong, sep="\n", file=sys.stderr)
        print("begin with a verb or a noun: 'Return whether ...', 'True if ...'", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
