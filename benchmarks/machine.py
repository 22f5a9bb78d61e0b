"""The machine that the figures were taken on, and how much of it others used meanwhile."""

from __future__ import annotations

import os
import platform
import re
import resource
import sqlite3
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.interpreters import ROOT, NotPrepared, behaviours_python


def describe() -> dict[str, Any]:
    """Return CPU, system, versions and commit; None where it is unknown."""
    return {
        "cpu": cpu(),
        "cpus": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "python_build": " ".join([*platform.python_build(), platform.python_compiler()]),
        "python_of_behaviours": _behaviours(),
        "rust": _said("rustc", "--version"),
        "interlock": _installed("interlock"),
        "culsans": _installed("culsans"),
        "bocpy": _installed("bocpy"),
        "redis-py": _installed("redis"),
        "hiredis": _installed("hiredis"),
        "key-message-channel": _locked("key-message-channel"),
        "redis": _redis(),
        "lmdb": _installed("lmdb"),
        "ultradict": _installed("ultradict"),
        "pymemcache": _installed("pymemcache"),
        "memcached": _said("memcached", "--version"),
        "sqlite": sqlite3.sqlite_version,
        "nats": _said("nats-server", "--version"),
        "commit": _said("git", "rev-parse", "HEAD"),
        "changed_since_commit": bool(_said("git", "status", "--porcelain", "--", "src", "crates")),
        "switch_interval": sys.getswitchinterval(),
    }


def cpu() -> str:
    """Return the processor's name, as the system gives it."""
    try:
        names = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        names = []
    return names[0] if names else _said("sysctl", "-n", "machdep.cpu.brand_string") or "unknown"


def slug() -> str:
    """Return the machine's part of a folder's name."""
    words = re.sub(r"\(.*?\)|CPU|Processor|@.*", " ", cpu())
    return re.sub(r"[^a-z0-9]+", "-", f"{words} {os.cpu_count()}-cpus".lower()).strip("-")


class Others:
    """The part of all cores that processes other than this one and its children used.

    Where it is above a few hundredths the figures say more about them than about us.
    """

    def __init__(self) -> None:
        self._wall = time.monotonic()
        self._busy = _busy_seconds()
        self._own = _own_seconds()

    def share(self) -> float | None:
        """Return the part that they used since this was made, 0 to 1.

        None where the system does not tell.
        """
        busy = _busy_seconds()
        if busy is None or self._busy is None:
            return None
        others = busy - self._busy - (_own_seconds() - self._own)
        capacity = (time.monotonic() - self._wall) * (os.cpu_count() or 1)
        return round(max(0.0, others / capacity), 3) if capacity else None


def _busy_seconds() -> float | None:
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    except OSError:
        return None
    user, nice, system, _, _, irq, soft_irq, steal = map(int, fields[1:9])
    return (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _behaviours() -> str | None:
    try:
        return _said(str(behaviours_python()), "--version")
    except NotPrepared:
        return None


def _redis() -> str | None:
    found = re.search(r"v=([0-9.]+)", _said("redis-server", "--version") or "")
    return found[1] if found else None


def _said(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _locked(crate: str) -> str | None:
    lock = ROOT / "benchmarks" / "rust" / "Cargo.lock"
    found = re.search(rf'name = "{crate}"\nversion = "(.+)"', lock.read_text())
    return found[1] if found else None
