"""`interlock worker --processes N`: several workers under one process."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys

from interlock.cli import worker_metrics
from interlock.cli.worker_log import say, set_up
from interlock.cli.worker_ready import ReadyFile
from interlock.systemd import Notifier
from interlock.worker.supervisor import Supervisor


def supervise(given: argparse.Namespace) -> int:
    """Run them until a signal."""
    set_up(given)
    notifier = Notifier.of(os.environ)
    command = [sys.executable, *sys.orig_argv[1:]]
    measured = given.metrics is not None
    supervisor = Supervisor(without_processes(command), given.processes, measured)
    supervisor.stop_at(signal.SIGINT, signal.SIGTERM)
    with contextlib.ExitStack() as stack:
        try:
            address = stack.enter_context(
                worker_metrics.of_supervisor(given.metrics, supervisor, given.processes)
            )
        except (OSError, ImportError) as error:
            print(f"interlock: {error}", file=sys.stderr, flush=True)
            return BAD_INPUT
        ready_file = stack.enter_context(ReadyFile(given.ready_file))
        if address:
            say(given, f"metrics on http://{address}/metrics", data=True)

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
        elif word in THE_SUPERVISORS:
            skip = True
        elif not word.startswith(tuple(f"{flag}=" for flag in THE_SUPERVISORS)):
            kept.append(word)
    return kept


BAD_INPUT = 2
THE_SUPERVISORS = ("--processes", "--ready-file", "--metrics")
