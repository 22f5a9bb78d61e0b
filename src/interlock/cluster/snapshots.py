"""Checkpoints between nodes: what a machine keeps, and what one gives to another."""

from __future__ import annotations

import os
from pathlib import Path


def machine() -> str:
    """Return what tells this machine from others; containers of one machine have the same."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.uname().nodename
