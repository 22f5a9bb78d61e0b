"""The part of a kept summary that describes its run: when, where, of which commit."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from tests.hub.servers import program

ROOT = Path(__file__).parents[3]


def one_run(command: str, seed: int, seconds: float) -> str:
    """The begin of the sentence that says it, in two lines."""
    return f"""\
One run of `{command}`, {datetime.now(UTC):%Y-%m-%d},
commit {_said("git", "rev-parse", "--short", "HEAD").strip()}, seed {seed}, {seconds / 60:.0f} \
minutes on {machine()}"""


def machine() -> str:
    """The machine that it ran on."""
    linux = platform.release().partition("-")[0]
    return f"{os.cpu_count()} CPUs, Linux {linux}, CPython {platform.python_version()}"


def redis_version() -> str:
    found = re.search(r"v=(\S+)", _said(program("redis-server"), "--version"))
    assert found is not None
    return found[1]


def _said(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
