"""The mailbox of a main thread: what threads put, and signals whichever thread they come to."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading

import pytest

from interlock.worker.process.mailbox import Mailbox

PROGRAM = """
import signal, threading, time
from interlock.worker.process.mailbox import Mailbox

box = Mailbox()
box.tell_of((signal.SIGTERM, signal.SIGINT), "signal")
other = threading.Thread(target=lambda: threading.Event().wait(), daemon=True)
other.start()
main = threading.main_thread().native_id

def send() -> None:
    # Once the main thread waits, to a thread that runs no handler of Python's.
    while open(f"/proc/self/task/{main}/wchan").read() == "0":
        pass
    signal.pthread_kill(other.ident, signal.SIGTERM)

for _ in range(20):
    threading.Thread(target=send).start()
    print(box.get(), flush=True)
"""


def test_a_signal_delivered_to_another_thread_reaches_the_mailbox() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=40, check=False
    )
    assert (run.stdout, run.stderr) == ("signal\n" * 20, "")


def test_waking_up_for_signals_returns_no_item() -> None:
    box: Mailbox[str] = Mailbox()
    before = signal.getsignal(signal.SIGUSR1)
    try:
        box.tell_of((signal.SIGUSR1,), "signal")
        signal.raise_signal(signal.SIGUSR1)
        assert box.get(timeout=40) == "signal"
        with pytest.raises(queue.Empty):
            box.get(timeout=0)
        threading.Thread(target=box.put, args=("told",)).start()
        assert box.get() == "told"
    finally:
        signal.signal(signal.SIGUSR1, before)
        signal.set_wakeup_fd(-1)
