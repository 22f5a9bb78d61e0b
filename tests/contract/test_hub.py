"""The contract suite, mounted on a hub through the client, sync and asyncio.

The hub is real, and so are its sockets and threads; only the time of its queues is the test's.
"""

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import interlock
from interlock.testing import ManualClock
from interlock.testing.contract import Case, Face, NotHeld, run
from tests.contract.faces import OTHER, faced
from tests.contract.remote import CAPABILITIES, Queue
from tests.hub.servers import needs_hub


@pytest.fixture(scope="module")
def hub() -> Iterator[interlock.Hub]:
    needs_hub()
    hub = interlock.Hub(port=0, workers=2)
    # As on a real one ids are times, so the clock does not begin at 0.
    hub._clock = ManualClock(1_000_000_000)
    with hub as running:
        yield running


class HubHarness:
    """One client of a running hub."""

    name = "hub"
    capabilities: Mapping[int | str, str] = CAPABILITIES

    def __init__(self, hub: interlock.Hub) -> None:
        assert hub._clock is not None
        self.clock = hub._clock
        self._client = interlock.connect(f"interlock://{hub.addresses[0]}")

    def queue(self, **options: Any) -> Queue:
        return Queue(self._client, uuid.uuid4().hex, options)

    def aio(self, queue: Queue) -> Any:
        return queue.aio

    def close(self) -> None:
        self._client.close()


@pytest.mark.parametrize(("case", "face"), faced(OTHER))
def test_hub(case: Case, face: Face, hub: interlock.Hub) -> None:
    try:
        run(case, HubHarness(hub), face)
    except NotHeld as reason:
        pytest.skip(str(reason))
