"""The limit and what each message waited for, against figures worked out by hand."""

from functools import cache
from random import Random

import pytest

from interlock.replay.limit import limit, waited_for
from interlock.replay.trace import Message
from tests.replay.test_ledger import conflict
from tests.replay.traces import random_messages


def keyed(*keys: str) -> Message:
    return Message("m", keys)


def reading(*keys: str) -> Message:
    return Message("m", (), keys)


@pytest.mark.parametrize(
    ("messages", "durations", "path"),
    [
        ([], [], 0),
        ([keyed("a")], [2], 2),
        ([keyed("a"), keyed("a")], [2, 3], 5),
        ([keyed("a"), keyed("b")], [2, 3], 3),
        ([keyed("a"), keyed("a", "b"), keyed("b")], [1, 2, 4], 7),
        ([keyed("a"), keyed("b"), keyed("a", "b")], [1, 5, 1], 6),
        ([keyed(), keyed()], [4, 9], 9),
        ([reading("a"), reading("a"), reading("a")], [1, 5, 2], 5),
        ([keyed("a"), reading("a"), reading("a"), keyed("a")], [1, 5, 2, 1], 7),
        ([reading("a"), keyed("a"), reading("a")], [3, 1, 3], 7),
        ([keyed("a"), Message("m", ("b",), ("a",)), Message("m", ("c",), ("a",)), keyed("b", "c")],
         [1, 2, 3, 1], 5),
    ],
)  # fmt: skip
def test_the_critical_path_is_the_longest_chain_of_conflicts(
    messages: list[Message], durations: list[float], path: float
) -> None:
    assert limit(messages, durations, 4).critical_path == path


def test_the_limit_is_the_path_or_the_work_of_each_worker_whichever_is_longer() -> None:
    messages = [keyed("a"), keyed("a"), *[keyed()] * 6]
    durations = [1.0] * 8
    assert limit(messages, durations, 8).seconds == 2
    assert limit(messages, durations, 4).seconds == 2
    assert limit(messages, durations, 2).seconds == 4
    assert limit(messages, durations, 1).seconds == limit(messages, durations, 1).work == 8


@pytest.mark.parametrize("seed", range(50))
def test_the_critical_path_is_that_of_the_whole_graph(seed: int) -> None:
    random = Random(seed)
    messages = random_messages(random, 30)
    durations = [float(random.randint(0, 9)) for _ in messages]

    @cache
    def end(at: int) -> float:
        before = [end(b) for b in range(at) if conflict(messages[b], messages[at])]
        return durations[at] + max(before, default=0.0)

    longest = max(end(at) for at in range(len(messages)))
    assert limit(messages, durations, 4).critical_path == longest


def test_each_message_waited_for_the_conflicting_one_that_ended_last() -> None:
    messages = [keyed("a"), keyed("b"), keyed("a", "b"), keyed("c"), keyed("b")]
    assert waited_for(messages, [0] * 5, [2, 3, 4, 1, 5]) == [None, None, 1, None, 2]


def test_a_message_waits_for_nothing_that_ended_before_its_put() -> None:
    assert waited_for([keyed("a"), keyed("a")], [0, 5], [2, 6]) == [None, None]


def test_a_writer_waited_for_the_last_of_its_readers_and_a_reader_for_no_reader() -> None:
    messages = [keyed("a"), reading("a"), reading("a"), reading("a"), keyed("a")]
    assert waited_for(messages, [0] * 5, [1, 3, 9, 4, 10]) == [None, 0, 0, 0, 2]
