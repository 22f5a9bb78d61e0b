"""Any interleaving of changes gives the same row: all of a few, and random ones of many."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Annotated

import pytest

from interlock import I8, U8, U16, Flags, Last, Max, Row, Sum
from tests import seeds
from tests.cluster.state.histories import Centre, History, Operation
from tests.cluster.state.rows import OPERATIONS

HISTORIES = 150 * OPERATIONS


class LastRow(Row):
    a: Annotated[U8, Last]
    b: U8


class SumRow(Row):
    n: Annotated[I8, Sum]


class MaxRow(Row):
    n: Annotated[U8, Max]


class FlagsRow(Row):
    bits: Annotated[U16, Flags]


class AllRow(Row):
    a: U8
    n: Annotated[I8, Sum]
    top: Annotated[U8, Max]
    bits: Annotated[U16, Flags]
    m: Annotated[U16, Sum]


ALPHABETS: dict[str, tuple[type[Row], list[Operation]]] = {
    "last": (LastRow, [("set", 0, 1), ("set", 0, 2), ("add", 1, 3), ("delete",)]),
    "sum": (SumRow, [("add", 0, 100), ("add", 0, -3), ("set", 0, 7), ("delete",)]),
    "max": (MaxRow, [("set", 0, 5), ("set", 0, 3), ("add", 0, 1), ("delete",)]),
    "flags": (FlagsRow, [("set", 0, 1), ("set", 0, 2), ("add", 0, 2), ("delete",)]),
    # Time advances by 10 ms with each operation.
    "expiry": (SumRow, [("add", 0, 2), ("expire", 15), ("put", {0: 9}, 25), ("persist",)]),
    "rows": (LastRow, [("put", {0: 1}, 0), ("set", 1, 4), ("expire", 15), ("delete",)]),
}


@pytest.mark.parametrize("name", seeds.share(ALPHABETS))
def test_all_interleavings_of_a_few_operations_give_the_row_of_the_model(name: str) -> None:
    row, alphabet = ALPHABETS[name]
    chance = random.Random(seeds.seed())
    count = 0
    for length in (2, 3, 4):
        for steps in itertools.product(alphabet, repeat=length):
            for places in itertools.product((0, 1), repeat=length - 1):
                for seen in sights((0, *places)):
                    # Of four operations there are 20,000; the usual run has a share of them.
                    if length < 4 or OPERATIONS > 1 or chance.random() < 0.1:
                        small(row, steps, (0, *places), seen)
                        count += 1
    assert count > 2500


def sights(places: Sequence[int]) -> Iterator[list[list[int]]]:
    """For each operation what it may have seen before of those elsewhere: every choice."""
    choices = []
    for at, place in enumerate(places):
        elsewhere = [other for other in range(at) if places[other] != place]
        subsets = [
            list(subset)
            for size in range(len(elsewhere) + 1)
            for subset in itertools.combinations(elsewhere, size)
        ]
        choices.append(subsets)
    for choice in itertools.product(*choices):
        yield list(choice)


def small(
    row: type[Row], steps: Sequence[Operation], places: Sequence[int], seen: list[list[int]]
) -> None:
    history = History(row)
    numbers: list[int | None] = []
    for operation, place, sight in zip(steps, places, seen, strict=True):
        history.time.ms += 10
        centre = history.centres[place]
        # In the other order than they were made, to make it harder.
        for other in reversed(sight):
            number = numbers[other]
            if number is not None and number not in centre.seen:
                centre.apply(number)
        numbers.append(centre.do(operation))
        history.check(centre)
    history.end(random.Random(len(history.deltas)))


@pytest.mark.parametrize("ahead", [(0, 0), (0, 0, 0), (0, 700, -40)], ids=str)
def test_random_histories_give_the_row_of_the_model(ahead: tuple[int, ...]) -> None:
    seed = seeds.seed()
    for number in range(HISTORIES):
        chance = random.Random(seed + number)
        history = History(AllRow, ahead)
        for _ in range(chance.choice([5, 20, 60])):
            step(history, chance, chance.choice(history.centres))
        history.end(chance)


def step(history: History, chance: random.Random, centre: Centre) -> None:
    history.time.ms += chance.choice([0, 0, 1, 5, 40])
    others = [number for number in range(len(history.deltas)) if number not in centre.seen]
    for number in chance.sample(others, chance.randrange(len(others) + 1)):
        centre.apply(number)
    if history.deltas and chance.random() < 0.2:
        number = chance.randrange(len(history.deltas))
        centre.apply(number)
    centre.do(operation(chance))
    history.check(centre)


def operation(chance: random.Random) -> Operation:
    column = chance.randrange(5)
    value = chance.randrange(-128, 128) if column == 1 else chance.randrange(256)
    return chance.choices(
        [
            ("set", column, value),
            ("add", column, chance.randrange(-20, 40)),
            ("put", {column: value, 0: chance.randrange(256)}, chance.choice([0, 0, 1, 30, 300])),
            ("expire", chance.choice([0, 1, 20, 200])),
            ("persist",),
            ("delete",),
        ],
        [6, 10, 2, 2, 1, 1],
    )[0]
