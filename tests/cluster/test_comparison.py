"""Comparison of two nodes' rows: what one lacks is found, what is on its way is not."""

from __future__ import annotations

from typing import Annotated

import pytest

from interlock import Row, Size
from interlock.cluster.comparison import differences, rules_by
from interlock.cluster.state import TableRules
from interlock.table.merge import Flags, Max, Sum
from interlock.table.row import F64, U8, U32

NOW = 1_800_000_000_000


class Mixed(Row):
    plain: U32
    total: Annotated[U32, Sum] = 0
    most: Annotated[F64, Max] = 0.0
    bits: Annotated[U8, Flags] = 0
    on: bool = False
    text: Annotated[str, Size(8)] = ""
    raw: Annotated[bytes, Size(4)] = b""


RULES = TableRules.of(Mixed)
VALUES = (1, 2, 3.0, 4, True, "t", b"r")
AT = (NOW - 1000) << 16


def made(stamp: int = AT, dc: str = "a", values: tuple[object, ...] = VALUES) -> bytes:
    return RULES.set(None, values, (stamp, dc), NOW)


def found(*states: dict[bytes, bytes]) -> list[tuple[bytes, dict[str, tuple[object, object]]]]:
    """The differences of two nodes, each before and after: first, second, first, second."""
    first, second, later, later_second = states
    return [
        (one.key, one.columns)
        for one in differences(RULES, (first, second), (later, later_second), NOW)
    ]


def test_rules_are_known_by_what_a_node_says_of_them() -> None:
    again = rules_by(RULES.fingerprint)
    assert again.fingerprint == RULES.fingerprint
    assert again.values(made(), NOW) == VALUES
    for wrong in ("", "a: U8", "a: U8; last", "a: U8; last, last; 1 ms", "a: U8; other; 1 ms",
                  "a: U8; last; 1 s", "a: U8; last; x ms", "a: nothing; last; 1 ms"):  # fmt: skip
        with pytest.raises(ValueError, match=r"."):
            rules_by(wrong)


def test_what_one_lacks_is_a_difference() -> None:
    older, newer = made(), made(AT + 1, values=(9, *VALUES[1:]))
    both = RULES.join(older, newer)
    assert found({b"k": older}, {b"k": both}, {b"k": older}, {b"k": both}) == [
        (b"k", {"plain": (1, 9)})
    ]
    assert found({b"k": both}, {}, {b"k": both}, {})[0][1]["plain"] == (9, "absent")
    assert found({}, {b"k": both}, {}, {b"k": both})[0][1]["plain"] == ("absent", 9)


def test_what_came_in_the_meantime_is_none() -> None:
    older, newer = made(), made(AT + 1, values=(9, *VALUES[1:]))
    both = RULES.join(older, newer)
    assert found({b"k": older}, {b"k": both}, {b"k": both}, {b"k": both}) == []
    # It has changed again, and has what the other had.
    newest = RULES.join(both, made(AT + 2, values=(10, *VALUES[1:])))
    assert found({b"k": older}, {b"k": both}, {b"k": both}, {b"k": newest}) == []
    # It was alike before.
    assert found({b"k": both}, {b"k": both}, {b"k": older}, {b"k": both}) == []


def test_what_is_forgotten_is_as_what_was_deleted() -> None:
    gone = RULES.deleted((AT + 5, "a"))
    assert found({b"k": gone}, {}, {b"k": gone}, {}) == []
    assert found({}, {b"k": gone}, {}, {b"k": gone}) == []
    ended = RULES.set(None, VALUES, (AT, "a"), NOW - 1000, NOW - 500)
    assert found({b"k": ended}, {}, {b"k": ended}, {}) == []
    # But who has the row yet lacks the delete.
    there = made()
    assert found({b"k": gone}, {b"k": there}, {b"k": gone}, {b"k": there})[0][1]["plain"] == (
        "absent",
        1,
    )


def test_another_expiry_is_named_and_other_stamps_are_told_apart() -> None:
    lives = RULES.set(None, VALUES, (AT, "a"), NOW, NOW + 5000)
    longer = RULES.join(lives, RULES.expiring(RULES.cells(lives), (AT + 1, "a"), NOW + 9000))
    assert found({b"k": lives}, {b"k": longer}, {b"k": lives}, {b"k": longer}) == [
        (b"k", {"_expires": (NOW + 5000, NOW + 9000)})
    ]
    one, other = made(AT), made(AT + 1)
    assert found({b"k": one}, {b"k": other}, {b"k": one}, {b"k": other}) == [(b"k", {})]
