"""For tests: a clock moved by hand, replay of recorded schedules, the contract as a suite, and the
workers of ``app.testing()``."""

from typing import TYPE_CHECKING

from interlock._core import ManualClock, replay

if TYPE_CHECKING:
    from interlock.worker.harness.worker import TestCall, TestWorker

__all__ = ["ManualClock", "TestCall", "TestWorker", "replay"]


def __getattr__(name: str) -> object:
    # They bring asyncio and msgspec, and pytest loads this package at every start.
    if name not in ("TestCall", "TestWorker"):
        raise AttributeError(f"module 'interlock.testing' has no attribute {name!r}")
    from interlock.worker.harness import worker

    return getattr(worker, name)
