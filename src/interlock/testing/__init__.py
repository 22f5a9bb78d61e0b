"""For tests: a clock moved by hand, replay of recorded schedules, and the contract as a suite."""

from interlock._core import ManualClock, replay

__all__ = ["ManualClock", "replay"]
