"""`interlock worker --processes N`: several workers under one process."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys

from interlock.cli.worker import metrics as worker_metrics
from interlock.cli.worker.log import say, set_up
from interlock.cli.worker.ready_file import ReadyFile
from interlock.runtime.systemd import Notifier
from interlock.worker.process.supervisor import Supervisor


def supervise(given: argparse.Namespace) -> int:
    """Run them until a signal."""
    set_up(given)
    main = sys.modules["__main__"]
    is_file = main.__spec__ is not None or os.path.isfile(getattr(main, "__file__", None) or "")
    if not is_file and "-c" not in sys.orig_argv:
        print(
            "interlock: --processes runs the program in each worker process, but this program "
            "is not a file (an interactive session, or read from stdin); save it as a file",
            file=sys.stderr,
            flush=True,
        )
        return BAD_INPUT
    notifier = Notifier.of(os.environ)
    command = [sys.executable, *sys.orig_argv[1:]]
    measured = given.metrics is not None
    supervisor = Supervisor(command, given.processes, measured)
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
            ready_file.write()
            say(given, f"{given.processes} workers are ready", data=True)
            notifier.ready(f"{given.processes} workers are ready")

        return supervisor.run(ready, lambda: notifier.stopping("waiting for running handlers"))


BAD_INPUT = 2
