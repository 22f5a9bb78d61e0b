"""The contract suite, mounted on the memory engine: `KeyedQueue`, sync and asyncio."""

from collections.abc import Mapping
from typing import Any

import pytest

from interlock import KeyedQueue
from interlock.testing import ManualClock
from interlock.testing.contract import Case, Face, NotHeld, cases, run

_RESULTS = "the queue in one process keeps no results; an executor's futures have them"


class MemoryHarness:
    """The engine in this process."""

    name = "memory"
    capabilities: Mapping[int | str, str] = {
        "25_a_handler_that_waits_for_a_result_behind_its_own_key": _RESULTS,
        "25_the_only_handler_waits_for_a_result_that_it_would_make_itself": _RESULTS,
        "25_a_handler_that_waits_for_a_result_that_needs_its_own_slot": _RESULTS,
        "25_a_result_that_another_handler_makes_is_waited_for": _RESULTS,
        30: "the queue in one process has no runs; its consumers have get_many",
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
