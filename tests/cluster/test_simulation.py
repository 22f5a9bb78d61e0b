"""Random schedules of a whole cluster in one thread; see ``simulation``."""

from __future__ import annotations

import os
import random

import pytest

from tests.cluster.simulation import World
from tests.seeds import seed as chosen

RUNS = int(os.environ.get("INTERLOCK_CLUSTER_OPS", "60000")) // 2_000


def check(world: World, *, once: bool = True) -> None:
    """Compare what clients were told with what is there at the end.

    `once`: what a client asked for is done once at most. It cannot be where the engine loses what
    it has shown: a write that one node saw done is repeated by another that did not.
    """
    least = dict.fromkeys(world.keys, 0)
    most = dict.fromkeys(world.keys, 0)
    for write in world.writes:
        assert write.answer is not None
        done = write.answer.startswith(b":")
        surely_not = write.answer.startswith(b"-TRYAGAIN")
        least[write.key] += write.by * done
        most[write.key] += write.by * (not surely_not)
    rows = [node.shown.rows for node in world.nodes]
    states = [node.replica.states for node in world.nodes]
    assert all(state == states[0] for state in states)
    assert all(row == rows[0] for row in rows)
    for key in world.keys:
        row = rows[0].get(key)
        total = 0 if row is None else row[0]
        if once:
            assert total <= most[key], f"{key!r}: {total}, clients asked for {most[key]} at most"
        assert total >= least[key], f"{key!r}: {total}, clients were told {least[key]}"


def tried(world: World, seed: int, *, once: bool = True) -> None:
    """Run a world to its end, and check it."""
    try:
        world.run(1_500)
        world.heal()
        check(world, once=once)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, ack {world.ack}: {error}") from error


@pytest.mark.parametrize("ack", [0, 1, 2])
def test_what_was_answered_is_there_once_whatever_fails(ack: int) -> None:
    seeds = random.Random(chosen() + ack)
    for _ in range(RUNS):
        seed = seeds.getrandbits(32)
        tried(World(seed, ack=ack), seed)


@pytest.mark.parametrize("ack", [0, 1])
def test_nodes_put_together_what_an_engine_lost_that_had_shown_it(ack: int) -> None:
    seeds = random.Random(chosen() + ack)
    for _ in range(RUNS):
        seed = seeds.getrandbits(32)
        tried(World(seed, ack=ack, loses_tail=True, dies=False), seed, once=False)


def test_snapshots_stand_in_for_changes_that_a_node_does_not_keep() -> None:
    seeds = random.Random(chosen())
    for _ in range(RUNS):
        seed = seeds.getrandbits(32)
        tried(World(seed, ack=1, loses_tail=True, dies=False, tail=5), seed, once=False)
