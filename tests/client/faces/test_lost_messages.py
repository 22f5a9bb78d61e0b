"""Messages put without a named engine are not lost silently."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys

import pytest

from interlock import connect
from tests.worker.workers import PATIENCE, ROOT

UNSETTLED = "not settled, and lost with the memory of this process; no engine is named"


def ran(program: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "INTERLOCK_URL"}
    done = subprocess.run(
        [sys.executable, "-c", f"import interlock, os\n{program}"],
        env={**kept, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_a_program_that_ends_logs_the_unhandled_messages_of_each_queue() -> None:
    said = ran(
        "client = interlock.connect()\n"
        "a, b, c = map(client.queue, 'abc')\n"
        "a.put(1); b.put_many([1, 2, 3]); c.put(1)\n"
        "with c.get(): pass\n"
        "b.get().ack()\n"
    )
    assert said.count(UNSETTLED) == 2
    assert f"1 message of queue 'a' {UNSETTLED}" in said
    assert f"2 messages of queue 'b' {UNSETTLED}" in said


@pytest.mark.parametrize(
    "program",
    [
        "interlock.connect('memory://').queue('a').put(1)",
        "os.environ['INTERLOCK_URL'] = 'memory://'; interlock.connect().queue('a').put(1)",
        "q = interlock.connect().queue('a'); q.put(1); q.get().ack()",
    ],
)
def test_no_warning_is_logged_for_handled_messages_or_an_explicit_memory_engine(
    program: str,
) -> None:
    assert ran(program) == ""


def test_the_warning_is_logged_once_when_the_client_is_closed_or_collected(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("INTERLOCK_URL", raising=False)
    with connect() as client:
        client.queue("a").put(1)
    client.close()
    gc.collect()
    assert [(one.levelno, one.__dict__["unsettled"]) for one in caplog.records] == [
        (logging.ERROR, 1)
    ]
    connect().queue("a").put(1)
    gc.collect()
    assert len(caplog.records) == 2
