"""The end of a run: each client was answered once more, and none broke."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from tests.cluster.faults.workload import Guest, Known


def settle(guests: Sequence[Guest], deadline: float) -> list[str]:
    """Wait until each of them was answered as done again; answers who was not in time."""
    before = {guest.name: guest.done for guest in guests}
    waiting = list(guests)
    while waiting and time.monotonic() < deadline:
        time.sleep(0.02)  # Between two looks.
        waiting = [one for one in waiting if one.done == before[one.name] and one.error is None]
    return [one.name for one in waiting]


def end(guests: Sequence[Guest], known: Known) -> None:
    """Have them all end. Raises AssertionError where one broke."""
    known.stop.set()
    errors: list[AssertionError] = []
    for guest in guests:
        with suppress(AssertionError):
            guest.join()
            continue
        errors.append(AssertionError(f"{guest.name}: {guest.error!r}"))
        errors[-1].__cause__ = guest.error
    if errors:
        raise errors[0]
