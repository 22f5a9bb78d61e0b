"""The table of instruction counts."""

from __future__ import annotations

from benchmarks.instructions import BARS, OPERATIONS, table


def test_every_peer_is_an_operation_and_every_row_of_one_thread_is_counted() -> None:
    names = {one.name for one in OPERATIONS}
    assert {one.peer for one in OPERATIONS} - {""} <= names
    compared = {one.name for one in OPERATIONS if one.peer}
    assert set(BARS) == {name for name in compared if name.startswith("single/")}


def test_a_line_of_the_table_shows_an_operation_beside_its_peer_and_its_bar() -> None:
    counts = {one.name: 1000.0 for one in OPERATIONS} | {"single/1-key": 2500.0}
    lines = table(OPERATIONS, counts).splitlines()
    assert "| single/1-key | 2,500 | queue.Queue | 1,000 | 2.500 | 0.13 |" in lines
    assert len(lines) == 2 + sum(bool(one.peer) for one in OPERATIONS)


def test_no_operation_of_64_messages_loses_one() -> None:
    assert [one.name for one in OPERATIONS if one.run(64).lost] == []
