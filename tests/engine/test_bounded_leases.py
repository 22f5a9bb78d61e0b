"""A lease adds no further message after 1 MiB of payloads."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

import interlock
from interlock import connect
from tests.engine.naive.model import LEASED, Spec
from tests.engine.naive.watch import WatchedModel
from tests.engine.schedules.compare import difference
from tests.engine.schedules.director import Director
from tests.engine.schedules.servers import Servers, both
from tests.hub.servers import needs_hub

MEGABYTE = 1_048_576


@pytest.fixture(scope="module")
def servers(engine_port: int) -> Iterator[Servers]:
    with both(engine_port) as servers:
        yield servers


def sized(chance: random.Random, n: int) -> Spec:
    """A message of any kind that a lease treats in a way of its own."""
    size = chance.choice([0, 1, 1_000, 1_024, 1_025, 100_000, 400_000, MEGABYTE])
    keys = tuple(f"k{n}.{i}" for i in range(chance.choice([0, 1, 1, 2, 30])))
    options = (("PRIORITY", str(chance.choice([1, 5]))),) if chance.random() < 0.2 else ()
    return Spec("x" * size, keys, (), options)


@pytest.mark.parametrize("seed", range(4))
def test_both_servers_end_a_lease_where_the_model_does(servers: Servers, seed: int) -> None:
    chance = random.Random(seed)
    director = Director(WatchedModel(servers.now))
    for n in range(6):
        director.take(("put", ("", "0", [sized(chance, 20 * n + i) for i in range(20)])))
    handed = []
    while True:
        before = director.model.counts["leases"]
        count = chance.choice(["3", "9", "1000", "1000"])
        kind = chance.choice(["any", "any", "keyed", "unkeyed"])
        director.take(("lease", ("", ["0", count, "1000000", kind])))
        handed.append(director.model.counts["leases"] - before)
        if chance.random() < 0.3:
            out = [entry for entry in director.model.line if entry.state == LEASED]
            made = [["RELEASE", str(one.token), str(one.id)] for one in out[:3]]
            flat = [part for one in made for part in one]
            director._call("settle", ["", "0", *flat], director.model.settle(made))
        if not handed[-1] and kind == "any":
            break
    assert len([count for count in handed if count]) > 6
    wrong = difference(servers.ask(director.calls), servers.answered())
    assert wrong is None or wrong.startswith("left over"), wrong[-2_000:]


def test_a_lease_of_a_thousand_small_messages_stays_below_the_byte_limit(
    servers: Servers,
) -> None:
    director = Director(WatchedModel(servers.now))
    sizes = [1_024] * 1_023 + [1_023, 1_024, 5]
    for start in range(0, len(sizes), 513):
        specs = [Spec("x" * size) for size in sizes[start : start + 513]]
        director.take(("put", ("", "0", specs)))
    for _ in range(3):
        director.take(("lease", ("", ["0", "1024", "1000000", "any"])))
    wrong = difference(servers.ask(director.calls), servers.answered())
    assert wrong is None or wrong.startswith("left over"), wrong[-2_000:]


def test_a_hub_below_its_memory_limit_leases_and_reports_large_messages() -> None:
    needs_hub()
    # Maximum of one message, and one more payload.
    limits: dict[str, Any] = {"limits.normal.hard": 3 * MEGABYTE}
    with (
        interlock.Hub(port=0, workers=1, **limits) as hub,
        connect(f"interlock://{hub.addresses[0]}?timeout=5") as client,
    ):
        queue = client.queue("large", bytes)
        for n in range(12):
            queue.put(bytes([n]) * (MEGABYTE - 1_000))
        taken: list[int] = []
        while len(taken) < 12:
            leases = queue.get_many(100, timeout=20)
            assert {lease.attempt for lease in leases} == {1}
            taken += [lease.payload[0] for lease in leases]
            for lease in leases:
                lease.reject("no")
        assert taken == list(range(12))
        assert len(queue.dead_letters(100)) == 12
