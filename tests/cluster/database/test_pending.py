"""Rows that wait: whatever fails in between, the mark never says more than what is written."""

from __future__ import annotations

import random

import pytest

from interlock.cluster.database.pending import Pending
from tests.cluster.database.rows import mark


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("most_bytes", [0, 200, 1 << 20])
def test_from_the_mark_on_nothing_is_missing(seed: int, most_bytes: int) -> None:
    chance = random.Random(seed)
    # The node's rows: of each the number of its last change. What the database has of them.
    node: dict[bytes, int] = {b"%d" % n: 5 for n in range(20)}
    saved = {key: 5 for key in node if chance.random() < 0.7}
    seq, at = 5, 5 if len(saved) == 20 else 4
    pending = Pending(mark(0), most_bytes=most_bytes)
    based = False
    for _ in range(300):
        kind = chance.random()
        if kind < 0.4:
            seq += 1
            changed = [b"%d" % chance.randrange(40) for _ in range(chance.randrange(6))]
            node |= dict.fromkeys(changed, seq)
            pending.offer([(key, b"%d" % seq) for key in changed], mark(seq))
        elif not based:
            # What was missed: all that has changed since, the rows that were offered among it.
            pending.based(mark(at))
            pending.missing([key for key, last in node.items() if last > at])
            based = True
        else:
            taken = pending.take(chance.randrange(1, 8), size=chance.randrange(1, 30))
            said = pending.mark
            if chance.random() < 0.4:
                pending.returned()
                continue
            for row in taken:
                saved[row.key] = node[row.key] if row.state is None else int(row.state)
            pending.settled()
            assert said.seq >= at
            at = said.seq
        if based:
            assert all(saved.get(key, 0) == last for key, last in node.items() if last <= at)
    if not based:
        return
    while len(pending):
        for row in pending.take(10):
            saved[row.key] = node[row.key] if row.state is None else int(row.state)
        at = pending.mark.seq
        pending.settled()
    assert saved == node and at == seq and pending.since is None


def test_a_row_that_changes_often_waits_once() -> None:
    pending = Pending(mark(0))
    for seq in range(1, 10_000):
        pending.offer([(b"a", b"%d" % seq)], mark(seq))
    assert len(pending) == 1
    (row,) = pending.take(10)
    assert (row.state, row.seq) == (b"9999", 9999)
    assert pending.mark == mark(9999)


def test_beyond_the_bound_only_keys_are_kept() -> None:
    pending = Pending(mark(0), most_bytes=1000)
    pending.offer([(b"%d" % n, b"x" * 100) for n in range(20)], mark(20))
    states = [row.state for row in pending.take(20)]
    assert states == [b"x" * 100] * 10 + [None] * 10
    # They have been taken out: there is room again.
    pending.offer([(b"0", b"y" * 100)], mark(21))
    pending.returned()
    found = {row.key: row.state for row in pending.take(20)}
    assert found[b"0"] == b"y" * 100 and len(found) == 20
