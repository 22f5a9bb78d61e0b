"""The auditor: planted violations are found, kept order is not blamed."""

from random import Random

import pytest

from interlock.auditor import Auditor, Verdict, Violation
from interlock.replay.trace import Message
from tests.replay.traces import random_messages

A = Message("a", ("k",))
READ = Message("r", (), ("k",))


def judged(messages: list[Message], events: list[int], *, complete: bool = True) -> Verdict:
    """The verdict on events: n starts message n, ~n ends it."""
    auditor = Auditor()
    for index, message in enumerate(messages):
        auditor.expect(index, message.keys, message.shared)
    for event in events:
        if event >= 0:
            auditor.started(event)
        else:
            auditor.ended(~event)
    return auditor.check(complete=complete)


def test_messages_in_sequence_are_no_violation() -> None:
    verdict = judged([A, A, READ, READ, A], [0, ~0, 1, ~1, 2, ~2, 3, ~3, 4, ~4])
    assert verdict.violations == 0
    assert (verdict.messages, verdict.keys, verdict.repeated) == (5, 1, 0)


def test_messages_of_different_keys_may_run_in_any_order() -> None:
    messages = [Message("1", ("a",)), Message("2", ("b",)), Message("3")]
    assert judged(messages, [2, 1, 0, ~0, ~2, ~1]).violations == 0


def test_a_start_before_an_earlier_message_is_an_order_violation() -> None:
    verdict = judged([A, A], [1, ~1, 0, ~0])
    assert (verdict.order, verdict.overlap) == (1, 0)
    assert verdict.examples == (Violation("order", 1, b"k", 0),)
    assert str(verdict.examples[0]) == "message 1 started before message 0 on key 'k'"


def test_a_start_while_an_earlier_message_runs_is_an_overlap() -> None:
    verdict = judged([A, A], [0, 1, ~0, ~1])
    assert (verdict.order, verdict.overlap) == (0, 1)
    assert verdict.examples == (Violation("overlap", 1, b"k", 0),)
    assert str(verdict.examples[0]) == "message 1 started during message 0 on key 'k'"


def test_overtaking_is_found_on_the_key_where_it_happens() -> None:
    messages = [Message("1", ("a",)), Message("2", ("a", "b")), Message("3", ("b",))]
    verdict = judged(messages, [0, 2, ~2, ~0, 1, ~1])
    assert verdict.examples == (Violation("order", 2, b"b", 1),)


def test_each_key_of_a_message_is_checked() -> None:
    both = Message("2", ("a", "b"))
    assert judged([both, both], [0, 1, ~0, ~1]).overlap == 2


def test_readers_may_run_together_and_pass_each_other() -> None:
    assert judged([READ, READ, READ], [2, 0, 1, ~0, ~1, ~2]).violations == 0


@pytest.mark.parametrize(
    ("messages", "events", "kind"),
    [
        ([READ, A], [0, 1, ~0, ~1], "overlap"),
        ([A, READ], [0, 1, ~0, ~1], "overlap"),
        ([READ, A], [1, ~1, 0, ~0], "order"),
        ([A, READ], [1, ~1, 0, ~0], "order"),
        ([READ, READ, A], [0, ~0, 2, ~2, 1, ~1], "order"),
    ],
)
def test_a_reader_and_a_writer_conflict_either_way(
    messages: list[Message], events: list[int], kind: str
) -> None:
    verdict = judged(messages, events)
    assert verdict.violations == 1
    assert verdict.examples[0].kind == kind


def test_a_key_held_both_ways_is_exclusive() -> None:
    both = Message("b", ("k",), ("k",))
    assert judged([both, both], [0, 1, ~0, ~1]).overlap == 1


def test_an_integer_its_text_and_its_bytes_are_the_same_key() -> None:
    auditor = Auditor()
    same: tuple[int | str | bytes, ...] = (7, "7", b"7")
    for index, key in enumerate(same):
        auditor.expect(index, [key])
    for index in (2, 1, 0):
        auditor.started(index)
        auditor.ended(index)
    assert auditor.check().order == 2


