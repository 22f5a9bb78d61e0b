"""Work after a message was handled, by a thread of its own: all of it is done."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from interlock.contrib import afterwards
from interlock.contrib.afterwards import Afterwards

PROGRAM = """
import time
from interlock.contrib.afterwards import Afterwards

def slow(number):
    time.sleep(0.01)
    print(number, flush=True)

later = Afterwards("later")
for number in range(20):
    later.do(lambda number=number: slow(number))
"""


def test_deferred_work_runs_in_order_and_drain_waits_for_it() -> None:
    done: list[int] = []
    later = Afterwards("later")
    for number in range(500):
        later.do(lambda number=number: done.append(number))  # type: ignore[misc]
    later.drain()
    assert done == list(range(500))


def test_work_beyond_the_limit_runs_on_the_caller_s_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(afterwards, "MOST_WAITING", 3)
    gate, threads = threading.Event(), []
    later = Afterwards("later")
    later.do(lambda: gate.wait(30))
    for _ in range(10):
        later.do(lambda: threads.append(threading.current_thread()))
    own = [thread for thread in threads if thread is threading.current_thread()]
    # Whether the thread has taken the first already.
    assert len(own) in (7, 8)
    gate.set()
    later.drain()
    assert len(threads) == 10


def test_work_that_raises_does_not_stop_later_work(caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []
    later = Afterwards("later")
    later.do(lambda: done.append(1 // 0))
    later.do(lambda: done.append(2))
    later.drain()
    assert done == [2]
    (record,) = caplog.records
    assert record.getMessage() == "a call scheduled for after a message was handled raised"


def test_remaining_work_runs_at_interpreter_exit() -> None:
    program = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60
    )
    assert program.stdout.split() == [str(number) for number in range(20)], program.stderr
