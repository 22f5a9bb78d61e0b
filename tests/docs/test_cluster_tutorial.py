"""The tutorial of a table on several machines, typed into a shell from its first line to its last.

It makes network namespaces, so it needs root.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.faults.netns import PREFIX, needed, sweep
from tests.docs.running import ROOT
from tests.docs.shell import Shell
from tests.docs.snippets import blocks
from tests.hub.servers import needs_hub, program

PAGE = ROOT / "docs" / "tutorial" / "cluster.md"
SCRIPT = ROOT / "examples" / "cluster" / "namespaces.sh"
PATIENCE = 20.0
READS = re.compile(r" HGET|^grep | cluster (?:status|diff)")
"""Commands that may be typed again, until they print what the page says."""


@pytest.mark.share(2)
@pytest.mark.watchdog(150)
def test_the_output_in_the_tutorial_is_that_of_two_real_data_centres(tmp_path: Path) -> None:
    needed()
    needs_hub()
    program("redis-server"), program("redis-cli")
    sweep()
    lab = f"{PREFIX}{os.getpid()}-lab"
    bin_ = Path(sys.executable).parent
    path = f"{bin_}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "LAB": lab}
    shell = Shell(tmp_path, env)
    played = 0
    try:
        for name, lines, where in pieces():
            if name:
                (tmp_path / name).write_text("\n".join(lines) + "\n")
            else:
                played += play(shell, lines, where)
        assert played > 25
        assert not list(Path("/run/netns").glob(f"{lab}*")), "the page leaves namespaces behind"
        assert {one.name for one in tmp_path.iterdir() if one.is_dir()} <= {"__pycache__"}
        assert not list(tmp_path.glob("*.table"))
    finally:
        shell.close()
        subprocess.run([SCRIPT, "down"], env=env, check=True)


def pieces() -> list[tuple[str, list[str], str]]:
    """Return the page's files with their names, and its commands with none."""
    above = PAGE.read_text(encoding="utf-8").splitlines()
    found = []
    for block in blocks(PAGE):
        name = ""
        if block.language == "python":
            (name,) = re.findall(
                r"[Ww]rite `(\w+\.\w+)`", "\n".join(above[block.line - 4 : block.line - 1])
            )
        found.append((name, block.code, f"{PAGE.name}:{block.line}"))
    return found


def play(shell: Shell, lines: list[str], where: str) -> int:
    """Type the text after a prompt, and compare the output with the text below it."""
    commands: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith("$ "):
            commands.append((line[2:].replace("~/interlock", str(ROOT)), []))
        elif line.startswith("> "):
            commands[-1] = f"{commands[-1][0]}\n{line[2:]}", []
        else:
            commands[-1][1].append(line)
    for typed, expected in commands:
        until = time.monotonic() + PATIENCE
        while True:
            code, printed = shell.type(typed)
            if (code, steady(printed.splitlines())) == (0, steady(expected)):
                break
            # An engine that has just started may not be reached yet; then nothing was done.
            is_safe = READS.search(typed) is not None or printed.startswith("TRYAGAIN ")
            again = is_safe and time.monotonic() < until
            assert again, f"{where}: {typed}\nends in {code} and prints\n{printed}"
            time.sleep(0.1)
    return len(commands)


def steady(lines: list[str]) -> list[str]:
    """Return what is printed, without what is another each time: times, positions, checksums."""
    found = []
    for line in lines:
        line = re.sub(r"\b[\d,.]+ (?:ms|s|min)\b", "T", line)
        line = re.sub(r"\b(never|T ago)  +[\d,]+  +(?:[\d,]+|-)", r"\1 CHANGES POSITION", line)
        line = re.sub(r"(?<=:700\d)  +[\d,]+  +[\d,]+(?=  T)", " POSITION BEHIND", line)
        line = re.sub(r"(?<=  )[0-9a-f]{8}(?=  )", "CHECKSUM", line)
        line = re.sub(r"(?<=at position )\d+", "N", line)
        # Which of several errors of a network a cut is, is a matter of the moment.
        line = re.sub(r"\w+ il:\S+ at redis://10\.77\.\d\.1: (?!no node).+", "CUT", line)
        found.append(" ".join(line.split()))
    return found


def test_an_unknown_command_in_the_tutorial_is_named(tmp_path: Path) -> None:
    if shutil.which("ip") is None:
        pytest.skip("no ip: install iproute2")
    for words, said in (
        (["around"], "'around'; allowed: up, in, start, cut, heal, down"),
        (["in", "north", "true"], "unknown data centre 'north'; allowed: east, west"),
        (["up", "now"], "up takes no arguments"),
    ):
        run = subprocess.run([SCRIPT, *words], text=True, capture_output=True, cwd=tmp_path)
        assert run.returncode == 1
        assert run.stderr == f"namespaces.sh: {said}\n"
