"""A shell into which a tutorial is typed."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Shell:
    """A shell that keeps its folder and its variables from line to line."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._shell = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=env,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def type(self, typed: str) -> tuple[int, str]:
        """Type a command, and return its exit code and what is printed."""
        assert self._shell.stdin is not None and self._shell.stdout is not None
        self._shell.stdin.write(f"{typed}\nprintf '\\x1e%d\\n' $?\n")
        self._shell.stdin.flush()
        printed = ""
        while True:
            line = self._shell.stdout.readline()
            assert line, f"the shell ended at {typed!r}"
            before, mark, code = line.partition("\x1e")
            printed += before
            if mark:
                return int(code), printed

    def close(self) -> None:
        self._shell.communicate()
