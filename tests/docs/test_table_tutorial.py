"""The tutorial of the state table, typed into two terminals from its first line to its last."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

from tests.docs.running import ROOT
from tests.docs.snippets import Block, blocks

PAGE = ROOT / "docs" / "tutorial" / "table.md"
# Types at a prompt what it reads, one statement a line, and shows the last line of a traceback.
PYTHON = f"""
import sys, traceback
sys.path.insert(0, "")
names = {{"__name__": "terminal"}}
exec(open("visits.py").read(), names)
for line in sys.stdin:
    try:
        exec(compile(line, "<terminal>", "single"), names)
    except Exception as error:
        print("Traceback (most recent call last):")
        print(*traceback.format_exception_only(error), sep="", end="")
    print({chr(30)!r}, flush=True)
"""


class Terminal:
    """A shell, and the Python that was started in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        bin_ = Path(sys.executable).parent
        self._env = {**os.environ, "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}"}
        self._python: subprocess.Popen[str] | None = None

    def type(self, line: str) -> str:
        """Type a line with its prompt, and return what is printed."""
        prompt, _, typed = line.partition(" ")
        if prompt == "$" and typed == "python -i visits.py":
            self._python = subprocess.Popen(
                [sys.executable, "-c", PYTHON],
                cwd=self._folder,
                env=self._env,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            return ""
        if prompt == "$":
            assert self._python is None, "this is typed at the prompt of Python"
            run = subprocess.run(
                typed, shell=True, cwd=self._folder, env=self._env, text=True, capture_output=True
            )
            assert (run.returncode, run.stderr) == (0, ""), f"{line}\n{run.stderr}"
            return run.stdout
        assert self._python is not None, "this is typed at the prompt of the shell"
        if typed == "exit()":
            self.close()
            return ""
        return self._ask(self._python, typed)

    def close(self) -> None:
        if self._python is not None:
            self._python.communicate()
            self._python = None

    @staticmethod
    def _ask(python: subprocess.Popen[str], typed: str) -> str:
        assert python.stdin is not None and python.stdout is not None
        python.stdin.write(typed + "\n")
        python.stdin.flush()
        printed = ""
        while not printed.endswith("\x1e\n"):
            line = python.stdout.readline()
            assert line, f"Python ended at {typed!r}"
            printed += line
        return printed.removesuffix("\x1e\n")


def test_the_output_in_the_tutorial_is_that_of_two_terminals(tmp_path: Path) -> None:
    # The same length as the name in the page, or text tables would have other widths.
    name = f"v{uuid.uuid4().hex[:5]}"
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    terminals = {number: Terminal(tmp_path) for number in "12"}
    played = 0
    try:
        for block in blocks(PAGE):
            above = "\n".join(lines[max(0, block.line - 4) : block.line - 1])
            if block.language == "python":
                (file,) = re.findall(r"Write `(\w+\.py)`", above)
                (tmp_path / file).write_text("\n".join(with_name(block, name)) + "\n")
            elif block.language == "console":
                (number,) = re.findall(r"^Terminal (\d):$", lines[block.line - 2], re.MULTILINE)
                play(terminals[number], with_name(block, name), f"{PAGE.name}:{block.line}")
                played += 1
        assert played > 10
        assert not list(Path("/dev/shm").glob(f"*.{name}"))
    finally:
        for terminal in terminals.values():
            terminal.close()
        Path(f"/dev/shm/interlock.{name}").unlink(missing_ok=True)


def with_name(block: Block, name: str) -> list[str]:
    """Return the lines of a block with another name for the table."""
    table = r'(open\("|interlock table \w+ |^)visits(?="|  removed| |$)'
    return [re.sub(table, rf"\g<1>{name}", line) for line in block.code]


def play(terminal: Terminal, lines: list[str], where: str) -> None:
    """Type the text after a prompt, and compare the output with the text below it."""
    printed: list[str] = []
    for line in [*lines, "$ "]:
        if not line.startswith(("$ ", ">>> ")):
            assert printed, f"{where}: {line!r} is not printed"
            assert printed.pop(0) == line, where
            continue
        assert not printed, f"{where}: {printed} is printed, and not in the page"
        if line != "$ ":
            printed = terminal.type(line).splitlines()
