"""Tables on a terminal, and text that is safe there."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from interlock.explanation import printable

__all__ = ["printable", "table"]


def table(head: Sequence[str], rows: Sequence[Sequence[str | int]]) -> str:
    """Return columns under their names; numbers to the right.

    On a terminal long texts are shortened so that a row fits; elsewhere they are complete.
    """
    texts = [[printable(cell) if isinstance(cell, str) else f"{cell:,}" for cell in row]
             for row in rows]  # fmt: skip
    right = [bool(rows) and isinstance(cell, int) for cell in (rows[0] if rows else head)]
    columns = list(zip(head, *texts, strict=True))
    widths = [max(map(len, column)) for column in columns]
    if sys.stdout is not None and sys.stdout.isatty():
        widths = fitted(widths, right, shutil.get_terminal_size().columns)
    lines = []
    for row in [list(head), *texts]:
        cells = (
            cell.rjust(width) if is_right else shortened(cell, width).ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def fitted(widths: list[int], fixed: Sequence[bool], room: int) -> list[int]:
    """Return widths with which a row fits: of the columns that may shrink the widest shrinks first,
    none below `NARROWEST`."""
    found = list(widths)
    over = sum(found) + 2 * (len(found) - 1) - room
    may = [at for at, width in enumerate(found) if not fixed[at] and width > NARROWEST]
    while over > 0 and may:
        widest = max(may, key=lambda at: found[at])
        if found[widest] == NARROWEST:
            break
        found[widest] -= 1
        over -= 1
    return found


def shortened(text: str, width: int) -> str:
    """Return a text cut in its middle, where names differ least."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


NARROWEST = 16
"""Maximum columns of a shortened text."""
