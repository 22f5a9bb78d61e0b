"""Dropped leases are returned, even if the return is interrupted."""

from collections.abc import Iterator
from typing import Any

import pytest

from interlock import EngineUnavailable
from interlock.client.requests.lease_renewal import LeaseRenewer
from interlock.client.wire import messages as wire


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


def steps(renewer: LeaseRenewer) -> int:
    """Gives back all, and tells in how many calls."""
    session: Any = None
    return sum(1 for _ in renewer.settle_abandoned(session))


def dropped(renewer: LeaseRenewer, operations: Any, *ids: int) -> list[wire.Settlement]:
    settlements = [wire.acking(5, id) for id in ids]
    for one in settlements:
        renewer.abandon(operations, one)
    return settlements


def test_an_interrupted_return_of_dropped_leases_keeps_later_ones_pending() -> None:
    operations = Operations()
    renewer = LeaseRenewer(lambda: None)
    (first,) = dropped(renewer, operations, 1)
    interrupted: Any = renewer.settle_abandoned(None)  # type: ignore[arg-type]
    next(interrupted)
    assert steps(renewer) == 1
    (second,) = dropped(renewer, operations, 2)
    # As late as the collector likes.
    interrupted.close()
    assert renewer.has_abandoned
    assert steps(renewer) == 1
    assert operations.settled == [first, second]
    assert not renewer.has_abandoned


def test_settlements_left_by_an_interrupted_call_are_sent_by_the_next() -> None:
    operations = Operations()
    renewer = LeaseRenewer(lambda: None)
    settlements = dropped(renewer, operations, 1, 2)
    interrupted: Any = renewer.settle_abandoned(None)  # type: ignore[arg-type]
    next(interrupted)
    interrupted.close()
    assert steps(renewer) == 2
    assert operations.settled == settlements


@pytest.mark.parametrize("error", [EngineUnavailable("away"), ValueError("a fault")])
def test_returning_a_message_is_tried_once(error: Exception) -> None:
    operations = Operations()
    renewer = LeaseRenewer(lambda: None)
    dropped(renewer, operations, 1)
    operations.error = error
    try:
        steps(renewer)
    except ValueError:
        assert isinstance(error, ValueError)
    assert not renewer.has_abandoned
