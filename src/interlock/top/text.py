"""Texts of the view: any name, key or error on one line, and never as markup."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.text import Text

from interlock.explanation import key_names, printable

__all__ = ["cell", "course", "duration", "keys", "number", "one_line"]


def one_line(text: str, width: int = 80) -> str:
    """Return a text with terminal control characters escaped, cut to a width."""
    plain = printable(text[: width + 1])
    return plain if len(plain) <= width else plain[: width - 1] + "…"


def cell(text: object, *, right: bool = False, style: str = "") -> Text:
    """Return a cell of a table."""
    return Text(one_line(str(text)), style=style, justify="right" if right else "left")


def number(value: int | float | None) -> Text:
    """Return a number as a cell, empty for none; zeros are pale."""
    if value is None:
        return cell("")
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
    return cell(text, right=True, style="" if value else "dim")


def keys(found: Iterable[bytes], width: int = 40) -> str:
    """Return keys on one line."""
    return one_line(", ".join(key_names(found)), width)


def course(values: Sequence[float], width: int = 20) -> str:
    """Return the last values as a line of bars, from 0 to the largest of them."""
    last = values[-width:]
    most = max(last, default=0.0)
    if most <= 0:
        return BARS[0] * len(last)
    return "".join(BARS[min(int(value / most * (len(BARS) - 1) + 0.999), 8)] for value in last)


def duration(seconds: float) -> str:
    """Return a duration for people; empty for a number out of range."""
    if not -1e15 < seconds < 1e15:
        return ""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


BARS = " ▁▂▃▄▅▆▇█"
