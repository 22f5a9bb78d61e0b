"""Turns a Markdown page into programs that can be run, and says what they must print.

A page's Python snippets are one program with one namespace, in which every line keeps its number,
so that a traceback points into the page. Words after the language change that:

    ```python alone              a program of its own
    ```python raises=LeaseLost   the snippet must end in this exception
    ```python not-run="why"      compiled, but not run
    ```text output               exactly what the snippet before it prints

Commands are in `console` blocks after `$ `, or in `sh` blocks; those of `interlock` are run.
"""

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FENCE = re.compile(r"^(?P<indent> *)(?P<mark>`{3,}|~{3,})(?P<info>[^`]*)$")
MARKS = {
    "python": {"alone", "raises", "not-run"},
    "console": {"not-run"},
    "sh": {"not-run"},
    "text": {"output"},
}
# Printed after each snippet, to separate its output from the next one's.
END = "\x1eend of the snippet at line "


class PageError(ValueError):
    """A page marks a snippet in a way that means nothing; the message names page and line."""


@dataclass
class Block:
    """A fenced block; `line` is that of its opening fence, counted from 1."""

    line: int
    language: str
    marks: dict[str, str]
    code: list[str]
    # The output given by the block after it; None if it states no output.
    output: str | None = None


@dataclass
class Program:
    """The snippets of a page that share a namespace."""

    name: str
    blocks: list[Block] = field(default_factory=list)

    def source(self) -> str:
        """The program, each line at its line of the page."""
        # No snippet can begin on the first line.
        lines = ["from ends_in import ends_in as _ends_in"]
        for block in self.blocks:
            lines += [""] * (block.line - 1 - len(lines))
            code = "\n".join(block.code)
            if "raises" in block.marks:
                # The fences' own lines are free, so nothing moves.
                lines.append(f"with _ends_in({block.marks['raises']!r}):")
                code = textwrap.indent(code, "    ")
            else:
                lines.append("")
            lines += code.split("\n")
            lines.append(f"print({END + str(block.line)!r}, flush=True)")
        return "\n".join(lines) + "\n"

    def outputs(self, stdout: str) -> dict[int, str]:
        """The output of each snippet, by its line, from all that the program printed."""
        parts = stdout.split(END)
        # A part begins with the line of the snippet that ended there, then comes the next one's.
        printed = [parts[0]] + [part.partition("\n")[2] for part in parts[1:]]
        ended = [int(part.partition("\n")[0]) for part in parts[1:]]
        return dict(zip(ended, printed, strict=False))


def programs(page: Path) -> list[Program]:
    """The programs of a page: the shared one first, if it has any snippet, then those alone.

    Raises PageError on an unknown mark, and SyntaxError on a snippet that is not Python.
    """
    shared = Program(page.name)
    alone: list[Program] = []
    for block in blocks(page):
        if block.language != "python":
            continue
        compile("\n" * block.line + "\n".join(block.code), str(page), "exec")
        if "not-run" in block.marks:
            continue
        if "alone" in block.marks:
            alone.append(Program(f"{page.name}:{block.line}", [block]))
        else:
            shared.blocks.append(block)
    return [shared] * bool(shared.blocks) + alone


def commands(page: Path) -> Iterator[tuple[int, list[str]]]:
    """Each command of the page's `console` and `sh` blocks, with its line, as words."""
    for block in blocks(page):
        if block.language not in {"console", "sh"} or "not-run" in block.marks:
            continue
        pending = ""
        for line, text in enumerate(block.code, start=block.line + 1):
            if not pending and block.language == "console":
                if not text.startswith("$ "):
                    continue
                text = text[2:]
            pending += text.removesuffix("\\")
            if text.endswith("\\"):
                continue
            words = shlex.split(pending, comments=True)
            pending = ""
            if words:
                yield line, words


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page whose language is known here."""
    found: list[Block] = []
    for block in fenced(page):
        if block.language not in MARKS:
            continue
        unknown = block.marks.keys() - MARKS[block.language]
        if unknown:
            raise PageError(f"{page}:{block.line}: unknown mark {', '.join(sorted(unknown))}")
        if block.marks.get("not-run") == "":
            raise PageError(f'{page}:{block.line}: say why: not-run="..."')
        if "output" in block.marks:
            if not found or found[-1].language != "python" or found[-1].output is not None:
                raise PageError(f"{page}:{block.line}: output of no snippet")
            found[-1].output = "".join(f"{line}\n" for line in block.code)
        else:
            found.append(block)
    return found


def fenced(page: Path) -> Iterator[Block]:
    opened: Block | None = None
    mark = indent = ""
    for number, text in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        fence = FENCE.match(text)
        if opened is None:
            if fence is not None:
                language, *marks = shlex.split(fence["info"]) or [""]
                opened = Block(number, language, dict(mark_of(word) for word in marks), [])
                mark, indent = fence["mark"], fence["indent"]
        elif fence is not None and fence["mark"].startswith(mark) and not fence["info"].strip():
            yield opened
            opened = None
        else:
            opened.code.append(text.removeprefix(indent))
    if opened is not None:
        raise PageError(f"{page}:{opened.line}: this block is not closed")


def mark_of(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value
