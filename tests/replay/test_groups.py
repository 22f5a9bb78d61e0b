"""Groups in a replay: what a queue gets of them, and how their waits are compared."""

from __future__ import annotations

import pytest

from interlock.replay.groups import compared, grouped
from interlock.replay.measure import measure
from interlock.replay.run import Record, Run
from interlock.replay.trace import Message, Trace, TraceError
from interlock.replay.ways import Way, remote, way
from interlock.replay.workload import Workload

MESSAGES = [Message(str(n), (), group="loud" if n < 3 else "quiet") for n in range(4)]


def run(*starts: float) -> Run:
    """Messages that were put at 0, and took a second each."""
    records = [
        Record(n, str(n), (), (), 0, 0.0, start, start + 1, None) for n, start in enumerate(starts)
    ]
    return Run("t", 1, 4.0, 4.0, records)


def test_waits_of_groups_are_compared_by_median_and_longest() -> None:
    found = compared(MESSAGES, run(0, 2, 3, 1), run(0, 1, 2, 3))
    loud, quiet = found["largest"]
    assert (loud["group"], loud["messages"], loud["median"], loud["longest"]) == ("loud", 3, 2, 3)
    assert loud["without"] == {"median": 1, "longest": 2}
    assert (quiet["median"], quiet["longest"], quiet["without"]["longest"]) == (1, 1, 3)


def test_the_index_is_that_of_the_throughputs_until_each_group_has_ended() -> None:
    found = compared(MESSAGES, run(0, 2, 3, 1), run(0, 1, 2, 3))
    # With turns 3 in 4 s and 1 in 2 s, without 3 in 3 s and 1 in 4 s.
    assert found["index"] == pytest.approx(1.25**2 / (2 * (0.75**2 + 0.5**2)))
    assert found["index_without"] == pytest.approx(1.25**2 / (2 * (1 + 0.25**2)))


@pytest.fixture(params=["here", "memory", "hub", "redis"])
def queue(request: pytest.FixtureRequest) -> Way:
    if request.param == "here":
        return way("queue")
    return remote.way(request.getfixturevalue(f"{request.param}_url"))


@pytest.mark.parametrize("in_turns", [True, False])
def test_messages_have_groups_in_the_queue_only_in_a_run_with_turns(
    queue: Way, in_turns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    from interlock.replay.ways.base import Job

    was = Job.group

    def group(job: Job, index: int) -> str | None:
        asked.append(was(job, index) is not None)
        return was(job, index)

    monkeypatch.setattr(Job, "group", group)
    work = Workload("a test's", lambda message: None)
    outcome = measure(queue, Trace("t", MESSAGES), work, workers=2, grouped=in_turns)
    assert outcome.verdict.violations == 0 and outcome.failures == ()
    assert asked == [in_turns] * 4


def test_a_group_may_be_a_part_of_the_first_key() -> None:
    trace = Trace("t", [Message("1", ("src/a", "b")), Message("2", ("b",)), Message("3", ())])
    assert [one.group for one in grouped(trace, "key/").messages] == ["src", None, None]
    assert [one.group for one in grouped(trace, "key").messages] == ["src/a", "b", None]
    with pytest.raises(TraceError, match="message 1: group is"):
        grouped(Trace("t", [Message("1", ("a\x1fb",))]), "key")
