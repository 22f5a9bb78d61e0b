"""The contract suite, mounted on a hub through the client, sync and asyncio.

A hub has the system's clock. So cases that move time are left out here; the hub's functions are
those of memory://, where they run.
"""

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import interlock
from interlock.testing.contract import Case, Face, NotHeld, cases, run
from tests.contract.remote import CAPABILITIES, Queue
from tests.hub.servers import needs_hub


@pytest.fixture(scope="module")
def hub() -> Iterator[interlock.Hub]:
    needs_hub()
    with interlock.Hub(port=0, workers=2) as running:
        yield running


class SystemClock:
    """Nobody moves it."""

    def now(self) -> float:
        return 0

    def advance(self, seconds: float) -> None:
        raise NotHeld("no test moves the clock of a hub")


class HubHarness:
    """One client of a running hub."""

    name = "hub"
    # Left out before it starts: it would leave a handler that hangs.
    capabilities: Mapping[int | str, str] = {
        **CAPABILITIES,
        "24_a_handlers_own_timeout_revokes_its_lease": "no test moves the clock of a hub",
    }

    def __init__(self, address: str) -> None:
        self.clock = SystemClock()
        self._client = interlock.connect(f"interlock://{address}")

    def queue(self, **options: Any) -> Queue:
        return Queue(self._client, uuid.uuid4().hex, options)

    def aio(self, queue: Queue) -> Any:
        return queue.aio

    def close(self) -> None:
        self._client.close()


@pytest.mark.parametrize(
    ("case", "face"),
    [pytest.param(case, face, id=f"{case.name}-{face}") for case in cases() for face in case.faces],
)
def test_hub(case: Case, face: Face, hub: interlock.Hub) -> None:
    try:
        run(case, HubHarness(hub.addresses[0]), face)
    except NotHeld as reason:
        pytest.skip(str(reason))
