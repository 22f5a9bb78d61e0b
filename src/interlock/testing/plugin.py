"""Fixtures for pytest, which finds them by itself where the package is installed.

- ``interlock_testing``: gives ``app.testing()`` of an app, entered until the end of the test.
- ``interlock_clock``: a ``ManualClock``, for queues of the test's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from interlock import App
    from interlock.testing import ManualClock, TestWorker

__all__ = ["interlock_clock", "interlock_testing"]


@pytest.fixture
def interlock_testing() -> Iterator[Callable[..., TestWorker]]:
    """Yield the call ``worker = interlock_testing(app)``: the app's sends stay in the test.

    Options are those of ``app.testing()``, such as ``eager=True``.
    """
    with contextlib.ExitStack() as entered:

        def testing(app: App, **options: Any) -> TestWorker:
            return entered.enter_context(app.testing(**options))

        yield testing


@pytest.fixture
def interlock_clock() -> ManualClock:
    """Return a clock that only the test moves."""
    from interlock.testing import ManualClock

    return ManualClock()
