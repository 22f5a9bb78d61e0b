"""Comparison of two nodes' rows: what one lacks is found, what is on its way is not."""

from __future__ import annotations

from typing import Annotated

import pytest

from interlock import Row, Size
from interlock._core import StateRules
from interlock.cluster.comparison import differences
from interlock.cluster.rules import state_rules
from interlock.table.kinds import F64, U8, U32
from interlock.table.merge import Flags, Max, Sum
from tests.cluster.naive.state import TableRules

NOW = 1_800_000_000_000


class Mixed(Row):
    plain: U32
    total: Annotated[U32, Sum] = 0
    most: Annotated[F64, Max] = 0.0
    bits: Annotated[U8, Flags] = 0
    on: bool = False
    text: Annotated[str, Size(8)] = ""
    raw: Annotated[bytes, Size(4)] = b""


NAIVE = TableRules.of(Mixed)
RULES = state_rules(Mixed)
VALUES = (1, 2, 3.0, 4, True, "t", b"r")
AT = (NOW - 1000) << 16


def made(stamp: int = AT, dc: str = "a", values: tuple[object, ...] = VALUES) -> bytes:
    return NAIVE.set(None, values, (stamp, dc), NOW)


def found(*states: dict[bytes, bytes]) -> list[tuple[bytes, dict[str, tuple[object, object]]]]:
    """The differences of two nodes, each before and after: first, second, first, second."""
    first, second, later, later_second = states
    return [
        (one.key, one.columns)
        for one in differences(RULES, (first, second), (later, later_second), NOW)
    ]


def test_states_are_shown_checked_and_joined_as_the_naive_model_does() -> None:
    again = StateRules(RULES.fingerprint)
    assert (again.fingerprint, again.age_ms) == (NAIVE.fingerprint, NAIVE.age_ms)
    state = NAIVE.set(None, VALUES, (AT, "a"), NOW, NOW + 500)
    assert again.shown(state, NOW) == (VALUES, NOW + 500, NAIVE.forgettable_at(state), NOW - 1000)
    assert again.shown(state, NOW + 500)[0] is None
    assert again.join(state, state) is state
    for wrong in ("", "a: U8", "a: U8; last", "a: U8; last, last; 1 ms", "a: U8; other; 1 ms",
                  "a: U8; last; 1 s", "a: U8; last; x ms", "a: nothing; last; 1 ms"):  # fmt: skip
        with pytest.raises(ValueError, match=r"."):
            StateRules(wrong)
    for bad in (b"", b"\x90", state[:-1], state + b"\0", bytes(len(state))):
        with pytest.raises(ValueError, match="not the state of a row"):
            RULES.check(bad)
        with pytest.raises(ValueError, match="not the state of a row"):
            RULES.join(state, bad)
        # Whatever it shows, it shows it.
        RULES.shown(bad, NOW)


def test_a_row_missing_on_one_side_is_a_difference() -> None:
    older, newer = made(), made(AT + 1, values=(9, *VALUES[1:]))
    both = RULES.join(older, newer)
    assert found({b"k": older}, {b"k": both}, {b"k": older}, {b"k": both}) == [
        (b"k", {"plain": (1, 9)})
    ]
    assert found({b"k": both}, {}, {b"k": both}, {})[0][1]["plain"] == (9, "absent")
    assert found({}, {b"k": both}, {}, {b"k": both})[0][1]["plain"] == ("absent", 9)


def test_a_row_written_during_the_comparison_is_not_a_difference() -> None:
    older, newer = made(), made(AT + 1, values=(9, *VALUES[1:]))
    both = RULES.join(older, newer)
    assert found({b"k": older}, {b"k": both}, {b"k": both}, {b"k": both}) == []
    # It has changed again, and has what the other had.
    newest = RULES.join(both, made(AT + 2, values=(10, *VALUES[1:])))
    assert found({b"k": older}, {b"k": both}, {b"k": both}, {b"k": newest}) == []
    # It was alike before.
    assert found({b"k": both}, {b"k": both}, {b"k": older}, {b"k": both}) == []


def test_a_forgotten_row_equals_a_deleted_row() -> None:
    gone = NAIVE.deleted((AT + 5, "a"))
    assert found({b"k": gone}, {}, {b"k": gone}, {}) == []
    assert found({}, {b"k": gone}, {}, {b"k": gone}) == []
    ended = NAIVE.set(None, VALUES, (AT, "a"), NOW - 1000, NOW - 500)
    assert found({b"k": ended}, {}, {b"k": ended}, {}) == []
    # But who has the row yet lacks the delete.
    there = made()
    assert found({b"k": gone}, {b"k": there}, {b"k": gone}, {b"k": there})[0][1]["plain"] == (
        "absent",
        1,
    )


def test_different_expiries_and_different_stamps_are_distinguished() -> None:
    lives = NAIVE.set(None, VALUES, (AT, "a"), NOW, NOW + 5000)
    longer = RULES.join(lives, NAIVE.expiring(NAIVE.cells(lives), (AT + 1, "a"), NOW + 9000))
    assert found({b"k": lives}, {b"k": longer}, {b"k": lives}, {b"k": longer}) == [
        (b"k", {"_expires": (NOW + 5000, NOW + 9000)})
    ]
    one, other = made(AT), made(AT + 1)
    assert found({b"k": one}, {b"k": other}, {b"k": one}, {b"k": other}) == [(b"k", {})]
