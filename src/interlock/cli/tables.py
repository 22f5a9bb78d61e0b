"""Tables on a terminal, and text that is safe there."""

from __future__ import annotations

from collections.abc import Sequence

from interlock.explanation import printable

__all__ = ["printable", "table"]


def table(head: Sequence[str], rows: Sequence[Sequence[str | int]]) -> str:
    """Return columns under their names; numbers to the right."""
    texts = [[printable(cell) if isinstance(cell, str) else f"{cell:,}" for cell in row]
             for row in rows]  # fmt: skip
    columns = list(zip(head, *texts, strict=True))
    widths = [max(map(len, column)) for column in columns]
    right = [bool(rows) and isinstance(cell, int) for cell in (rows[0] if rows else head)]
    lines = []
    for row in [list(head), *texts]:
        cells = (
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
