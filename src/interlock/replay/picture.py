"""A run as a picture: one self-contained HTML file, or a static SVG.

The HTML file holds the run's messages as columns of small integers and the script that draws them:
the parts under `static/`, joined with those of the timeline that they use. Opening it fetches
nothing, and its content policy names the hashes of its own style and script, so that nothing else
could run in it: ids and keys come from a trace, and a trace is data.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from interlock import timeline
from interlock.replay.picture_svg import drawing
from interlock.replay.run import Run

UNIT = 1e-7
"""Seconds in one step of a written time."""

STATIC = Path(__file__).with_name("static")


def write(path: Path, run: Run) -> None:
    """Draw `run` into the file at `path`, replacing an existing file.

    `.html` is the interactive picture, `.svg` a static one of bounded size.

    Raises ValueError for any other suffix, or for a record whose `waited_for` is a message that was
    not put before it, and OSError if the file cannot be written.
    """
    suffix = path.suffix.lower()
    if suffix not in (".html", ".svg"):
        raise ValueError(f"picture: {path.name!r} ends in {suffix!r}; allowed: .html, .svg")
    text = page(run) if suffix == ".html" else drawing(run)
    path.write_text(text, encoding="utf-8", newline="\n")


def page(run: Run) -> str:
    """Return the whole HTML file as text."""
    style, script = _own_parts()
    policy = (
        f"default-src 'none'; base-uri 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    )
    # An id in a title could hold characters that UTF-8 cannot encode; the data itself is plain
    # ASCII.
    title = run.title.encode(errors="replace").decode()
    values = {
        "policy": policy,
        "title": html.escape(title),
        "style": style,
        "script": script,
        "data": script_data(columns(run)),
    }
    # One pass, so that a value that looks like a placeholder stays unchanged.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], _read(STATIC / "picture.html"))


def columns(run: Run) -> dict[str, object]:
    """Return the run in the page's format: a list or a packed column for each property.

    Times are whole steps of `UNIT`: `put` since the previous put, `wait` from put to start,
    `handled` from start to end. `width` counts a message's keys and `holds` lists them, twice the
    key's number and one more if it is shared. `behind` is the distance back to the message that it
    waited for, 0 for none.
    """
    numbers: dict[str, int] = {}
    puts: list[int] = []
    waits: list[int] = []
    handled: list[int] = []
    widths: list[int] = []
    holds: list[int] = []
    behind: list[int] = []
    last = 0
    for place, record in enumerate(run.records):
        put = round(record.put_time / UNIT)
        start = round(record.start / UNIT)
        puts.append(signed(put - last))
        waits.append(signed(start - put))
        handled.append(max(0, round(record.end / UNIT) - start))
        last = put
        widths.append(len(record.keys) + len(record.shared))
        holds.extend(2 * numbers.setdefault(key, len(numbers)) for key in record.keys)
        holds.extend(2 * numbers.setdefault(key, len(numbers)) + 1 for key in record.shared)
        if record.waited_for is not None and not 0 <= record.waited_for < place:
            raise ValueError(
                f"records[{place}].waited_for is {record.waited_for}; "
                f"allowed: None, or the index of a record before it"
            )
        behind.append(0 if record.waited_for is None else place - record.waited_for)
    return {
        "title": run.title,
        "workers": run.workers,
        "seconds": run.seconds,
        "limit": run.limit_seconds,
        "unit": UNIT,
        "ids": [record.id for record in run.records],
        "keys": list(numbers),
        "worker": pack(record.worker for record in run.records),
        "put": pack(puts),
        "wait": pack(waits),
        "handled": pack(handled),
        "width": pack(widths),
        "holdCount": len(holds),
        "holds": pack(holds),
        "behind": pack(behind),
    }


def signed(value: int) -> int:
    """Return a signed number as an unsigned one, small staying small.

    0, -1, 1, -2 give 0, 1, 2, 3.
    """
    return 2 * value if value >= 0 else -2 * value - 1


def pack(values: Iterable[int]) -> str:
    """Return numbers of 0 or more in base64.

    Each byte has 7 bits, lowest first, and the top bit if more follow.
    """
    packed = bytearray()
    for value in values:
        while value > 127:
            packed.append(value & 127 | 128)
            value >>= 7
        packed.append(value)
    return base64.b64encode(packed).decode("ascii")


def script_data(value: object) -> str:
    """Return JSON that is safe inside a script element: no `<`, `>` or `&`, and only ASCII."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"})


@cache
def _own_parts() -> tuple[str, str]:
    """Return the page's style and its script."""
    sheets = [*(timeline.STATIC / name for name in timeline.STYLES), STATIC / "picture.css"]
    script = timeline.joined(STATIC / "start.js")
    return "\n".join(map(_read, sheets)), f'(() => {{\n"use strict";\n{script}}})();\n'


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
