"""The ways of running a trace: ours, and today's usual ones.

One module per way, each with a `WAY`. The module is imported on demand, so that `interlock --help`
loads none of them.
"""

from __future__ import annotations

from importlib import import_module

from interlock.replay.ways.base import Job, Pool, Shape, Way

OURS = ("queue", "executor", "taskgroup")
"""The ways that `--way` may name; the first is the default."""

PEERS = ("serial", "hash", "per-key", "rendezvous", "registry")
"""The ways that `--compare` also runs, in this order."""


def way(name: str) -> Way:
    """Return the way of this name. Raises KeyError for an unknown name."""
    found = import_module(f"{__name__}.{_MODULES[name]}").WAY
    assert isinstance(found, Way)
    return found


_MODULES = {name: name for name in (*OURS, *PEERS)} | {
    "hash": "hash_static",
    "per-key": "queue_per_key",
}

__all__ = ["OURS", "PEERS", "Job", "Pool", "Shape", "Way", "way"]
