"""The tutorial of the outbox, typed into a shell from its first line to its last."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.running import ROOT
from tests.docs.shell import Shell
from tests.docs.snippets import blocks
from tests.hub.servers import needs_hub

pytestmark = pytest.mark.watchdog(600)

PAGE = ROOT / "docs" / "tutorial" / "outbox.md"
BANK = ROOT / "examples" / "outbox" / "bank.py"
KILLS = 6


@pytest.mark.share(2)
def test_the_tutorial_of_the_outbox_ends_each_part_as_it_promises(
    tmp_path: Path, new_database: str
) -> None:
    needs_hub()
    bin_ = Path(sys.executable).parent
    shell = Shell(tmp_path, {**os.environ, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"})
    storms = 0
    try:
        for block in blocks(PAGE):
            if block.language == "python":
                assert "\n".join(block.code) in BANK.read_text(encoding="utf-8")
                continue
            for typed, expected in commands(block.code):
                # The pages of the installation and of PostgreSQL are tested elsewhere.
                if typed.startswith(("pip ", "createdb ")):
                    continue
                storms += (kills := typed.startswith("python storm.py"))
                if kills:
                    typed = f"python storm.py {KILLS}"
                typed = typed.replace("~/interlock", str(ROOT))
                typed = re.sub(r"(?<=BANK_URL=)\S+", new_database, typed)
                code, printed = shell.type(typed)
                place = f"{PAGE.name}:{block.line}: {typed}\n{printed}"
                if typed.startswith("timeout"):
                    assert code == 137, place
                    continue
                assert code == ("entries say" in "".join(expected[-1:])), place
                lines = printed.splitlines()
                assert steady(lines[-1:]) == steady(expected[-1:]), place
                if kills:
                    assert sum(" s  " in line for line in lines) == KILLS + 1
        assert storms == 2
    finally:
        shell.close()


def commands(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Return the commands of a block, each with the output below it."""
    found: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def steady(lines: list[str]) -> list[str]:
    """Return the lines without what is different each time."""
    return [re.sub(r"\d+", "N", line.partition("; transfers waiting")[0]) for line in lines]


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        ("delete from entry where account = 'ann' and place = 2", "1 tickets have neither"),
        ("delete from ticket where account = 'ann' and number = 2", "done and not sent"),
        (
            "update entry set number = 5 - number where account = 'ann' and place in (2, 3)",
            "entry 2 is that of ticket 3",
        ),
        ("update account set balance = balance + 1 where name = 'ann'", "ann has 100001 cents"),
    ],
)
def test_the_audit_of_the_bank_finds_books_that_do_not_balance(
    tmp_path: Path, damage: str, fault: str
) -> None:
    def audit() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, BANK, "audit"], cwd=tmp_path, capture_output=True, text=True,
            timeout=60,
        )  # fmt: skip

    assert audit().returncode == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "bank.db", isolation_level=None)) as db:
        for number in range(1, 5):
            db.execute("insert into ticket values ('ann', ?, 0)", (number,))
            db.execute("insert into entry values ('ann', ?, ?, 0)", (number, number))
        assert audit().returncode == 0
        assert db.execute(damage).rowcount > 0
    done = audit()
    assert done.returncode == 1
    assert fault in done.stdout
