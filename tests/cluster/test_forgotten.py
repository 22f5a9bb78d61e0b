"""Rows that a node has and others have deleted so long ago that they forgot it."""

from __future__ import annotations

from interlock.cluster.entry import Origin
from interlock.cluster.fence import Mark
from tests.cluster.simulation import Node, World

DAY = 86_400_000


def row(node: Node, key: bytes, days: float) -> bytes:
    """Have a node know of a row that was made so many days ago; return its state."""
    world = node.world
    now, world.now_ms = world.now_ms, world.now_ms - int(days * DAY)
    stamp = node.machine._clock.next(world.now_ms)
    state = node.rules.set(None, (1, 0, 0), stamp, world.now_ms)
    world.now_ms = now
    node.machine.copied(0, [(key, state)])
    return state


def test_a_node_that_was_away_forgets_what_a_snapshot_does_not_have_any_more() -> None:
    world = World(1)
    node = world.nodes[0]
    old, new, kept = (row(node, *given) for given in ((b"old", 8), (b"new", 1), (b"kept", 30)))
    node.machine.copies()
    node.machine.copied(0, [(b"kept", kept)])
    node.machine.installed(Mark(1, 1, 1, 0, "1"), {})
    assert set(node.replica.states) == {b"new", b"kept"}
    assert node.shown.rows[b"old"] is None
    # What is not old enough to be forgotten, an engine has lost: the primary is given it.
    assert node.machine.offers.take(10) == [(b"new", new)]
    assert old != new


def primary(world: World) -> Node:
    """The first node, as the primary."""
    node = world.nodes[0]
    node.holds = world.token = 1
    node.machine.elected(1, node.name)
    while not node.machine.is_primary:
        world.stream.append(node.appends.popleft())
        found = world.stream.read(node.machine.fence.mark.position, 10)
        assert found is not None
        node.machine.read(found, caught_up=True)
    return node


def test_a_data_centre_that_was_away_deletes_what_the_other_knew_and_has_not() -> None:
    world = World(2)
    node = world.nodes[0]
    for key, days in ((b"known", 20), (b"unknown", 10), (b"late", 1)):
        row(node, key, days)
    primary(world)
    known = (world.now_ms - 15 * DAY) << 16
    node.machine.drop([b"known", b"unknown", b"late"], known)
    node.machine.came("west", 0, Origin("west", 1, 1, 1, 0, "5", 0), [])
    while node.appends:
        world.stream.append(node.appends.popleft())
    found = world.stream.read(node.machine.fence.mark.position, 10)
    assert found is not None
    node.machine.read(found, caught_up=True)
    # It was made while the two were cut apart, or is too new to be forgotten.
    assert {key for key, shown in node.shown.rows.items() if shown} == {b"unknown", b"late"}
    assert node.machine.links["west"].position == "5"
