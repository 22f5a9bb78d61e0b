"""The time that a call has where its engine does not answer, on a clock that each step moves."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.client.connection import call as calls
from interlock.client.connection.call import Engine, Server
from interlock.client.request import Ask, Broken, Nap
from interlock.client.url import parse
from interlock.errors import EngineUnavailable

ADDRESS = "127.0.0.1:1"
KEY = "il:{q}"


def spared(timeout: float) -> float:
    """The seconds before the timeout in which no other attempt is begun."""
    return min(timeout * calls.SHORTEST_PART, calls.SHORTEST_MOST)


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    moved = Clock()
    monkeypatch.setattr(calls, "time", moved)
    return moved


def unanswered(clock: Clock, wait: float, timeout: float, *took: tuple[float, bool]) -> str:
    """Make a call that is never answered, and return what it raises.

    Each attempt takes this many seconds, at most its limit, and was sent or not; the last one
    applies to all that follow."""
    engine = Engine(parse(f"interlock://{ADDRESS}?timeout={timeout}"))
    engine.servers[ADDRESS] = Server(True, 1024, frozenset())
    session: Any = SimpleNamespace(once=False, interrupted=False, drop=lambda address: None)
    request = engine.call(session, "put", KEY, wait=wait)
    steps = list(took)
    step = next(request)
    while True:
        try:
            if isinstance(step, Nap):
                clock.now += step.seconds
                step = request.send(None)
                continue
            assert isinstance(step, Ask)
            seconds, sent = steps.pop(0) if len(steps) > 1 else steps[0]
            clock.now += min(seconds, step.timeout)
            step = request.throw(Broken("gone", sent))
        except EngineUnavailable as told:
            return str(told)


@pytest.mark.parametrize("wait", [0, 2, 10])
@pytest.mark.parametrize("timeout", [0.5, 1, 5])
def test_a_refused_connection_ends_the_call_at_its_timeout_without_the_wait(
    clock: Clock, wait: float, timeout: float
) -> None:
    said = unanswered(clock, wait, timeout, (0, False))
    passed = clock.now - 100
    assert timeout - spared(timeout) <= passed <= timeout
    assert f"did not answer il1_put in {round(passed, 1):g} s" in said


def test_a_connection_lost_at_once_ends_the_call_at_its_timeout_without_the_wait(
    clock: Clock,
) -> None:
    unanswered(clock, 10, 1, (0.2, True), (0, False))
    assert 1.2 - spared(1) <= clock.now - 100 <= 1.2


def test_a_wait_ended_by_the_server_leaves_the_full_timeout(clock: Clock) -> None:
    said = unanswered(clock, 10, 1, (8, True), (0, False))
    assert 9 - spared(1) <= clock.now - 100 <= 9
    assert re.search(r"in (8\.[89]|9) s; \d+ attempts", said)


def test_a_silent_server_gets_the_wait_only_once(clock: Clock) -> None:
    unanswered(clock, 10, 1, (60, True))
    assert clock.now - 100 <= 12
