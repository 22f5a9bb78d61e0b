"""The contract suite, mounted on memory:// through the client, sync and asyncio."""

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from interlock.client.connection.call import Engine
from interlock.client.faces.client import Client
from interlock.client.transport.memory_link import MemoryEngine
from interlock.client.url import parse
from interlock.testing import ManualClock
from interlock.testing.contract import Case, Face, NotHeld, run
from tests.contract.faces import faced
from tests.contract.remote import CAPABILITIES, Queue


class MemoryUrlHarness:
    """One client of an engine in this process, on a manual clock."""

    name = "memory://"
    capabilities: Mapping[int | str, str] = CAPABILITIES

    def __init__(self) -> None:
        # As on a real engine ids are times, so the clock does not begin at 0.
        self.clock = ManualClock(1_000_000_000)
        self._client = Client(Engine(parse("memory://"), memory=MemoryEngine(self.clock)))
        self._names = (f"q{n}" for n in itertools.count())

    def queue(self, **options: Any) -> Queue:
        return Queue(self._client, next(self._names), options)

    def aio(self, queue: Queue) -> Any:
        return queue.aio

    def close(self) -> None:
        self._client.close()


@pytest.mark.parametrize(("case", "face"), faced())
def test_memory_url(case: Case, face: Face) -> None:
    try:
        run(case, MemoryUrlHarness(), face)
    except NotHeld as reason:
        pytest.skip(str(reason))
