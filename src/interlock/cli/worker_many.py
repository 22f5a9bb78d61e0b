"""`interlock worker --processes N`: several workers under one process."""

from __future__ import annotations

import argparse
import os
import signal
import sys

from interlock.cli.worker_log import say, set_up
from interlock.cli.worker_ready import ReadyFile
from interlock.systemd import Notifier
from interlock.worker.supervisor import Supervisor


def supervise(given: argparse.Namespace) -> int:
    """Run them until a signal."""
    set_up(given)
    notifier = Notifier.of(os.environ)
    command = [sys.executable, *sys.orig_argv[1:]]
    supervisor = Supervisor(without_processes(command), given.processes)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda signum, _: supervisor.signalled(signum))
    with ReadyFile(given.ready_file) as ready_file:

        def ready() -> None:
            say(given, f"{given.processes} workers are ready", data=True)
            ready_file.write()
            notifier.ready(f"{given.processes} workers are ready")

        return supervisor.run(ready, lambda: notifier.stopping("finishing what has begun"))


def without_processes(command: list[str]) -> list[str]:
    """Return the command of one worker: without what is the supervisor's."""
    kept: list[str] = []
    skip = False
    for word in command:
        if skip:
            skip = False
        elif word in ("--processes", "--ready-file"):
            skip = True
        elif not word.startswith(("--processes=", "--ready-file=")):
            kept.append(word)
    return kept
