"""Settlements that are given as such: what cannot be sent is named."""

from __future__ import annotations

import uuid

import pytest

import interlock
from interlock.client.wire import messages as wire

BROKEN = "\ud800"


@pytest.mark.parametrize("settlement", [BROKEN, ("REJECT", 1, 1, BROKEN), (BROKEN, 1, 1)])
def test_a_lone_surrogate_in_a_settlement_is_named(settlement: wire.Settlement) -> None:
    with interlock.connect(f"memory://{uuid.uuid4().hex}") as client:
        queue = client.queue("q")
        queue.put("one")
        with pytest.raises(ValueError, match=r"^settle\(\): settlements holds a lone surrogate"):
            queue.settle([settlement])
        with pytest.raises(ValueError, match=r"^exchange\(\): settlements holds a lone surrogate"):
            queue.exchange([settlement], 1, timeout=0)
        with queue.get(timeout=0) as payload:
            assert payload == "one"


def test_a_lone_surrogate_in_a_reason_is_escaped() -> None:
    with interlock.connect(f"memory://{uuid.uuid4().hex}") as client:
        queue = client.queue("q")
        queue.put("one")
        (lease,) = queue.exchange([], 1, timeout=0)[1]
        assert queue.settle([lease.rejecting(f"{BROKEN} größe")]) == ["dead"]
        assert [letter.error for letter in queue.dead_letters()] == ["\\ud800 größe"]
