"""A put with AFTER is refused by a queue that does not know the earlier message's dedup string."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis.exceptions import ResponseError

from interlock._core import Engine, EngineError, ManualClock
from tests.engine.calls import Argument, message
from tests.engine.timed import TimedQueue

Put = Callable[..., list[str]]
REFUSED = "^UNKNOWN il[0-9]+_put: the queue does not know the dedup string of AFTER$"


@pytest.fixture(params=["in process", "Redis"])
def put(request: pytest.FixtureRequest) -> Put:
    """Puts messages; returns the reply."""

    def flat(messages: tuple[list[Argument], ...]) -> list[Argument]:
        return ["", 0, 0, *(part for one in messages for part in one)]

    if request.param == "Redis":
        timed: TimedQueue = request.getfixturevalue("timed")
        return lambda *messages: timed.call("put", *flat(messages))
    engine = Engine(ManualClock(1_000))

    def put(*messages: list[Argument]) -> list[str]:
        reply = engine.call("il1_put", b"il:{q}", flat(messages))
        return [part.decode() for part in reply]

    return put


def refused(put: Put, *messages: list[Argument]) -> None:
    with pytest.raises((ResponseError, EngineError), match=REFUSED):
        put(*messages)


def test_a_put_behind_a_known_message_is_taken(put: Put) -> None:
    first, _ = put(message("a", dedup="1"))
    second, known = put(message("b", dedup="2", after="1"))
    assert int(second) > int(first) and known == "0"
    # A repetition is no other message.
    assert put(message("b", dedup="2", after="1")) == [second, "1"]


def test_a_put_behind_an_unknown_message_is_refused_with_all_its_messages(put: Put) -> None:
    put(message("a", dedup="1"))
    refused(put, message("b", dedup="2"), message("c", dedup="3", after="0"))
    refused(put, message("d", after="2"))
    assert put(message("c", dedup="3", after="1"))[1] == "0"


def test_a_message_of_the_same_put_is_not_known_before_it(put: Put) -> None:
    refused(put, message("a", dedup="1"), message("b", dedup="2", after="1"))


@pytest.mark.parametrize("text", ["", "x" * 1025])
def test_a_dedup_string_that_none_can_be_is_an_invalid_argument(put: Put, text: str) -> None:
    with pytest.raises(
        (ResponseError, EngineError), match=r"^BADARG il[0-9]+_put: messages\[1\].AFTER"
    ):
        put(message("a", after=text))
