"""`interlock store verify PATH`: compare files with their checksums and with each other."""

from __future__ import annotations

import argparse
import time
from typing import Any

from interlock.cli.store.subcommand import BROKEN, JSON, PAUSE, STABLE, declare, files, gap
from interlock.explanation import printable_json

File = tuple[str, int, int, list[int], list[int], int, int, bool, bool]


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(commands, "verify", run, "compare files with their checksums", (JSON,), topic=False,
            about="Prints a line per file, with its damaged or missing parts.")  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """Print a line for each file, each gap between files, and each unreadable file."""
    verified, gaps, unreadable = files(given).verify()
    verified = settled(verified)
    whole = not gaps and not unreadable
    for file in verified:
        damage = wrong(file)
        whole = whole and not damage
        print(printable_json(record(file)) if given.json else line(file, damage))
    for first, last, count, path, why in gaps:
        lost = {
            "path": path,
            "whole": False,
            "missing": count,
            "from": f"{first[0]}-{first[1]}",
            "to": f"{last[0]}-{last[1]}",
            "why": why,
        }
        text = f"{path}: MISSING before it: {gap(first, last, count)}: {why}"
        print(printable_json(lost) if given.json else text)
    for path, why in unreadable:
        lost = {"path": path, "whole": False, "why": why}
        text = f"{path}: DAMAGED: {why}"
        print(printable_json(lost) if given.json else text)
    return 0 if whole else BROKEN


def settled(verified: list[File]) -> list[File]:
    """Check again files with data behind the last record: a store may be writing it."""
    if not any(file[6] for file in verified):
        return verified
    time.sleep(PAUSE * STABLE)
    return [file if not file[6] or is_left(file) else (*file[:6], 0, *file[7:])
            for file in verified]  # fmt: skip


def is_left(file: File) -> bool:
    """Return whether a file is unchanged since it was verified."""
    from interlock import _core

    try:
        now, _, _ = _core.StoreFiles(file[0]).verify()
    except OSError:  # it has been renamed
        return False
    return now == [file]


def record(file: File) -> dict[str, Any]:
    """Return a file as an object of JSON."""
    path, count, size, changed, frames, missing, trailing, closed, gone = file
    return {
        "path": path,
        "messages": count,
        "bytes": size,
        "closed": closed,
        "whole": not wrong(file),
        "changed": changed,
        "unreadable": frames,
        "missing": missing,
        "trailing": trailing,
        "gone": gone,
    }


def line(file: File, damage: list[str]) -> str:
    """Return a file as a line."""
    path, count, size, *_ = file
    state = f"DAMAGED: {', '.join(damage)}" if damage else "whole"
    return f"{path}: {count:,} messages, {size:,} bytes, {state}"


def wrong(file: File) -> list[str]:
    """Return a file's faults, in words."""
    _, _, _, changed, frames, missing, trailing, _, gone = file
    parts = []
    if gone:
        parts.append("its data is gone")
    elif changed:
        parts.append(f"{len(changed)} messages are not what was written (first: {changed[0]})")
    if frames:
        parts.append(f"{len(frames)} records cannot be read (first: at byte {frames[0]} of its "
                     "index)")  # fmt: skip
    if missing:
        parts.append(f"{missing} messages are missing")
    if trailing:
        parts.append(f"{trailing} bytes at its end have no record")
    return parts
