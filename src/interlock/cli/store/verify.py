"""`interlock store verify PATH`: compare files with their checksums."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from interlock.cli.store.subcommand import BROKEN, JSON, declare, files


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(commands, "verify", run, "compare files with their checksums", (JSON,), topic=False,
            about="A line for each file, and what of it is damaged.")  # fmt: skip


def run(given: argparse.Namespace) -> int:
    """Print a line for each file."""
    verified, unreadable = files(given).verify()
    damaged = bool(unreadable)
    for path, count, size, changed, frames, missing, closed in verified:
        whole = not (changed or frames or missing)
        damaged |= not whole
        if given.json:
            record = {
                "path": path,
                "messages": count,
                "bytes": size,
                "closed": closed,
                "whole": whole,
                "changed": changed,
                "unreadable": frames,
                "missing": missing,
            }
            print(json.dumps(record, ensure_ascii=False))
        else:
            state = "whole" if whole else wrong(changed, frames, missing)
            print(f"{path}: {count:,} messages, {size:,} bytes, {state}")
    for path in unreadable:
        record = {"path": path, "whole": False}
        told = f"{path}: its head cannot be read"
        print(json.dumps(record, ensure_ascii=False) if given.json else told)
    return BROKEN if damaged else 0


def wrong(changed: Sequence[int], frames: Sequence[int], missing: int) -> str:
    """Return what is wrong with a file, in words."""
    parts = []
    if changed:
        parts.append(f"{len(changed)} messages are not what was written (first: {changed[0]})")
    if frames:
        parts.append(f"{len(frames)} records cannot be read (first: at byte {frames[0]} of its "
                     "index)")  # fmt: skip
    if missing:
        parts.append(f"{missing} messages are missing")
    return f"DAMAGED: {', '.join(parts)}"
