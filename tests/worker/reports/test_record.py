"""`--record`: what a live worker handles is a trace that can be replayed."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from interlock import Retry
from interlock.app import App
from interlock.cli import main, parser
from interlock.cli.worker.process import recording
from interlock.replay.trace import read
from interlock.worker.message.execution import TaskLease
from interlock.worker.reports.recorder import Recorder
from interlock.worker.settings import Recording


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def lease(number: int, *keys: bytes, attempt: int = 1) -> TaskLease:
    return TaskLease(
        queue="q", id=1_700_000_000_000_000 + number, sequence=1_700_000_000_000_000 + number,
        attempt=attempt, token=1_700_000_001_000_000 + number * 10 + attempt,
        keys=frozenset(keys), shared=frozenset(), payload=b"", task="t",
    )  # fmt: skip


@pytest.mark.parametrize("engine", ["redis", "hub"], indirect=True)
@pytest.mark.parametrize("pool", ["thread", "asyncio"])
def test_a_recording_of_workers_can_be_replayed(
    app: App, pool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trace.jsonl"
    seen: list[tuple[int, int]] = []

    @app.task(keys="key:{key}", shared="all", retry=Retry(3, first=0.001))
    def move(key: int, number: int) -> None:
        seen.append((key, number))
        if number == 7 and seen.count((key, number)) == 1:
            raise ValueError("once")

    wanted = Recording(str(file), payloads=True)

    def worker() -> Any:
        return app._worker(queues=("default",), concurrency=4, pool=pool, unkeyed=0, audit=True,
                           record=wanted)  # fmt: skip

    with worker() as first, worker() as second:
        for number in range(60):
            move.send(number % 5, number)
        app._queue("default").join(30)
    assert first.figures().violations == second.figures().violations == 0
    told = lines(file)
    assert len(told) == 61, "60 messages, and a second attempt"
    assert {one["task"] for one in told} == {"move"} and {one["queue"] for one in told} == {
        "default"
    }
    for one in told:
        assert one["time"] <= one["leased"] <= one["started"] <= one["ended"], one
        assert one["started"] + one["took"] == pytest.approx(one["ended"], abs=1e-3)
    trace = read(file)
    assert [one.payload["args"][1] for one in trace.messages] == list(range(60))
    assert {one.keys for one in trace.messages} == {(f"key:{key}",) for key in range(5)}
    assert {one.shared for one in trace.messages} == {("all",)}
    picture = tmp_path / "run.svg"
    code = main(["replay", str(file), "--work", "recorded", "--json", "--picture", str(picture)])
    assert code == 0 and picture.stat().st_size > 1000
    assert json.loads(capsys.readouterr().out)["violations"] == 0


def test_a_sample_has_all_messages_of_its_keys(tmp_path: Path) -> None:
    files = [tmp_path / "a", tmp_path / "b"]
    recorders = [Recorder(Recording(str(file), sample=0.2), None, file.name) for file in files]
    for number in range(1000):
        # Every other message of a key is with the other worker.
        one, held = recorders[number // 100 % 2], lease(number, b"key %d" % (number % 100))
        one.begun(held)
        one.ended(held)
    for one in recorders:
        one.close()
    first, second = ([line["keys"][0] for line in lines(file)] for file in files)
    assert set(first) == set(second) and 5 <= len(set(first)) <= 40
    assert len(first) == 5 * len(set(first)) and len(second) == len(first)


def test_a_recording_at_its_limit_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.worker.reports import recorder

    monkeypatch.setattr(recorder, "MUCH", 1)
    file = tmp_path / "trace"
    one = Recorder(Recording(str(file), limit=2000), None, "w")
    for number in range(100):
        held = lease(number, b"\xff" * 1000 if number == 1 else b"k")
        one.begun(held)
        one.ended(held)
    one.close()
    assert file.stat().st_size <= 2000
    assert caplog.text.count("recording to") == 1
    assert caplog.records[-1].levelno == logging.WARNING
    assert len(read(file).messages) == len(lines(file)) > 3
    again = Recorder(Recording(str(file)), None, "w")
    again.begun(lease(200))
    again.withdrawn(lease(200))
    again.close()
    assert len(read(file).messages) == len(lines(file)), "what did not begin is not there"


def test_a_line_that_does_not_fit_on_the_disk_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    # As a disk does on which 1,000 bytes are left.
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:1000]))
    file = tmp_path / "trace"
    one = Recorder(Recording(str(file)), None, "w")
    for number in range(100):
        one.begun(lease(number))
        one.ended(lease(number))
    one.close()
    assert "the disk is full" in caplog.text
    assert 500 < file.stat().st_size <= 1000
    assert len(read(file).messages) == len(lines(file)) > 2


def test_the_flags_choose_what_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = parser("worker").parse_args(["worker", "m:a"])
    assert recording(given) is None
    words = ["worker", "m:a", "--record", "t.jsonl", "--record-limit", "3", "--record-sample",
             "0.1", "--record-payloads"]  # fmt: skip
    given = parser("worker").parse_args(words)
    assert recording(given) == Recording(str(tmp_path / "t.jsonl"), 3 * 2**20, 0.1, True)
    for wrong in ("0", "1.5", "x", "nan"):
        with pytest.raises(SystemExit):
            parser("worker").parse_args(["worker", "m:a", "--record-sample", wrong])
