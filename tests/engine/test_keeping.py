"""Leases that were dropped are given back, whoever is interrupted while giving them back."""

from collections.abc import Iterator
from typing import Any

import pytest

from interlock import EngineUnavailable
from interlock.engine import wire
from interlock.engine.keeping import Keeper


class Operations:
    """Notes what is settled; each call is a step."""

    name = "orders"

    def __init__(self) -> None:
        self.settled: list[Any] = []
        self.error: BaseException | None = None

    def settle(self, _session: object, settlements: list[Any]) -> Iterator[str]:
        yield "asked"
        if self.error is not None:
            raise self.error
        self.settled += settlements


def steps(keeper: Keeper) -> int:
    """Gives back all, and tells in how many calls."""
    session: Any = None
    return sum(1 for _ in keeper.settle_abandoned(session))


def dropped(keeper: Keeper, operations: Any, *ids: int) -> list[wire.Settlement]:
    settlements = [wire.acking(5, id) for id in ids]
    for one in settlements:
        keeper.abandon(operations, one)
    return settlements


def test_who_was_interrupted_takes_nothing_away_from_who_came_after() -> None:
    operations = Operations()
    keeper = Keeper(lambda: None)
    (first,) = dropped(keeper, operations, 1)
    interrupted: Any = keeper.settle_abandoned(None)  # type: ignore[arg-type]
    next(interrupted)
    assert steps(keeper) == 1
    (second,) = dropped(keeper, operations, 2)
    # As late as the collector likes.
    interrupted.close()
    assert keeper.has_abandoned
    assert steps(keeper) == 1
    assert operations.settled == [first, second]
    assert not keeper.has_abandoned


def test_what_an_interrupted_one_left_is_settled_by_the_next() -> None:
    operations = Operations()
    keeper = Keeper(lambda: None)
    settlements = dropped(keeper, operations, 1, 2)
    interrupted: Any = keeper.settle_abandoned(None)  # type: ignore[arg-type]
    next(interrupted)
    interrupted.close()
    assert steps(keeper) == 2
    assert operations.settled == settlements


@pytest.mark.parametrize("error", [EngineUnavailable("away"), ValueError("a fault")])
def test_what_cannot_be_given_back_is_tried_once(error: Exception) -> None:
    operations = Operations()
    keeper = Keeper(lambda: None)
    dropped(keeper, operations, 1)
    operations.error = error
    try:
        steps(keeper)
    except ValueError:
        assert isinstance(error, ValueError)
    assert not keeper.has_abandoned
