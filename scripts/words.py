"""Refuses private names for concepts that have a standard term, and phrases of translated English.

    scripts/words.py

Names: each part of an identifier counts: `take_seat`, `SeatTaken` and `seats` have the word `seat`
in them. So do the names of files. Comments and strings may use it as English does.

Phrases: comments, docstrings, strings and pages are read; `PHRASES` has the refused phrases, each
with an example of what to write instead.
"""

from __future__ import annotations

import bisect
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFUSED = {
    "aside": "the outcome",
    "away": "leased, sent, delayed",
    "dear": "expensive",
    "ebb": "shrink",
    "feeder": "the task of its thread",
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

BE = r"(?:is|are|was|were)"
NO_THERE = rf"(?<![Tt]here )\b{BE}"
PHRASES = {
    rf"{NO_THERE} no (?!(?:longer|doubt|matter|way|need|reason|use|limit|one|other|better|worse"
    r"|less|slower|faster|room|time|more than)\b)\w": "'is not a timer' for 'is no timer'",
    rf"{NO_THERE} none\b(?! of)|\bthat is none\b": "'is not one' for 'is none'",
    rf"\b{BE} no more\b(?! than)|\bnot any more\b": "'is no longer' for 'is no more'",
    r"\bso (?:many|much)\b(?! (?:as|that|for|more|less|work)\b)(?! \w+ (?:as|that)\b)"
    r"(?! (?:\w+ ){2,3}that\b)": "'this number of seconds' for 'so many seconds'",
    rf"\b{BE} told\b|\btells? (?:of|what|how|who|whether|which)\b": "'prints' for 'tells'",
    r"\bcom(?:es?|ing) again\b|\bcame again\b": "'is redelivered' for 'comes again'",
    r"\b(?:goes?|went|going) on\b(?! to\b)": "'continues' for 'goes on'",
    r"\bstands? (?:before|behind|beside|there|in)\b": "'is before' for 'stands before'",
    r"\blies? (?:beside|behind|below|at|on)\b": "'is behind' for 'lies behind'",
    rf"\b{BE} there (?:again|already|now|any more)\b": "'exists' for 'is there again'",
    r"\bbec(?:omes?|ame) of\b": "'the outcome' for 'what becomes of it'",
    r"\bwho(?:so)?ever\b": "'a client that' for 'whoever'",
    r"\bhand(?:s|ed|ing)? out\b": "'lease' for 'hand out'",
}
"""Refused phrases, each with what to write instead."""
READ = ("src", "tests", "docs", "examples", "scripts", "benchmarks", "wire", "crates", "packaging")
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
NOT_READ = (
    # Recorded runs, faults that a test makes, and these lists.
    "benchmarks/runs/",
    "scripts/mutants/RESULT.md",
    "tests/mutants.toml",
    "tests/packaging/test_words.py",
    "scripts/words.py",
)
PROSE = {
    ".py": r'"""[\s\S]*?"""|#[^\n]*(?:\n[ \t]*#[^\n]*)*|"(?:\\.|[^"\\\n])*"',
    ".rs": r'//[^\n]*(?:\n[ \t]*//[^\n]*)*|"(?:\\.|[^"\\])*"',
    ".lua": r"--[^\n]*(?:\n[ \t]*--[^\n]*)*|'[^'\n]*'",
    ".js": r'//[^\n]*(?:\n[ \t]*//[^\n]*)*|"(?:\\.|[^"\\\n])*"|`[^`]*`',
    ".toml": r'#[^\n]*(?:\n[ \t]*#[^\n]*)*|"(?:\\.|[^"\\\n])*"',
    ".sh": r'#[^\n]*(?:\n[ \t]*#[^\n]*)*|"(?:\\.|[^"\\\n])*"',
    ".md": r"[\s\S]+",
}
"""The parts of a file that are read."""
BREAK = re.compile(r"[ \t]*\n[ \t]*(?:#|//[/!]?|--|>)?[ \t]*|\\\n[ \t]*")


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


def wrong_names() -> Iterator[str]:
    """Yield the identifiers that have a refused word in them."""
    for path in sorted(one for top in ("src", "crates") for one in (ROOT / top).rglob("*")):
        if path.suffix not in SUFFIXES:
            continue
        place = path.relative_to(ROOT).as_posix()
        for line, name in names(path):
            for word in refused(name):
                if not place.startswith(ALLOWED.get(word, ())):
                    yield f"{place}:{line}: {name}: say {REFUSED[word]} for {word}"


def phrases(text: str, suffix: str) -> Iterator[tuple[int, str, str]]:
    """Yield the refused phrases of a file: line, text around it, what to write instead."""
    for part in re.finditer(PROSE[suffix], text):
        prose, starts, end = "", [0], 0
        for at in BREAK.finditer(part[0]):
            prose += part[0][end : at.start()] + " "
            starts.append(len(prose))
            end = at.end()
        prose += part[0][end:]
        first = text.count("\n", 0, part.start())
        for phrase, instead in PHRASES.items():
            for found in re.finditer(phrase, prose):
                line = first + bisect.bisect(starts, found.start())
                yield line, prose[max(0, found.start() - 30) : found.end() + 30], instead


def wrong_phrases() -> Iterator[str]:
    """Yield the places of refused phrases in the files that git knows."""
    listed = ["git", "ls-files", "-z", "--", *READ, *PAGES]
    found = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for place in sorted(filter(None, found.split("\0"))):
        path = ROOT / place
        if path.suffix not in PROSE or place.startswith(NOT_READ) or not path.is_file():
            continue
        for line, around, instead in phrases(path.read_text(encoding="utf-8"), path.suffix):
            yield f"{place}:{line}: …{around}…: write {instead}"


def main() -> int:
    """Return 1 if a name or a phrase is refused."""
    wrong = [*wrong_names(), *wrong_phrases()]
    if wrong:
        print(*wrong, sep="\n", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
