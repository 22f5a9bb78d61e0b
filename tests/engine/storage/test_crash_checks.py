"""The checks of the crash tests notice what they are for: each sees lines in which it happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import pytest

from tests.engine.faults import checks
from tests.engine.faults.bank import Operation, first_state
from tests.engine.faults.lines import Line
from tests.engine.faults.report import Taken, added
from tests.engine.faults.story import Story

MS = 1_000_000
LEASE = 0.1
"""Seconds."""


class Scene:
    """Lines as the processes of a run write them, a millisecond apart."""

    def __init__(self) -> None:
        self.now = 0
        self.logs: dict[str, list[Line]] = {"p": [], "w": [], "v": []}
        self.operations: dict[int, Operation] = {}

    def say(self, who: str, what: str, /, **said: object) -> None:
        self.now += MS
        self.logs[who].append(Line(who, self.now, what, said))

    def put(self, id: int, source: str, target: str, name: str = "") -> None:
        what = Operation(name or f"m{id}", "transfer", source, target, 100)
        self.operations[id] = what
        self.say("p", "put", number=id, what=asdict(what), delay=0.0, priority=0, dedup=True)
        self.say("p", "answered", name=what.name, id=id, known=False)

    def lease(self, id: int, token: int, attempt: int = 1, who: str = "w") -> None:
        what = self.operations[id]
        self.say(who, "get", number=token, limit=1)
        self.say(who, "got", number=token, count=1)
        self.say(
            who,
            "begin",
            get=token,
            id=id,
            token=token,
            attempt=attempt,
            sequence=id,
            what=asdict(what),
            keys=list(what.keys),
            shared=list(what.shared),
        )

    def settle(
        self, id: int, token: int, answer: str | None = "acked", how: str = "ack", who: str = "w"
    ) -> None:
        self.say(who, "settling", id=id, token=token, how=how)
        if answer:
            self.say(who, "settled", id=id, token=token, answer=answer)

    def handled(self, id: int, token: int, attempt: int = 1, who: str = "w") -> None:
        self.lease(id, token, attempt, who)
        self.settle(id, token, who=who)

    def found(
        self, *, stats: dict[str, int] | None = None, state: dict[str, int] | None = None
    ) -> set[str]:
        """The checks that fail of a run at whose end server and accounts were as they should be."""
        seen = {line["id"] for lines in self.logs.values() for line in lines if "get" in line.said}
        wanted = dict.fromkeys(("unsettled", "dead", "held", "delayed", "cancelled"), 0)
        wanted |= {"puts": len(seen), "acks": len(seen)}
        self.say("p", "stats", **(wanted | (stats or {})))
        in_order = first_state()
        for id in sorted(seen):
            in_order |= self.operations[id].effect(in_order)
        applied = {self.operations[id].name: id for id in seen}
        found = checks.all_of(Story(self.logs), LEASE, in_order | (state or {}), applied)
        assert all(str(one) for one in found)
        return {one.check for one in found}


A, B, C = "account-0", "account-1", "account-2"


def whole(scene: Scene) -> None:
    """A loss, a release, a nack and a stale holder, all as it should be."""
    scene.put(1, A, B)
    scene.put(2, B, C)
    scene.lease(1, 11)
    scene.settle(1, 11, "released", "release")
    scene.lease(1, 12)
    scene.lease(1, 13, 2, who="v")
    scene.settle(1, 13, "retried", "nack", who="v")
    scene.handled(1, 14, 3, who="v")
    scene.settle(1, 12, "lost")
    scene.handled(2, 15)


def test_the_checks_report_nothing_for_a_correct_run() -> None:
    scene = Scene()
    whole(scene)
    assert scene.found() == set()


def never_handed_out(scene: Scene) -> None:
    scene.put(1, A, B)


def never_settled(scene: Scene) -> None:
    scene.put(1, A, B)
    scene.lease(1, 11)
    scene.settle(1, 11, "lost")


def two_ids(scene: Scene) -> None:
    scene.put(1, A, B, name="one")
    scene.put(2, A, B, name="one")
    scene.handled(1, 11)
    scene.handled(2, 12)


def a_later_put_has_a_lower_id(scene: Scene) -> None:
    scene.put(2, A, B)
    scene.put(1, A, B)
    scene.handled(1, 11)
    scene.handled(2, 12)


def handed_out_after_the_ack(scene: Scene) -> None:
    scene.put(1, A, B)
    scene.handled(1, 11)
    scene.lease(1, 12, 2)
    scene.settle(1, 12, None)


def a_stale_holder_is_believed(scene: Scene) -> None:
    scene.put(1, A, B)
    scene.lease(1, 11, who="v")
    scene.handled(1, 12, 2)
    scene.settle(1, 11, who="v")


def overtaken(scene: Scene) -> None:
    scene.put(1, A, B)
    scene.put(2, B, C)
    scene.handled(2, 11)
    scene.handled(1, 12)


def overlapping(scene: Scene) -> None:
    scene.put(1, A, B)
    scene.put(2, B, C)
    scene.lease(1, 11)
    scene.lease(2, 12, who="v")
    scene.settle(1, 11)
    scene.settle(2, 12, who="v")


def handed_out_again_to_somebody_later(scene: Scene) -> None:
    scene.put(1, A, B)
    scene.put(2, B, C)
    scene.lease(1, 11)
    scene.settle(1, 11, None)
    scene.lease(2, 12, who="v")
    scene.lease(1, 13, 2, who="w")
    scene.settle(1, 13)
    scene.settle(2, 12, who="v")


def a_token_comes_again(scene: Scene) -> None:
    scene.put(1, A, B)
    scene.put(2, C, "account-3")
    scene.handled(1, 11)
    scene.handled(2, 11, who="v")


def settled_when_it_was_over(scene: Scene) -> None:
    scene.put(1, A, B)
    scene.lease(1, 11)
    scene.say("w", "unrenewed", id=1, token=11)
    scene.now += 140 * MS
    scene.settle(1, 11)


def an_attempt_is_not_counted(scene: Scene) -> None:
    scene.put(1, A, B)
    scene.lease(1, 11)
    scene.settle(1, 11, "retried", "nack")
    scene.handled(1, 12, 1)


def an_attempt_too_many(scene: Scene) -> None:
    scene.put(1, A, B)
    scene.handled(1, 11, 2)


def a_release_is_counted(scene: Scene) -> None:
    scene.put(1, A, B)
    scene.lease(1, 11)
    scene.settle(1, 11, "released", "release")
    scene.handled(1, 12, 2)


@pytest.mark.parametrize(
    ("wrong", "check"),
    [
        (never_handed_out, "lost"),
        (never_settled, "lost"),
        (two_ids, "doubled"),
        (a_later_put_has_a_lower_id, "order"),
        (handed_out_after_the_ack, "undone"),
        (a_stale_holder_is_believed, "undone"),
        (overtaken, "order"),
        (overlapping, "order"),
        (handed_out_again_to_somebody_later, "order"),
        (a_token_comes_again, "tokens"),
        (settled_when_it_was_over, "expired"),
        (an_attempt_is_not_counted, "attempts"),
        (an_attempt_too_many, "attempts"),
        (a_release_is_counted, "attempts"),
    ],
)
def test_each_kind_of_violation_is_reported(wrong: Callable[[Scene], None], check: str) -> None:
    scene = Scene()
    wrong(scene)
    assert check in scene.found()


def test_a_lease_whose_reply_was_lost_explains_an_extra_attempt() -> None:
    scene = Scene()
    scene.put(1, A, B)
    scene.say("v", "get", number=1, limit=1)
    scene.handled(1, 11, 2)
    assert scene.found() == set()


def test_the_server_s_counts_and_the_balances_are_checked() -> None:
    for name in ("unsettled", "dead", "puts", "acks"):
        scene = Scene()
        whole(scene)
        assert scene.found(stats={name: 7}) == {"counted"}
    scene = Scene()
    whole(scene)
    assert scene.found(state={A: 9_901}) == {"money"}
    scene = Scene()
    whole(scene)
    assert scene.found(state={A: 9_950, B: 10_000, C: 10_050}) == {"money"}


def test_the_summary_keeps_earlier_runs_and_appends_new_ones() -> None:
    first = Taken("2026-01-01", "aaaaaaa", 9000, 22, "2 CPUs")
    second = Taken("2026-01-02", "bbbbbbb, changed", 7, 1, "8 CPUs")
    once = added("", first, {"hub": {"runs": 1_298, "puts": 40_000}, "redis": {"runs": 297}})
    assert "| 2026-01-01 | aaaaaaa | 9000 | 1298 | 297 | 22 | 2 CPUs |" in once
    assert "| puts begun | 40,000 | 0 |" in once
    twice = added(once, second, {"hub": {"runs": 2, "puts": 5}})
    lines = [line for line in once.splitlines() if line.startswith("| 2026-01-01")]
    assert [line for line in twice.splitlines() if line.startswith("| 2026-")] == [
        *lines,
        "| 2026-01-02 | bbbbbbb, changed | 7 | 2 | 0 | 1 | 8 CPUs |",
    ]
    assert "| runs | 1,300 | 297 |" in twice
    assert "| puts begun | 40,005 | 0 |" in twice
    assert once.splitlines()[0] == twice.splitlines()[0] == "# Queues under crashes"
