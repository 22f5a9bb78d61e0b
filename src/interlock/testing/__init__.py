"""For tests: a clock moved by hand, and the contract as a suite for any engine."""

from interlock._core import ManualClock

__all__ = ["ManualClock"]
