"""The reading of a change stream by the checker of runs: each rule is seen to fail."""

from __future__ import annotations

from interlock.cluster.entry import BARRIER, CHANGES, Entry
from tests.cluster.faults.history import OK, READ, Operation
from tests.cluster.faults.streams import believed, judged


def barrier(token: int, seq: int, node: str) -> Entry:
    return Entry(BARRIER, token, node, 0, seq, 0, 0)


def changes(token: int, number: int, seq: int, node: str, *ids: str) -> Entry:
    made = [(b"key", b"state" + id.encode() + b"more") for id in ids]
    return Entry(CHANGES, token, node, number, seq, 0, 0, changes=made)


GOOD = [
    barrier(1, 0, "a1"),
    changes(1, 1, 1, "a1", "<ew0.1>"),
    changes(1, 2, 1, "a1"),
    changes(1, 2, 1, "a1"),
    barrier(5, 1, "a2"),
    changes(1, 3, 2, "a1", "<ew0.2>"),
    changes(5, 1, 3, "a2", "<ew0.3>", "<ww1.4>"),
]


def rules(stream: list[Entry], *, whole: bool = True) -> set[str]:
    return {one.rule for one in judged("east", stream, whole=whole).violations}


def test_a_good_stream_is_read_as_nodes_read_it() -> None:
    told = judged("east", GOOD, whole=True)
    assert told.violations == []
    assert told.accepted == {"<ew0.1>", "<ew0.3>", "<ww1.4>"}
    assert told.fenced == {"<ew0.2>"} and (told.terms, told.late) == (2, 1)


def test_a_bad_stream_is_told_by_what_is_wrong() -> None:
    assert rules([*GOOD, changes(5, 2, 4, "a1", "x")]) == {"two primaries"}
    assert rules([*GOOD, changes(6, 1, 4, "a1", "x")]) == {"no barrier"}
    assert rules([*GOOD, changes(5, 3, 4, "a2", "x")]) == {"missing"}
    assert rules([*GOOD, changes(5, 2, 5, "a2", "x")]) == {"missing"}
    again = [*GOOD, barrier(7, 0, "a1"), changes(7, 1, 3, "a1", "x")]
    assert rules(again) == {"missing"}
    assert rules(again, whole=False) == set()


def test_what_a_fenced_primary_wrote_is_not_believed() -> None:
    told = [judged("east", GOOD, whole=True)]

    def did(id: str, kind: str, row: dict[str, int | str] | None = None) -> Operation:
        return Operation(id, "c", "a1", "east", kind, "any-1", 0, 1, OK, 0, None, row)

    good = [did("<ew0.1>", "put"), did("<ew0.9>", READ, {"who": "<ew0.3>"})]
    assert not list(believed(good, told))
    assert list(believed([did("<ew0.2>", "put")], told))
    assert list(believed([did("<ew0.9>", READ, {"who": "<ew0.2>"})], told))
