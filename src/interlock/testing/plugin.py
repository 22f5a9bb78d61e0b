"""Fixtures for pytest, which finds them by itself where the package is installed.

- ``interlock_testing``: gives ``app.testing()`` of an app, entered until the end of the test.
- ``interlock_clock``: a ``ManualClock``, for queues of the test's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from interlock import App
    from interlock.testing import ManualClock, TestWorker

__all__ = ["interlock_clock", "interlock_testing"]


@pytest.fixture
def interlock_testing() -> Iterator[Callable[[App], TestWorker]]:
    """Yield the call ``worker = interlock_testing(app)``: what the app sends stays in the test."""
    with contextlib.ExitStack() as entered:
        yield lambda app: entered.enter_context(app.testing())


@pytest.fixture
def interlock_clock() -> ManualClock:
    """Return a clock that only the test moves."""
    from interlock.testing import ManualClock

    return ManualClock()
