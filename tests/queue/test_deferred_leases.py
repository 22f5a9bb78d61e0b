"""A lease of a queue in one process whose handler asks to be called later, at the same attempt."""

from __future__ import annotations

import pytest

from interlock import KeyedQueue, LeaseLost, RetryAfter


def test_a_handler_that_defers_uses_no_attempt_and_keeps_its_place() -> None:
    queue: KeyedQueue[str] = KeyedQueue()
    queue.put("first", keys=["a"])
    queue.put("second", keys=["a"])
    lease = queue.get()
    with pytest.raises(RetryAfter), lease:
        raise RetryAfter(0.01, attempt=False)
    stats = queue.stats()
    assert (stats.backing_off, stats.releases, stats.retries) == (1, 1, 0)
    again = queue.get(timeout=20)
    assert (again.payload, again.attempt) == ("first", 1)
    again.ack()
    with pytest.raises(LeaseLost):
        lease._defer(1)


def test_a_lease_that_defers_to_now_is_given_back() -> None:
    queue: KeyedQueue[str] = KeyedQueue()
    queue.put("only")
    queue.get()._defer(0)
    again = queue.get_nowait()
    assert again.attempt == 1
    again.ack()
