"""The contract suite, mounted on the memory engine: `KeyedQueue`, sync and asyncio."""

from collections.abc import Mapping
from typing import Any

import pytest

from interlock import KeyedQueue
from interlock.testing import ManualClock
from interlock.testing.contract import Case, Face, NotHeld, cases, run


class MemoryHarness:
    """The engine in this process."""

    name = "memory"
    capabilities: Mapping[int | str, str] = {
        "11_changed_bounds_hold_for_what_comes": "its options are given where it is made",
    }

    def __init__(self) -> None:
        self.clock = ManualClock()

    def queue(self, **options: Any) -> KeyedQueue[Any]:
        return KeyedQueue(clock=self.clock, **options)

    def aio(self, queue: KeyedQueue[Any]) -> Any:
        return queue.aio

    def close(self) -> None:
        """Nothing outlives its queue."""


@pytest.mark.parametrize(
    ("case", "face"),
    [pytest.param(case, face, id=f"{case.name}-{face}") for case in cases() for face in case.faces],
)
def test_memory(case: Case, face: Face) -> None:
    try:
        run(case, MemoryHarness(), face)
    except NotHeld as reason:
        pytest.skip(str(reason))
