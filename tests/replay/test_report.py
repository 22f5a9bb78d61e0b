"""The report: one object, and a text made from it."""

import json

import pytest

from interlock.replay.measure import measure
from interlock.replay.report import Summary, summarise, text
from interlock.replay.trace import Message, Trace
from interlock.replay.watch import serial_digest
from interlock.replay.ways import way
from interlock.replay.workload import parse

TRACE = Trace(
    "small",
    [Message("1", ("a",)), Message("2", ("a", "b")), Message("3", (), ("b",)), Message("4")],
)


def summary(*peers: str, trace: Trace = TRACE, digest: str | None = None) -> Summary:
    work = parse("sleep:1ms")
    outcome, *others = (measure(way(n), trace, work, workers=2) for n in ("queue", *peers))
    return summarise(
        trace,
        outcome,
        others,
        workers=2,
        work=work.spec,
        serial_digest=digest or serial_digest(trace.messages),
    )


def test_the_report_has_the_documented_fields_and_is_json() -> None:
    found = summary("serial")
    assert json.loads(json.dumps(found)) == found
    promised = {
        "messages", "keys", "workers", "violations", "digest_matches", "seconds",
        "serial_seconds", "limit_seconds", "compared", "busiest", "longest_waits",
    }  # fmt: skip
    assert promised <= found.keys()
    assert (found["messages"], found["keys"], found["workers"]) == (4, 2, 2)
    assert (found["violations"], found["digest_matches"]) == (0, True)
    assert (found["several_keys"], found["unkeyed"]) == (1, 1)
    assert (found["way"], found["pool"], found["threads"], found["lanes"]) == (
        "queue",
        "thread",
        2,
        2,
    )


def test_serial_seconds_are_measured_if_serial_ran_and_labelled_estimated_otherwise() -> None:
    found = summary("serial")
    assert found["serial_source"] == "measured"
    assert found["serial_seconds"] == found["compared"][1]["seconds"]
    found = summary()
    assert found["serial_source"] == "sum of the handlers' durations"
    assert found["serial_seconds"] == found["work_seconds"]
    assert found["compared"] == []


def test_the_limit_is_the_larger_of_path_and_shared_out_work() -> None:
    found = summary()
    assert found["limit_seconds"] == max(found["critical_path_seconds"], found["work_seconds"] / 2)
    assert found["of_limit"] == found["seconds"] / found["limit_seconds"] >= 1


def test_each_compared_way_has_its_threads_lanes_and_violations() -> None:
    rows = summary("serial", "hash", "per-key", "rendezvous", "registry")["compared"]
    assert [row["way"] for row in rows] == [
        "queue",
        "serial",
        "hash",
        "per-key",
        "rendezvous",
        "registry",
    ]
    assert [row["threads"] for row in rows] == [2, 1, 2, 4, 3, 2]
    assert [row["lanes"] for row in rows] == [2, 1, 2, 2, 2, 2]
    assert [row["violations"] for row in rows[:2]] == [0, 0]


def test_the_busiest_keys_come_first_with_how_long_they_were_held() -> None:
    busiest = summary()["busiest"]
    assert [(key["key"], key["messages"]) for key in busiest] in (
        [("a", 2), ("b", 2)],
        [("b", 2), ("a", 2)],
    )
    assert busiest[0]["seconds"] >= busiest[1]["seconds"] >= 0.002


def test_the_longest_waits_name_the_blocking_message_its_key_and_the_queue_length() -> None:
    waits = summary()["longest_waits"]
    assert [(w["id"], w["behind"], w["on"], w["ahead"]) for w in waits] == [
        ("3", "2", "b", 1),
        ("2", "1", "a", 1),
    ]
    assert waits[0]["started_after"] >= waits[0]["seconds"] > waits[1]["seconds"] > 0


def test_the_text_report_states_the_result() -> None:
    said = text(summary("serial", "hash"))
    assert "small: 4 messages on 2 keys; 1 has several keys, 1 none" in said
    assert "violations  0 (order 0, overlap 0, lost 0)" in said
    assert "equals the serial run's" in said
    assert "× the limit" in said
    assert "static hash of the first key" in said
    assert "behind 2 on b, 1 ahead" in said
    assert "\x1b" not in said


@pytest.mark.parametrize("color", [True, False])
def test_a_different_digest_is_reported_and_colored_only_on_request(color: bool) -> None:
    said = text(summary(digest="0" * 32), color=color)
    assert "differs from the serial run's" in said
    assert ("\x1b[31m" in said) is color


def test_violations_name_the_ids_of_the_trace() -> None:
    found = summary()
    found["violations"], found["violations_found"] = 1, ["order: x started before y on k"]
    assert "order: x started before y on k" in text(found)


def test_an_empty_trace_has_a_report() -> None:
    found = summary(trace=Trace("nothing"))
    assert (found["messages"], found["of_limit"], found["digest_matches"]) == (0, None, True)
    assert "0 messages on 0 keys" in text(found)


def test_failures_and_skipped_lines_are_shown() -> None:
    trace = Trace("t", [Message("2", ("a",))], ["t, line 9: not JSON"])
    outcome = measure(
        way("queue"), trace, parse("tests.replay.handlers:fail_on_2_and_exit_on_3"), workers=1
    )
    found = summarise(trace, outcome, [], workers=1, work="w", serial_digest=outcome.digest)
    assert (found["failures"], found["skipped"]) == (1, 1)
    said = text(found)
    assert "1 handler raised" in said
    assert "2: ValueError: not this one" in said
    assert "t, line 9: not JSON" in said
