"""Each rule of the checker of histories holds for a good one, and is seen to fail for a bad one."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.faults import history
from tests.cluster.faults.checker import Promise, Row, all_of
from tests.cluster.faults.history import FAILED, OK, READ, UNKNOWN, Operation

Made = list[Operation]
Final = dict[str, dict[str, Row]]
EAST = frozenset({"east"})


class Told:
    """Makes operations one after another; each begins when the one before has ended."""

    def __init__(self) -> None:
        self.made: Made = []
        self._clock = itertools.count()

    def add(
        self,
        kind: str,
        key: str,
        value: int = 0,
        *,
        node: str = "a1",
        dc: str = "east",
        answer: str = OK,
        reply: int | None = None,
        row: Row = None,
        during: bool = False,
        linear: bool = False,
        expected: int = 0,
    ) -> str:
        """`during`: it began with the one before and ended after it."""
        start = self.made[-1].start if during else float(next(self._clock))
        id = f"op{len(self.made)}"
        kept = None if row is None else dict(row)
        end = float(next(self._clock))
        made = Operation(id, "c", node, dc, kind, key, start, end, answer, value, reply, kept)
        self.made.append(dataclasses.replace(made, linear=linear, expected=expected))
        return id

    def read(
        self, key: str, row: Row, *, node: str = "a1", during: bool = False, linear: bool = False
    ) -> None:
        self.add(READ, key, row=row, node=node, during=during, linear=linear)

    def swap(
        self, expected: int, value: int, *, answer: str = OK, done: bool = True,
        during: bool = False,
    ) -> None:  # fmt: skip
        self.add(
            "cas", "cas-e0", value, expected=expected, answer=answer, reply=int(done),
            during=during, node="client ea0",
        )  # fmt: skip


def found(told: Told, final: Final | None = None, promise: Promise | None = None) -> set[str]:
    return {one.rule for one in all_of(told.made, final or {}, promise or Promise())}


def both(rows: dict[str, Row]) -> Final:
    return {"a1": rows, "b1": rows}


def test_a_history_without_a_fault_passes() -> None:
    told = Told()
    told.add("incr", "sum-1", 2, reply=2)
    told.add("incr", "sum-1", 3, answer=UNKNOWN)
    told.add("incr", "sum-1", 50, answer=FAILED)
    told.read("sum-1", {"count": 2})
    # Another node is behind, which is its right.
    told.read("sum-1", {"count": 0}, node="a2")
    told.read("sum-1", {"count": 5})
    told.add("incr", "sum-1", 1, reply=6)
    told.add("incr", "net-1", -4, reply=-4)
    told.add("high", "max-1", 7)
    told.add("high", "max-1", 5)
    told.read("max-1", {"high": 7})
    first = told.add("set", "own-c-1", 1)
    told.read("own-c-1", {"last": 1, "who": first})
    told.add("delete", "own-c-1", 2)
    told.read("own-c-1", None)
    told.read("own-c-1", {"last": 1, "who": first}, node="a2")
    told.add("set", "own-c-1", 3, answer=UNKNOWN)
    told.add("flags", "flag-c-1", 6)
    told.add("set", "ttl-c-1", 1)
    # A client continues although it does not know; what comes late comes not behind that.
    told.add("set", "own-n-1", 1, node="client n")
    told.add("patch", "own-n-1", 2, node="client n", answer=UNKNOWN)
    told.read("own-n-1", {"last": 1}, node="client n")
    told.add("patch", "own-n-1", 3, node="client n", answer=UNKNOWN)
    told.read("own-n-1", {"last": 3}, node="client n", linear=True)
    told.read("own-n-1", {"last": 2}, node="a2")
    told.swap(0, 1)
    told.swap(0, 2, done=False)
    told.swap(1, 3, answer=UNKNOWN)
    told.swap(3, 4)
    told.swap(1, 5, answer=UNKNOWN)
    last = told.add("set", "any-1", 1)
    unknown: Row = {"last": 3, "who": ""}
    for own in (None, unknown):
        rows: dict[str, Row] = {
            "sum-1": {"count": 6},
            "net-1": {"net": -4},
            "max-1": {"high": 7},
            "flag-c-1": {"marks": 6},
            "any-1": {"who": last},
            "own-n-1": {"last": 3},
            "cas-e0": {"last": 4},
        }
        if own is not None:
            rows["own-c-1"] = own
        assert found(told, both(rows)) == set()


def refused_is_seen(told: Told) -> Final:
    id = told.add("set", "any-1", 1, answer=FAILED)
    told.read("any-1", {"who": id})
    return {}


def refused_is_there_in_the_end(told: Told) -> Final:
    id = told.add("set", "any-1", 1, answer=FAILED)
    return both({"any-1": {"who": id}})


def nobody_wrote_it(told: Told) -> Final:
    told.read("any-1", {"who": "op77"})
    return {}


def a_sum_falls(told: Told) -> Final:
    told.add("incr", "sum-1", 5, answer=UNKNOWN)
    told.read("sum-1", {"count": 5})
    told.read("sum-1", {"count": 4})
    return {}


def a_sum_is_less_than_its_writer_was_told(told: Told) -> Final:
    told.add("incr", "sum-1", 5, reply=5)
    told.read("sum-1", {"count": 4})
    return {}


def a_row_of_a_sum_goes(told: Told) -> Final:
    told.add("incr", "sum-1", 5, reply=5)
    told.read("sum-1", None)
    return {}


def a_max_falls(told: Told) -> Final:
    told.add("high", "max-1", 3)
    told.read("max-1", {"high": 2})
    return {}


def an_old_value_comes_back(told: Told) -> Final:
    told.add("set", "own-c-1", 1)
    told.add("put", "own-c-1", 2)
    told.read("own-c-1", {"last": 2}, node="a2")
    told.read("own-c-1", {"last": 1}, node="a2")
    return {}


def a_writer_does_not_see_its_own_write(told: Told) -> Final:
    told.add("set", "own-c-1", 1)
    told.read("own-c-1", None)
    return {}


def a_deleted_row_comes_back(told: Told) -> Final:
    told.add("set", "own-c-1", 1)
    told.add("delete", "own-c-1", 2)
    told.read("own-c-1", None)
    told.read("own-c-1", {"last": 1})
    return {}


def a_refused_value_is_seen(told: Told) -> Final:
    told.add("set", "own-c-1", 1)
    told.add("put", "own-c-1", 2, answer=FAILED)
    told.read("own-c-1", {"last": 2})
    return {}


def flags_come_back(told: Told) -> Final:
    told.add("flags", "flag-c-1", 1)
    told.add("flags", "flag-c-1", 2)
    told.read("flag-c-1", {"marks": 1})
    return {}


def an_acknowledged_write_is_lost(told: Told) -> Final:
    told.add("set", "own-c-1", 1)
    told.add("put", "own-c-1", 2)
    return both({"own-c-1": {"last": 1}})


def an_acknowledged_delete_is_lost(told: Told) -> Final:
    told.add("set", "own-c-1", 1)
    told.add("delete", "own-c-1", 2)
    return both({"own-c-1": {"last": 1}})


def an_acknowledged_max_is_lost(told: Told) -> Final:
    told.add("high", "max-1", 3)
    told.add("high", "max-1", 8)
    return both({"max-1": {"high": 3}})


def a_max_of_nobody(told: Told) -> Final:
    told.add("high", "max-1", 3)
    return both({"max-1": {"high": 4}})


def an_increment_is_lost(told: Told) -> Final:
    told.add("incr", "sum-1", 5, reply=5)
    told.add("incr", "sum-1", 2, reply=7)
    return both({"sum-1": {"count": 5}})


def an_increment_counts_twice(told: Told) -> Final:
    told.add("incr", "sum-1", 5, reply=5)
    return both({"sum-1": {"count": 10}})


def a_refused_increment_counts(told: Told) -> Final:
    told.add("incr", "net-1", -5, answer=FAILED)
    return both({"net-1": {"net": -5}})


def more_is_seen_than_was_asked_for(told: Told) -> Final:
    told.add("incr", "sum-1", 5, answer=UNKNOWN)
    told.read("sum-1", {"count": 6})
    told.add("incr", "sum-1", 5, answer=UNKNOWN)
    return {}


def an_increment_is_answered_from_another_history(told: Told) -> Final:
    told.add("incr", "sum-1", 5, reply=5, node="a1")
    told.add("incr", "sum-1", 5, reply=5, node="a2")
    return both({"sum-1": {"count": 10}})


def a_brief_row_stays(told: Told) -> Final:
    id = told.add("set", "ttl-c-1", 1)
    return both({"ttl-c-1": {"last": 1, "who": id}})


def nodes_differ(told: Told) -> Final:
    one, two = told.add("set", "any-1", 1), told.add("set", "any-1", 2)
    return {"a1": {"any-1": {"who": one}}, "b1": {"any-1": {"who": two}}}


def a_row_is_at_one_node_only(told: Told) -> Final:
    id = told.add("set", "any-1", 1)
    return {"a1": {"any-1": {"who": id}}, "a2": {"any-1": {"who": id}}, "b1": {}}


def a_late_write_comes_behind_a_later_one(told: Told) -> Final:
    told.add("set", "own-c-1", 1, answer=UNKNOWN)
    told.add("set", "own-c-1", 2)
    return both({"own-c-1": {"last": 1}})


def a_client_goes_back_at_another_node(told: Told) -> Final:
    told.add("set", "own-c-1", 1, node="client c")
    told.add("set", "own-c-1", 2, answer=UNKNOWN, node="client c")
    told.read("own-c-1", {"last": 2}, node="client c")
    told.read("own-c-1", {"last": 1}, node="client c")
    return {}


def memory_goes_back(told: Told) -> Final:
    told.add("set", "own-c-1", 1)
    told.add("set", "own-c-1", 2)
    told.read("own-c-1", {"last": 2}, node="memory 7 of a1")
    told.read("own-c-1", {"last": 1}, node="memory 7 of a1")
    return {}


def a_linearizable_read_lacks_a_write(told: Told) -> Final:
    told.add("set", "own-c-1", 1)
    told.read("own-c-1", None, node="client d", linear=True)
    return {}


def a_linearizable_read_lacks_a_read(told: Told) -> Final:
    told.add("set", "own-c-1", 1, answer=UNKNOWN)
    told.read("own-c-1", {"last": 1}, node="client d", linear=True)
    told.read("own-c-1", None, node="client e", linear=True)
    return {}


def a_linearizable_read_lacks_an_increment(told: Told) -> Final:
    told.add("incr", "sum-1", 5, reply=5)
    told.read("sum-1", {"count": 4}, node="client d", linear=True)
    return {}


def two_compare_and_sets_go_by_one_number(told: Told) -> Final:
    told.swap(0, 1)
    told.swap(0, 2)
    return both({"cas-e0": {"last": 2}})


def a_compare_and_set_is_lost(told: Told) -> Final:
    told.swap(0, 1)
    told.swap(1, 2)
    return both({"cas-e0": {"last": 1}})


def a_compare_and_set_comes_late(told: Told) -> Final:
    told.swap(1, 2, answer=UNKNOWN)
    told.swap(0, 1)
    told.swap(2, 3)
    told.made[0] = dataclasses.replace(told.made[0], start=90, end=91)
    return both({"cas-e0": {"last": 3}})


def a_compare_and_set_is_refused_without_reason(told: Told) -> Final:
    told.swap(0, 1)
    told.swap(1, 2, done=False)
    return both({"cas-e0": {"last": 1}})


def a_compare_and_set_of_nobody(told: Told) -> Final:
    told.swap(0, 1, answer=UNKNOWN)
    return both({"cas-e0": {"last": 9}})


BAD: dict[Callable[[Told], Final], str] = {
    refused_is_seen: "unseen",
    refused_is_there_in_the_end: "unseen",
    nobody_wrote_it: "unseen",
    a_sum_falls: "backwards",
    a_sum_is_less_than_its_writer_was_told: "backwards",
    a_row_of_a_sum_goes: "backwards",
    a_max_falls: "backwards",
    an_old_value_comes_back: "backwards",
    a_writer_does_not_see_its_own_write: "backwards",
    a_deleted_row_comes_back: "backwards",
    a_refused_value_is_seen: "backwards",
    flags_come_back: "backwards",
    an_acknowledged_write_is_lost: "lost",
    an_acknowledged_delete_is_lost: "lost",
    an_acknowledged_max_is_lost: "lost",
    a_max_of_nobody: "max",
    an_increment_is_lost: "sums",
    an_increment_counts_twice: "sums",
    a_refused_increment_counts: "sums",
    more_is_seen_than_was_asked_for: "sums",
    an_increment_is_answered_from_another_history: "rising",
    a_brief_row_stays: "gone",
    a_late_write_comes_behind_a_later_one: "lost",
    a_client_goes_back_at_another_node: "backwards",
    memory_goes_back: "backwards",
    a_linearizable_read_lacks_a_write: "linear",
    a_linearizable_read_lacks_a_read: "linear",
    a_linearizable_read_lacks_an_increment: "linear",
    two_compare_and_sets_go_by_one_number: "chain",
    a_compare_and_set_is_lost: "chain",
    a_compare_and_set_comes_late: "chain",
    a_compare_and_set_is_refused_without_reason: "chain",
    a_compare_and_set_of_nobody: "chain",
    nodes_differ: "equal",
    a_row_is_at_one_node_only: "equal",
}


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.__name__)
def test_a_fault_is_found_by_its_rule_and_no_other(bad: Callable[[Told], Final]) -> None:
    told = Told()
    final = bad(told)
    assert found(told, final) == {BAD[bad]}


def test_looks_at_the_same_time_may_be_in_any_order() -> None:
    told = Told()
    told.add("set", "own-c-1", 1)
    told.add("put", "own-c-1", 2, node="a2")
    told.read("own-c-1", {"last": 2})
    told.read("own-c-1", {"last": 1}, during=True)
    told.add("incr", "sum-1", 1, answer=UNKNOWN)
    told.read("sum-1", {"count": 1})
    told.read("sum-1", {"count": 0}, during=True)
    assert found(told) == set()


def test_where_writes_may_be_lost_their_loss_is_no_fault() -> None:
    told = Told()
    told.add("set", "own-c-1", 1)
    told.add("incr", "sum-1", 5, reply=5)
    told.add("high", "max-1", 5)
    assert found(told, both({}), Promise()) == {"lost", "sums"}
    assert found(told, both({}), Promise(lasting=False)) == set()


def test_where_engines_lose_entries_answers_may_be_of_another_history() -> None:
    told = Told()
    told.swap(0, 1)
    told.swap(0, 2)
    told.add("set", "own-c-1", 1)
    told.read("own-c-1", None, node="client d", linear=True)
    final = both({"cas-e0": {"last": 2}, "own-c-1": {"last": 1}})
    assert found(told, final) == {"chain", "linear"}
    assert found(told, final, Promise(lost=EAST)) == set()


def test_an_increment_that_found_no_row_may_find_one_in_another_history() -> None:
    told = Told()
    told.add("incr", "sum-0", 3, reply=3)
    told.add("incr", "sum-0", 5, answer=FAILED)
    told.made[-1] = dataclasses.replace(told.made[-1], error="no row")
    told.read("sum-0", {"count": 8})
    final = both({"sum-0": {"count": 8}})
    assert found(told, final) == {"sums"}
    assert found(told, final, Promise(lost=EAST)) == set()
    # And none, when it is put back once more.
    told.read("sum-0", {"count": 3})
    assert found(told, both({"sum-0": {"count": 3}}), Promise(lost=EAST)) == set()
    told.read("sum-0", {"count": 2})
    assert found(told, None, Promise(lost=EAST)) == {"backwards"}


def test_sums_of_another_data_centre_may_go_back_where_that_loses_them() -> None:
    told = Told()
    told.add("incr", "sum-1", 5, reply=5, dc="west", node="b1")
    told.read("sum-1", {"count": 5})
    told.read("sum-1", None)
    # Nodes put back what east loses before they are read, or report that they have not.
    assert found(told) == found(told, None, Promise(lost=EAST)) == {"backwards"}
    assert found(told, None, Promise(lost=frozenset({"west"}))) == set()


def test_rows_with_one_writer_in_another_data_centre_stay_as_they_were_seen() -> None:
    told = Told()
    told.add("set", "own-c-1", 1, dc="west", node="b1")
    told.read("own-c-1", {"last": 1})
    told.read("own-c-1", None)
    for lost in (EAST, frozenset({"west"})):
        assert found(told, None, Promise(lost=lost)) == {"backwards"}


def test_a_data_centre_whose_engine_loses_nothing_keeps_its_answers() -> None:
    told = Told()
    told.swap(0, 1)
    told.swap(0, 2)
    told.add("set", "own-c-1", 1)
    told.read("own-c-1", None, node="client d", linear=True)
    told.add("incr", "sum-1", 5, reply=5)
    told.add("incr", "sum-1", 5, reply=5)
    final = both({"cas-e0": {"last": 2}, "own-c-1": {"last": 1}, "sum-1": {"count": 10}})
    rules = {"chain", "linear", "rising"}
    assert found(told, final) == found(told, final, Promise(lost=frozenset({"west"}))) == rules
    assert found(told, final, Promise(lost=EAST)) == set()


def test_flags_that_are_put_back_are_set_beside_later_ones() -> None:
    told = Told()
    for bits in (1, 2, 4):
        told.add("flags", "flag-c-1", bits)
    for bits, rules in ((4, set[str]()), (6, set[str]()), (2, {"lost"}), (12, {"lost"})):
        final = both({"flag-c-1": {"marks": bits}})
        assert found(told, final, Promise(lost=EAST)) == rules
    assert found(told, both({"flag-c-1": {"marks": 6}})) == {"lost"}


def test_another_data_centre_shows_flags_that_were_put_back_in_time() -> None:
    for bits, rules in ((6, set[str]()), (12, {"stale", "backwards"})):
        told = Told()
        told.add("flags", "flag-c-1", 2)
        told.add("flags", "flag-c-1", 4)
        told.add(READ, "flag-c-1", row={"marks": bits}, node="b1", dc="west")
        assert found(told, None, Promise(lost=EAST, staleness=0.5)) == rules


def test_only_a_node_that_said_so_may_go_back() -> None:
    told = Told()
    told.add("set", "own-c-1", 1)
    told.read("own-c-1", None, node="memory 7 of a1")
    told.read("own-c-1", {"last": 1}, node="memory 7 of a1")
    told.read("own-c-1", None, node="memory 7 of a1")
    for excused, rules in (("a2", {"backwards"}), ("a1", set[str]())):
        promise = Promise(lost=EAST, excused=frozenset({excused}))
        assert found(told, None, promise) == rules


def test_a_read_that_is_too_old_is_found_where_that_is_promised() -> None:
    told = Told()
    told.add("set", "own-c-1", 1)
    told.read("own-c-1", None, node="a2")
    told.add("put", "own-c-1", 2)
    told.read("own-c-1", {"last": 1}, node="a2")
    assert found(told) == set()
    assert found(told, None, Promise(staleness=3.0)) == set()
    assert found(told, None, Promise(staleness=0.5)) == {"stale"}


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    told = Told()
    told.add("incr", "sum-1", 5, reply=5)
    told.read("sum-1", {"count": 5, "who": "op0"})
    told.read("own-c-1", None)
    recorder = history.Recorder(tmp_path / "history.jsonl")
    recorder.note("kill a1", 0.5)
    for one in told.made:
        recorder.add(one)
    recorder.close()
    assert history.read(tmp_path / "history.jsonl") == told.made
