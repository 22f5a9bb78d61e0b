"""The ledger: its digest is the serial run's, or something went wrong."""

from itertools import permutations
from random import Random

import pytest

from interlock.auditor import Ledger
from interlock.replay.trace import Message
from interlock.replay.watch import Seen, serial_digest
from tests.replay.traces import random_messages

WRITE = (Message("w1", ("k",)), Message("w2", ("k",)))
READS = tuple(Message(f"r{number}", (), ("k",)) for number in range(3))


def digest(messages: list[Message], events: list[int]) -> str:
    """The digest after events: n begins message n, ~n finishes it."""
    ledger = Ledger()
    seen: dict[int, Seen] = {}
    for event in events:
        index = event if event >= 0 else ~event
        message = messages[index]
        if event >= 0:
            seen[index] = ledger.begin(message.keys, message.shared)
        else:
            ledger.finish(message.id, message.keys, message.shared, seen[index])
    return ledger.digest()


def test_two_writers_in_order_give_the_serial_digest() -> None:
    assert digest([*WRITE], [0, ~0, 1, ~1]) == serial_digest(WRITE)


@pytest.mark.parametrize("events", [[1, ~1, 0, ~0], [0, 1, ~0, ~1], [0, 1, ~1, ~0]])
def test_two_writers_swapped_or_concurrent_change_the_digest(events: list[int]) -> None:
    assert digest([*WRITE], events) != serial_digest(WRITE)


def test_readers_between_writers_give_one_digest_in_any_order() -> None:
    messages = [WRITE[0], *READS, WRITE[1]]
    for first in permutations((1, 2, 3)):
        for last in permutations((~1, ~2, ~3)):
            events = [0, ~0, *first, *last, 4, ~4]
            assert digest(messages, events) == serial_digest(messages)


@pytest.mark.parametrize(
    "events",
    [
        [1, ~1, 0, ~0, 2, ~2],  # read before it was written
        [0, ~0, 2, ~2, 1, ~1],  # read after it was overwritten
        [0, 1, ~0, ~1, 2, ~2],  # read while it was written
        [0, ~0, 1, 2, ~2, ~1],  # overwritten while it was read
    ],
)
def test_a_reader_on_the_wrong_side_of_a_writer_changes_the_digest(events: list[int]) -> None:
    messages = [WRITE[0], READS[0], WRITE[1]]
    assert digest(messages, events) != serial_digest(messages)


def test_two_readers_swapped_around_a_writer_change_the_digest() -> None:
    messages = [READS[0], WRITE[0], READS[1], WRITE[1]]
    assert digest(messages, [2, ~2, 1, ~1, 0, ~0, 3, ~3]) != serial_digest(messages)


def test_a_message_lost_or_handled_twice_changes_the_digest() -> None:
    assert digest([*WRITE], [0, ~0]) != serial_digest(WRITE)
    assert digest([*WRITE], [0, ~0, 1, ~1, 1, ~1]) != serial_digest(WRITE)
    assert digest([READS[0]], [0, ~0, 0, ~0]) != serial_digest(READS[:1])


def test_the_order_of_messages_of_different_keys_does_not_change_the_digest() -> None:
    messages = [Message("1", ("a",)), Message("2", ("b",)), Message("3")]
    assert digest(messages, [2, 1, 0, ~0, ~2, ~1]) == serial_digest(messages)


def test_keys_and_ids_are_delimited_in_the_digest() -> None:
    assert serial_digest([Message("1", ("ab",))]) != serial_digest([Message("1", ("a", "b"))])
    assert serial_digest([Message("12", ("a",))]) != serial_digest([Message("1", ("a",))])


def test_an_empty_ledger_has_a_digest() -> None:
    assert len(serial_digest([])) == 32


@pytest.mark.parametrize("seed", range(20))
def test_any_order_that_respects_conflicts_gives_the_serial_digest(seed: int) -> None:
    random = Random(seed)
    messages = random_messages(random, 40)
    left = list(range(len(messages)))
    events = []
    while left:
        free = [
            at
            for at in left
            if not any(conflict(messages[b], messages[at]) for b in left if b < at)
        ]
        at = random.choice(free)
        left.remove(at)
        events += [at, ~at]
    assert digest(messages, events) == serial_digest(messages)


def conflict(one: Message, other: Message) -> bool:
    writes, written = set(one.keys), set(other.keys)
    return bool(writes & (written | set(other.shared)) or written & set(one.shared))
