"""Words and numbers in the form of source text."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

from scripts.wire.declaration import ROOT

MADE = "Made by `make generate` from wire/: change that."


def capital(text: str) -> str:
    """Return the same with a capital in front, unless it is a unit."""
    return text if text.startswith("µs") else text[:1].upper() + text[1:]


def number(value: object) -> str:
    """Return a number in digits, with marks where there are many."""
    return f"{value:_}" if isinstance(value, int) and value >= 10_000 else str(value)


def told(names: Iterable[str]) -> str:
    """Words in a sentence's list: this, that or another."""
    *most, last = names
    return f"{', '.join(most)} or {last}"


def doc(text: str) -> list[str]:
    """Return a doc comment of Rust, as a sentence."""
    return wrapped(f"/// {capital(text).removesuffix('.')}.", "/// ")


def string(text: str) -> list[str]:
    """Return a docstring under a constant of Python."""
    lines = wrapped(f'"""{text}', "")
    return [*lines[:-1], f'{lines[-1]}"""']


def wrapped(text: str, behind: str, width: int = 96) -> list[str]:
    """Return a text in lines, each but the first with the same beginning."""
    lines, line = [], ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = behind + word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line]


def rustfmt(text: str) -> str:
    """As `cargo fmt` leaves it."""
    command = ["rustfmt", "--edition", "2021", "--config-path", str(ROOT)]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def ruff(text: str) -> str:
    """As `ruff format` leaves it."""
    command = [
        sys.executable,
        "-m",
        "ruff",
        "format",
        "--config",
        str(ROOT / "pyproject.toml"),
        "-",
    ]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
