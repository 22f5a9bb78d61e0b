"""States: the laws of joining, what is forgotten and when, numbers of any size, and size."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import random
from typing import Annotated, Any

import pytest

from interlock import F32, I8, U8, U16, U32, U64, Flags, Max, Row, Size, Sum
from tests import seeds
from tests.cluster.naive.stamps import HybridClock
from tests.cluster.naive.state import TableRules
from tests.cluster.state.histories import Centre, History
from tests.cluster.state.rows import OPERATIONS, Merged, Time
from tests.cluster.state.test_merge import AllRow, operation
from tests.hub.tables.tables import Presence

NOW = 1_700_000_000_000
AGE_MS = 4000


def some_states(chance: random.Random, count: int = 25) -> tuple[TableRules, list[bytes]]:
    """States of a key in three data centres that hear of each other by chance."""
    history = History(AllRow, (0, 300, -40))
    found = []
    for _ in range(count):
        history.time.ms += chance.choice([0, 1, 40])
        centre = chance.choice(history.centres)
        for number in range(len(history.deltas)):
            if chance.random() < 0.2:
                centre.apply(number)
        change = centre.do(operation(chance))
        if change is not None:
            found.append(history.deltas[change])
        if centre.state is not None:
            found.append(centre.state)
    return history.centres[0].rules, sorted(set(found))


def test_joining_is_associative_commutative_and_idempotent() -> None:
    seed = seeds.seed()
    for number in range(30 * OPERATIONS):
        chance = random.Random(seed + number)
        rules, states = some_states(chance)
        for one, other in itertools.product(chance.sample(states, min(12, len(states))), repeat=2):
            together = rules.join(one, other)
            assert rules.join(other, one) == together
            assert rules.join(together, one) is rules.join(together, other) is together
            assert rules.join(one, bytes(bytearray(one))) is one
            third = chance.choice(states)
            assert rules.join(together, third) == rules.join(one, rules.join(other, third))
        whole = functools.reduce(rules.join, states)
        for _ in range(3):
            chance.shuffle(states)
            assert functools.reduce(rules.join, states) == whole


@pytest.mark.parametrize("ahead", [(0, 0), (0, 0, 0), (0, 150, -150)], ids=str)
def test_nodes_that_forgot_a_delete_converge_with_nodes_that_did_not(
    ahead: tuple[int, ...],
) -> None:
    """Each change is everywhere within less than half of the age; each forgets when it may."""
    seed = seeds.seed()
    forgotten = 0
    for number in range(60 * OPERATIONS):
        chance = random.Random(seed + number)
        history = History(AllRow, ahead, age=AGE_MS / 1000)
        # One never forgets.
        centres, keeper = history.centres, Centre(history, "keeper", 0)
        under_way: list[tuple[int, int, int]] = []
        slow = max(map(abs, ahead)) * 2
        for _ in range(60):
            history.time.ms += chance.choice([1, 20, 200, 600, AGE_MS])
            forgotten += arrive(history, under_way, [*centres, keeper], chance)
            centre = chance.choice(centres)
            change = centre.do(operation(chance))
            history.check(centre)
            if change is not None:
                for at, other in enumerate([*centres, keeper]):
                    for _ in range(chance.choice([1, 1, 2]) if other is not centre else 0):
                        due = history.time.ms + chance.randrange(AGE_MS // 2 - slow)
                        heapq.heappush(under_way, (due, at, change))
        history.time.ms += AGE_MS // 2
        forgotten += arrive(history, under_way, [*centres, keeper], chance)
        for centre in centres:
            history.check(centre)
            assert centre.shown() == keeper.shown() or max(ahead), seed + number
    assert forgotten > 100


def arrive(
    history: History,
    under_way: list[tuple[int, int, int]],
    centres: list[Centre],
    chance: random.Random,
) -> int:
    """Bring what is due, and have those who may forget do so; return how often one did."""
    forgotten = 0
    now = history.time.ms
    while under_way and under_way[0][0] <= now:
        due, at, number = heapq.heappop(under_way)
        history.time.ms = due
        forgotten += sum(forget(centre) for centre in centres[:-1] if chance.random() < 0.5)
        centres[at].apply(number)
    history.time.ms = now
    return forgotten + sum(forget(centre) for centre in centres[:-1] if chance.random() < 0.7)


def forget(centre: Centre) -> bool:
    if centre.state is None or not 0 < centre.rules.forgettable_at(centre.state) <= centre.now:
        return False
    assert centre.shown() is None
    centre.state = None
    return True


class Counter(Row):
    n: Annotated[U32, Sum]


def test_sums_are_exact_over_terms_of_primaries() -> None:
    """A new primary counts on its own, and puts what old ones had counted together."""
    chance = random.Random(seeds.seed())
    for _ in range(30 * OPERATIONS):
        time, rules = Time(), TableRules.of(Counter)
        clocks = {dc: time.clock(dc) for dc in ("east", "west")}
        states: dict[str, bytes] = {}
        deltas, total, column = [], 0, rules.columns[0]
        for token in range(1, 80):
            time.ms += 1
            dc = chance.choice(["east", "west"])
            clock, state = clocks[dc], states.get(dc)
            if chance.random() < 0.2:
                clock.begin_term(token)
            by = chance.randrange(100)
            cells = None if state is None else rules.cells(state)
            if cells is None:
                delta = rules.created_by(None, column, by, clock.next(), time.ms, 0)
            else:
                shown = column.value(cells)
                delta = rules.raised(cells, column, shown + by, clock.next())
            total += by
            deltas.append(delta)
            states[dc] = rules.join(state, delta)
            if chance.random() < 0.3:
                for here, there in (("east", "west"), ("west", "east")):
                    if there in states:
                        states[here] = rules.join(states.get(here), states[there])
        for _ in range(3):
            chance.shuffle(deltas)
            whole = functools.reduce(rules.join, deltas)
            assert rules.values(whole, time.ms) == (total,)
            assert functools.reduce(rules.join, states.values(), whole) == whole


class Wide(Row):
    n: Annotated[U64, Sum]
    score: Annotated[float, Sum]
    narrow: Annotated[F32, Sum]
    peak: Annotated[float, Max]


def test_numbers_of_any_size_are_summed() -> None:
    rules, east, west = TableRules.of(Wide), HybridClock("east"), HybridClock("west")
    number, score, narrow, peak = rules.columns
    state = rules.set(None, (2**64 - 1, 1e16, 1.0, -1.0), east.next(), NOW)
    for _ in range(3):
        # Set to nothing and raised again: what is counted inside is beyond 64 bits by then.
        cells = rules.cells(state)
        state = rules.join(state, rules.patched(cells, [(number, 0)], east.next()))
        delta = rules.raised(rules.cells(state), number, 2**64 - 1, east.next())
        state = rules.join(state, delta)
    assert rules.values(state, NOW) == (2**64 - 1, 1e16, 1.0, -1.0)
    cells = rules.cells(state)
    deltas = [
        rules.raised(cells, score, 1e16 + 2, east.next()),
        rules.raised(cells, score, 1e16 + 4, west.next()),
        rules.raised(cells, narrow, 3e38, east.next()),
        rules.raised(cells, narrow, 3e38, west.next()),
        rules.raised(cells, number, 2**64 - 1, west.next()),
        rules.patched(cells, [(peak, math.nan)], west.next()),
    ]
    for delta in deltas:
        state = rules.join(state, delta)
    shown = rules.values(state, NOW)
    assert shown == (2**64 - 1, 1e16 + 6, pytest.approx(3.4028234663852886e38), -1.0)
    # A float is what it was set to, however large what was added before.
    state = rules.join(state, rules.patched(rules.cells(state), [(score, 0.1)], west.next()))
    assert rules.values(state, NOW) == (shown[0], 0.1, shown[2], -1.0)


def test_a_sum_beyond_the_range_is_exact_again_after_subtracting() -> None:
    class Small(Row):
        n: Annotated[I8, Sum]

    rules, east, west = TableRules.of(Small), HybridClock("east"), HybridClock("west")
    (column,) = rules.columns
    state = rules.set(None, (100,), east.next(), NOW)
    both = [rules.raised(rules.cells(state), column, 120, clock.next()) for clock in (east, west)]
    state = functools.reduce(rules.join, both, state)
    assert rules.values(state, NOW) == (127,), "140, which it cannot hold"
    state = rules.join(state, rules.raised(rules.cells(state), column, 107, east.next()))
    assert rules.values(state, NOW) == (120,)


def test_a_row_appears_completely_once_its_creation_has_arrived() -> None:
    rules, clock = TableRules.of(Merged), HybridClock("east")
    values = ("x", 1, 2, 3, 0.5, 4, 0.25, 5)
    made = rules.set(None, values, clock.next(), NOW)
    deltas = [rules.patched(rules.cells(made), [(rules.columns[0], "y")], clock.next())]
    deltas.append(rules.raised(rules.cells(made), rules.columns[2], 9, clock.next()))
    deltas.append(rules.expiring(rules.cells(made), clock.next(), NOW + 50))
    parts = functools.reduce(rules.join, deltas[:2])
    assert rules.row(parts, NOW) is None and not rules.is_tombstone(parts)
    whole = rules.join(parts, made)
    row = Merged(name="y", state=1, unread=9, balance=3, score=0.5, seen=4, peak=0.25, devices=5)
    assert rules.row(whole, NOW) == row
    whole = rules.join(whole, deltas[2])
    assert (rules.row(whole, NOW + 49), rules.row(whole, NOW + 50)) == (row, None)
    assert rules.expires_at(whole) == NOW + 50
    assert rules.newest(whole) == rules.newest(deltas[2]) > rules.newest(made)


def test_a_row_that_expired_before_it_was_set_can_be_set_again() -> None:
    """Also where the clock of the stamps is ahead of the time by which the row has expired."""
    rules, clock = TableRules.of(Counter), HybridClock("east", lambda: NOW)
    clock.saw(((NOW + 10_000) << 16, "west"))
    state = rules.set(None, (7,), clock.next(), NOW)
    state = rules.join(state, rules.deleted(clock.next()))
    for number in range(5):
        state = rules.join(state, rules.set(state, (number,), clock.next(), NOW, NOW))
        assert rules.values(state, NOW) is None
        state = rules.join(state, rules.set(state, (number,), clock.next(), NOW))
        assert rules.values(state, NOW) == (number,)
        state = rules.join(state, rules.expiring(rules.cells(state), clock.next(), NOW))


def test_a_state_of_one_data_centre_is_small() -> None:
    rules, clock = TableRules.of(Presence), HybridClock("east")
    values = (666, True, 3, -1, 2**40, 1.5, 0.5, "12345678", b"abcd")
    state = rules.set(None, values, clock.next(), NOW, NOW + 1000)
    assert len(state) <= 88, "52 bytes of values, a stamp, and a byte or two for each column"
    assert len(rules.deleted(clock.next())) <= 40
    raised = rules.raised(rules.cells(state), rules.columns[2], 4, clock.next())
    assert len(rules.join(state, raised)) <= len(state) + 14
    again = rules.join(state, rules.set(state, values, clock.next(), NOW, NOW + 2000))
    assert len(again) <= len(state) + 40


def test_rules_describe_the_schema_nodes_must_share() -> None:
    rules = TableRules.of(Merged)
    assert rules.fingerprint == (
        "name: str[8], state: U8, unread: U32, balance: I8, score: F64, seen: U64, peak: F32, "
        "devices: U16; last, last, sum, sum, sum, max, max, flags; 604800000 ms"
    )
    assert TableRules.of(Merged, tombstone_age=60.0).fingerprint != rules.fingerprint
    with pytest.raises(ValueError, match=r"tombstone_age is 0; allowed: more than 0 seconds"):
        TableRules.of(Merged, tombstone_age=0)


class Wrong(Row):
    name: Annotated[str, Size(8), Sum] = ""


class Twice(Row):
    n: Annotated[U8, Sum, Max] = 0


class Signed(Row):
    n: Annotated[I8, Flags] = 0


class Instance(Row):
    n: Annotated[U16, Flags()] = 0
    level: U8 = 0


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (Wrong, r"Wrong.name is str, and marked Sum, which is for U8 to U64, I8 to I64, F32, F64"),
        (Twice, r"Twice.n has several merge kinds: Sum, Max; allowed: one"),
        (Signed, r"Signed.n is I8, and marked Flags, which is for U8, U16, U32, U64"),
        (int, r"the row is <class 'int'>; allowed: a class made from interlock.Row"),
    ],
)
def test_an_invalid_column_marker_is_refused(row: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        TableRules.of(row)


def test_a_marker_may_be_an_instance() -> None:
    assert [column.merge for column in TableRules.of(Instance).columns] == ["flags", "last"]
