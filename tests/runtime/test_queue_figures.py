"""The families of queues: who has lines, what the others come to."""

from __future__ import annotations

from collections import defaultdict

from interlock.runtime.queue_figures import COUNTERS, QUEUE_FAMILIES, STATES, QueueFigures

NOW = 1_000.0


def stats(**given: int) -> dict[str, int]:
    return defaultdict(
        int, {"oldest_ready": 0, "oldest_waiting": 0, **dict.fromkeys(STATES, 0), **given}
    )


def told(figures: QueueFigures, found: dict[str, dict[str, int]]) -> dict[str, dict[str, float]]:
    """By the family's name and the values of its labels."""
    return {
        family.name: {" ".join(labels): value for labels, value in samples}
        for family, samples in figures.told(found, NOW)
    }


def test_every_metric_is_reported_for_every_queue() -> None:
    found = {"a": stats(ready=2, puts=3, dead=1, oldest_ready=990_000_000), "b": stats(sealed=1)}
    seen = told(QueueFigures(), found)
    assert list(seen) == [family.name for family in QUEUE_FAMILIES]
    assert seen["interlock_queue_messages"]["a ready"] == 2
    assert seen["interlock_queue_puts_total"] == {"a": 3, "b": 0}
    assert seen["interlock_queue_oldest_ready_seconds"] == {"a": 10.0, "b": 0.0}
    assert seen["interlock_queue_sealed"] == {"a": 0, "b": 1}
    assert seen["interlock_queues"] == {"": 2}
    assert seen["interlock_queues_cut"] == {"": 0}


def test_the_labels_of_a_sample_are_those_of_its_family() -> None:
    for family, samples in QueueFigures(1).told({"a": stats(), "b": stats()}, NOW):
        assert samples and all(len(labels) == len(family.labels) for labels, _ in samples)


def test_an_engine_without_the_oldest_age_has_no_such_metric() -> None:
    old = stats()
    del old["oldest_ready"]
    assert "interlock_queue_oldest_ready_seconds" not in told(QueueFigures(), {"a": old})


def test_queues_beyond_the_limit_are_summed_as_other() -> None:
    figures = QueueFigures(2)
    found = {name: stats(ready=1, puts=10, oldest_ready=990_000_000) for name in "abcd"}
    found["d"] = stats(ready=5, puts=1, oldest_ready=980_000_000)
    seen = told(figures, found)
    assert seen["interlock_queue_puts_total"] == {"a": 10, "b": 10, "other": 11}
    assert seen["interlock_queue_messages"]["other ready"] == 6
    assert seen["interlock_queue_oldest_ready_seconds"]["other"] == 20.0
    assert seen["interlock_queues"] == {"": 4}
    assert seen["interlock_queues_cut"] == {"": 2}


def test_a_queue_with_its_own_label_keeps_it_while_it_exists() -> None:
    figures = QueueFigures(2)
    told(figures, {"m": stats(), "n": stats()})
    seen = told(figures, {"a": stats(), "m": stats(), "n": stats()})
    assert set(seen["interlock_queue_puts_total"]) == {"m", "n", "other"}
    seen = told(figures, {"a": stats(), "n": stats()})
    assert set(seen["interlock_queue_puts_total"]) == {"a", "n"}


def test_the_counters_of_other_never_fall() -> None:
    figures = QueueFigures(1)
    before = 0.0
    steps = [
        {"a": 1, "b": 5, "c": 7},
        {"a": 1, "b": 6, "c": 7},
        {"a": 1, "b": 6},  # c was dropped
        {"b": 6, "c": 2},  # a was too: b has lines now; c was made again
        {"b": 6, "c": 1},  # and again
    ]
    sums = []
    for step in steps:
        found = {name: stats(puts=puts) for name, puts in step.items()}
        now = told(figures, found)["interlock_queue_puts_total"]["other"]
        assert now >= before
        sums.append(now)
        before = now
    assert sums == [12, 13, 13, 15, 16]


def test_a_queue_named_other_is_summed_with_the_others() -> None:
    figures = QueueFigures(2)
    assert set(told(figures, {"other": stats()})["interlock_queue_dead"]) == {"other"}
    found = {name: stats(puts=1) for name in ("other", "a", "b")}
    for family, samples in figures.told(found, NOW):
        assert len({labels for labels, _ in samples}) == len(samples), family.name
    assert told(figures, found)["interlock_queue_puts_total"] == {"a": 1, "b": 1, "other": 1}


def test_only_counters_end_in_total() -> None:
    for family in QUEUE_FAMILIES:
        assert family.name.endswith("_total") == (family.kind == "counter")
        assert (family in COUNTERS) == (family.kind == "counter")
