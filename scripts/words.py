"""Refuses private names for concepts that have a standard term.

    scripts/words.py

Each part of an identifier counts: `take_seat`, `SeatTaken` and `seats` have the word `seat` in
them. So do the names of files. Comments and strings may use it as English does.
"""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFUSED = {
    "aside": "what becomes of it",
    "away": "leased, sent, delayed",
    "dear": "expensive",
    "ebb": "shrink",
    "feeder": "what its thread does",
    "flow": "request",
    "roomy": "capacity",
    "seat": "session",
    "shy": "limited",
    "swell": "grow",
    "taste": "mix",
    "tender": "renewer",
    "trial": "attempt, half-open",
}
"""With the word to use instead; docs/glossary.md has the terms. Words that the field uses for
something else, such as the slots of a cluster, are allowed."""
ALLOWED = {
    # A journal's repair sets files aside; a put that finds no room steps aside.
    "aside": ("crates/", "src/interlock/client/lua/"),
    # One run of a case of the contract.
    "trial": ("src/interlock/testing/",),
}
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
COMMENTS = {".rs": r"//[^\n]*|/\*.*?\*/", ".lua": r"--\[\[.*?\]\]|--[^\n]*"}
STRING = r"""b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\\n])'"""
SUFFIXES = (".py", ".pyi", *COMMENTS)


def names(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the identifiers of a file with their lines, and its own name."""
    yield 1, path.stem
    text = path.read_text(encoding="utf-8")
    if comment := COMMENTS.get(path.suffix):
        token = rf"{comment}|{STRING}|(?P<name>[A-Za-z_]\w*)"
        for found in re.finditer(token, text, flags=re.DOTALL):
            if found["name"]:
                yield text.count("\n", 0, found.start()) + 1, found["name"]
        return
    for one in tokenize.generate_tokens(io.StringIO(text).readline):
        if one.type == tokenize.NAME:
            yield one.start[0], one.string


def refused(name: str) -> Iterator[str]:
    """Yield the words in an identifier that are refused."""
    for part in PART.findall(name):
        yield from {part.lower(), part.lower().removesuffix("s")} & REFUSED.keys()


def main() -> int:
    """Return 1 if a word is found where it is not allowed."""
    wrong = []
    for path in sorted(one for top in ("src", "crates") for one in (ROOT / top).rglob("*")):
        if path.suffix not in SUFFIXES:
            continue
        place = path.relative_to(ROOT).as_posix()
        for line, name in names(path):
            for word in refused(name):
                if place.startswith(ALLOWED.get(word, ())):
                    continue
                wrong.append(f"{place}:{line}: {name}: say {REFUSED[word]} for {word}")
    if wrong:
        print(*wrong, sep="\n", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
