"""The README of the benchmarks names the rows that there are, and no others."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from benchmarks.interpreters import ROOT
from benchmarks.scenarios import ROWS

NAMED = re.compile(r"^\| ((?:`[^`]+`(?:, )?)+) \|", flags=re.MULTILINE)
VARIES = {"N-keys": "*-key*", "SYNC-CxB": "*", "NAME": "*", "N": "*", "B": "*"}
"""Words of a name that represent several; a row of one key has no plural."""

ANY = re.compile(r"\b(" + "|".join(VARIES) + r")\b")


def patterns() -> set[str]:
    """The names in the first column of each table, with what varies as `*`.

    `…-cpu` behind a name is that name with the ending.
    """
    found = set()
    for cell in NAMED.findall((ROOT / "benchmarks" / "README.md").read_text()):
        first = ""
        for name in re.findall(r"`([^`]+)`", cell):
            whole = first + name[1:] if name.startswith("…") else name
            first = first or name
            found.add(ANY.sub(lambda word: VARIES[word[1]], whole))
    return {pattern for pattern in found if "/" in pattern}


def test_every_row_is_described() -> None:
    named = patterns()
    missing = [row.name for row in ROWS if not any(fnmatchcase(row.name, one) for one in named)]
    assert missing == []


def test_every_described_row_exists() -> None:
    names = [row.name for row in ROWS]
    gone = [one for one in patterns() if not any(fnmatchcase(name, one) for name in names)]
    assert gone == []
