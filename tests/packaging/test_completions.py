"""The completion file of bash works; those of other shells are made from the same parser."""

import shutil
import subprocess
from pathlib import Path

import pytest

FILE = (
    Path(__file__).resolve().parents[2]
    / "packaging/data/share/bash-completion/completions/interlock"
)


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("interlock wor", {"worker"}),
        ("interlock queue expl", {"explain"}),
        ("interlock hub --jou", {"--journal"}),
        ("interlock worker --pool ", {"thread", "asyncio", "process"}),
    ],
)
def test_bash_completes(line: str, expected: set[str]) -> None:
    words = line.split(" ")
    program = (
        f"source {FILE}; COMP_WORDS=({' '.join(words[:-1])} '{words[-1]}'); "
        f"COMP_CWORD={len(words) - 1}; COMP_LINE='{line}'; COMP_POINT={len(line)}; "
        f"_shtab_interlock interlock '{words[-1]}' '{words[-2]}'; "
        'echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == expected
