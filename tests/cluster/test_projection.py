"""Projection: the rows of a table are those that the states show."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest

from interlock import SharedTable
from interlock.cluster.projection import Projection
from interlock.cluster.stamps import HybridClock
from interlock.cluster.state import TableRules
from tests import seeds
from tests.cluster.rows import OPERATIONS, Kept, Merged, Time
from tests.hub.tables import new_name

NOW = 1_700_000_000_000
ZEROS = ("", 0, 0, 0, 0.0, 0, 0.0, 0)


@pytest.fixture
def table() -> Iterator[SharedTable[Merged]]:
    name = new_name()
    yield SharedTable.open(name, Merged, capacity=100, on_full="raise")
    SharedTable.remove(name)


def test_the_table_shows_what_the_states_show(table: SharedTable[Merged]) -> None:
    chance = random.Random(seeds.seed())
    time = Time()
    kept = Kept(table, name="t", clock=time.clock("east"))
    columns = [column.name for column in kept.rules.columns if column.kind not in ("str", "F32")]
    for _ in range(800 * OPERATIONS):
        time.ms += chance.choice([0, 1, 1000])
        key = f"t:{chance.randrange(8)}"
        words: tuple[str | int, ...] = chance.choices(
            [
                ("HSET", key, chance.choice(columns), chance.randrange(128)),
                ("HINCRBY", key, "unread", chance.randrange(50)),
                ("TABLE", "SET", key, "ANY", "NEVER", "name", "x", "devices", 5),
                ("EXPIRE", key, 10_000),
                ("EXPIRE", key, 0),
                ("PERSIST", key),
                ("DEL", key),
            ],
            [8, 8, 2, 2, 1, 2, 2],
        )[0]
        kept.run(*words, now_ms=time.ms)
        shown = {
            key.decode(): row
            for key, state in kept.states.items()
            if (row := kept.rules.row(state, time.ms)) is not None
        }
        assert dict(table.items()) == shown
        for key in shown:
            expires = kept.rules.expires_at(kept.states[key.encode()])
            assert (table.ttl(key) is None) == (expires == 0)
    fresh = SharedTable.open(new_name(), Merged, capacity=100, on_full="raise")
    try:
        Projection(fresh, kept.rules).put_many(kept.states.items(), time.ms)
        assert fresh == table
    finally:
        SharedTable.remove(fresh.path.name.removeprefix("interlock."))


def test_a_state_again_changes_nothing(table: SharedTable[Merged]) -> None:
    rules, clock = TableRules.of(Merged), HybridClock("east")
    projection = Projection(table, rules)
    state = rules.set(None, ZEROS, clock.next(), NOW, NOW + 50_000)
    for _ in range(3):
        projection.put(b"k", state, NOW)
        assert table["k"] == Merged()
        left = table.ttl("k")
        assert left is not None and 0 < left <= 50
    projection.put(b"k", state, NOW + 50_000)
    projection.put(b"k", state, NOW + 50_000)
    projection.put(b"none", rules.deleted(clock.next()), NOW)
    assert len(table) == 0


def test_a_row_lives_as_its_state_says_and_not_as_the_table() -> None:
    name = new_name()
    table = SharedTable.open(name, Merged, capacity=10, ttl=100, on_full="raise")
    try:
        rules = TableRules.of(Merged)
        state = rules.set(None, ZEROS, HybridClock("east").next(), NOW)
        Projection(table, rules).put(b"k", state, NOW)
        assert table.ttl("k") is None
    finally:
        SharedTable.remove(name)


def test_a_table_that_is_full_grows_and_no_row_is_lost(table: SharedTable[Merged]) -> None:
    rules, clock = TableRules.of(Merged), HybridClock("east")
    state = rules.set(None, ZEROS, clock.next(), NOW)
    keys = [b"%d" % number for number in range(1000)]
    Projection(table, rules).put_many([(key, state) for key in keys], NOW)
    assert {str(key) for key in table} == {key.decode() for key in keys}
    assert table.capacity >= 800


def test_nobody_reads_half_of_a_change(table: SharedTable[Merged]) -> None:
    """Each change sets two columns to the same; they are the same whenever a reader looks."""
    kept = Kept(table, name="t", clock=HybridClock("east"))
    kept.run("HSET", "t:k", "state", 0, "unread", 0, now_ms=NOW)
    ended, torn, reads = threading.Event(), [], [0]

    def read() -> None:
        own = SharedTable.attach(table.path.name.removeprefix("interlock."), Merged)
        while not ended.is_set():
            row = own["k"]
            reads[0] += 1
            if row.state != row.unread:
                torn.append(row)

    reader = threading.Thread(target=read)
    reader.start()
    number = 0
    while number < 3000 * OPERATIONS or not reads[0]:
        number += 1
        value = number % 256
        kept.run("HSET", "t:k", "state", value, "unread", value, now_ms=NOW)
    ended.set()
    reader.join()
    assert reads[0] and not torn
