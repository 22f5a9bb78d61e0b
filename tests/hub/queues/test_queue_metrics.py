"""The figures of queues in a hub's /metrics."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

import interlock
from interlock.hub.serve.pages import HubPages
from interlock.hub.serve.state import State
from interlock.runtime.queue_figures import QUEUE_FAMILIES
from tests.hub.servers import needs_hub


@pytest.fixture(scope="module")
def hub() -> Iterator[interlock.Hub]:
    needs_hub()
    with interlock.Hub(port=0, workers=2, http={"port": 0}) as running:
        yield running


def told(text: str) -> dict[str, dict[str, float]]:
    """By family, and the values of its labels."""
    return {
        family.name: {" ".join(sample.labels.values()): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(text)
    }


def scraped(hub: interlock.Hub) -> dict[str, dict[str, float]]:
    with urlopen(f"http://{hub.http_address}/metrics") as answer:
        return told(answer.read().decode())


def test_queues_have_the_figures_that_stats_tells(hub: interlock.Hub) -> None:
    with interlock.connect(hub.url) as client:
        queue = client.queue("orders")
        for payload in ("one", "two", "three"):
            queue.put(payload, keys=["a"])
        queue.pause("b")
        with queue.get():
            seen = scraped(hub)
        assert queue.stats().puts == 3
    assert seen["interlock_queue_messages"]["orders leased"] == 1
    assert seen["interlock_queue_messages"]["orders waiting"] == 2
    assert seen["interlock_queue_puts"]["orders"] == 3
    assert seen["interlock_queue_leases"]["orders"] == 1
    assert seen["interlock_queue_paused"]["orders"] == 1
    assert seen["interlock_queue_oldest_ready_seconds"]["orders"] == 0
    assert seen["interlock_queues"][""] >= 1 and seen["interlock_queues_cut"] == {"": 0}
    after = scraped(hub)
    assert after["interlock_queue_acks"]["orders"] == 1
    assert 0 < after["interlock_queue_oldest_ready_seconds"]["orders"] < 60


def test_each_family_has_its_kind_and_help(hub: interlock.Hub) -> None:
    with interlock.connect(hub.url) as client:
        client.queue("kinds").put("x")
    with urlopen(f"http://{hub.http_address}/metrics") as answer:
        text = answer.read().decode()
    for family in QUEUE_FAMILIES:
        assert f"# TYPE {family.name} {family.kind}\n" in text, family.name
        assert f"# HELP {family.name} " in text


def test_queues_left_out_of_the_metrics_are_counted_as_cut() -> None:
    looked_at: list[int] = []

    def queues(most: int) -> tuple[dict[str, dict[str, int]], int]:
        looked_at.append(most)
        return {}, 25_000

    page = HubPages(lambda: State.SERVING, dict, queues=queues)("/metrics")
    assert page is not None
    assert looked_at == [10_000]
    assert told(page.body)["interlock_queues"] == {"": 25_000}
    assert told(page.body)["interlock_queues_cut"] == {"": 25_000}