def test_messages_that_never_started_or_ended_are_counted_at_the_end() -> None:
    verdict = judged([A, Message("u"), A], [0, ~0, 1])
    assert (verdict.lost, verdict.unfinished, verdict.violations) == (1, 1, 2)
    assert [str(found) for found in verdict.examples] == [
        "message 1 was started and never ended",
        "message 2 was never handled",
    ]
    assert judged([A, Message("u"), A], [0, ~0, 1], complete=False).violations == 0


def test_a_retry_in_place_is_no_violation_and_is_counted() -> None:
    verdict = judged([A, A], [0, ~0, 0, ~0, 1, ~1])
    assert (verdict.violations, verdict.repeated) == (0, 1)


def test_a_message_handled_between_two_attempts_of_an_earlier_one_is_an_order_violation() -> None:
    verdict = judged([A, A], [0, ~0, 1, ~1, 0, ~0])
    assert verdict.examples == (Violation("order", 1, b"k", 0),)


def test_two_attempts_at_the_same_time_overlap_and_the_second_still_runs_when_one_ends() -> None:
    verdict = judged([A, A], [0, 0, ~0, 1, ~1, ~0])
    assert [(found.id, found.other) for found in verdict.examples] == [(0, 0), (1, 0)]
    assert verdict.overlap == 2


def test_order_is_judged_by_id_and_not_by_announcement() -> None:
    auditor = Auditor()
    auditor.expect(20, ["k"])
    auditor.expect(10, ["k"])
    for id in (10, 20):
        auditor.started(id)
        auditor.ended(id)
    assert auditor.check().violations == 0


def test_violations_are_all_counted_and_the_first_ones_kept() -> None:
    auditor = Auditor(examples=3)
    for index in range(10):
        auditor.expect(index, ["k"])
        auditor.started(index)
    verdict = auditor.check(complete=False)
    assert verdict.overlap == 9
    assert len(verdict.examples) == 3


def test_a_message_that_nobody_announced_or_that_was_announced_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="message 0 started or ended but was never announced"):
        judged([], [0])
    auditor = Auditor()
    auditor.expect(1)
    auditor.expect(1)
    with pytest.raises(ValueError, match="message 1 was announced twice"):
        auditor.check()


@pytest.mark.parametrize("seed", range(200))
def test_random_events_are_judged_as_by_comparing_every_pair(seed: int) -> None:
    random = Random(seed)
    messages = random_messages(random, random.randint(1, 8), keys=3)
    events = [event for index in range(len(messages)) for event in (index, ~index)]
    # Swapped a few times, so that some runs are nearly right; each start stays before its end.
    for _ in range(random.randint(0, 12)):
        at = random.randrange(len(events) - 1)
        if events[at] != ~events[at + 1]:
            events[at], events[at + 1] = events[at + 1], events[at]
    verdict = judged(messages, events)
    assert (verdict.order, verdict.overlap) == pairwise_violations(messages, events)


def pairwise_violations(messages: list[Message], events: list[int]) -> tuple[int, int]:
    """Pairs of message and key that began too early, and that began beside a conflicting one."""
    began = {event: at for at, event in enumerate(events) if event >= 0}
    ended = {~event: at for at, event in enumerate(events) if event < 0}
    order, overlap = set(), set()
    for later in range(len(messages)):
        for key in (*messages[later].keys, *messages[later].shared):
            for other in range(len(messages)):
                held = {*messages[other].keys, *messages[other].shared}
                writes = key in messages[later].keys or key in messages[other].keys
                if other == later or key not in held or not writes:
                    continue
                if other < later and began[other] > began[later]:
                    order.add((later, key))
                if began[other] < began[later] < ended[other]:
                    overlap.add((later, key))
    return len(order), len(overlap)


def test_ends_counts_finished_handlers() -> None:
    auditor = Auditor()
    for index in range(3):
        auditor.expect(index)
        auditor.started(index)
        auditor.ended(index)
    assert auditor.ends == 3
