"""`interlock worker`: handle the messages of an app's tasks until TERM or INT."""

from __future__ import annotations

import argparse
import os
import sys

from interlock.cli.flags import Flag, listening, positive, seconds, share
from interlock.cli.worker import directory as worker_directory
from interlock.cli.worker import stacks as worker_stacks
from interlock.cli.worker.log import LOG_LEVELS

FLAGS = (
    Flag("--url", "the engine; overrides the app's own and INTERLOCK_URL", "URL"),
    Flag("--queues", "lease from these queues only, separated by commas (all queues of the app's "
         "tasks)", "NAMES"),
    Flag("--concurrency", "maximum number of handlers at the same time (16; with --pool process "
         "one per core)", "N", positive),
    Flag("--unkeyed", "number of them reserved for messages without keys (0)", "N", positive, 0),
    Flag("--pool", "where handlers run: threads, tasks of one event loop, or processes (thread)",
         choices=("thread", "asyncio", "process"), default="thread"),
    Flag("--processes", "worker processes, each with its own handlers (1)", "N", positive,
         1),
    Flag("--lease", "seconds of a lease, after which a killed worker's messages go to another; "
         "renewed after a third of it while handlers run (30)", "SECONDS", seconds, 30.0),
    Flag("--drain-timeout", "seconds for handlers to finish after TERM (25)", "SECONDS",
         seconds, 25.0),
    Flag("--ready-file", "write the process id to this file once the engine has answered; removed "
         "at the end", "FILE"),
    Flag("--metrics", "address of /metrics for Prometheus, /health and /ready, on loopback unless "
         "a host is given; one port for all --processes; port 0: a free one",
         "[HOST:]PORT", listening),
    Flag("--audit", "check each message independently for order, overlap and attempts; a violation "
         "is logged as an error, and the exit code is 1"),
    Flag("--no-timetable", (
         "do not send the calls of @app.cron and @app.every; another worker does"
    )),
    Flag("--record", "append each handled message to this file, as a trace for `interlock replay`; "
         "workers may share a file", "FILE"),
    Flag("--record-limit", "end the recording before the file exceeds this many MiB (100)", "MIB",
         positive, 100),
    Flag("--record-sample", "record only the messages of this share of the keys, such as 0.1; all "
         "workers choose the same keys (1)", "SHARE", share, 1.0),
    Flag("--record-payloads", "record the arguments of calls too"),
    Flag("--watch", "restart when a module of the program changes; for development"),
    Flag("--log-level", "log level; info and debug add a line for each handled message. It applies "
         "to other loggers if the app configures no logging (notice)",
         choices=tuple(LOG_LEVELS), default="notice"),
    Flag("--log-format", "format of log lines, if the app configures no logging (text)",
         choices=("text", "json"), default="text"),
    *worker_stacks.FLAGS,
    *worker_directory.FLAGS,
)  # fmt: skip


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "worker",
        usage="interlock worker MODULE:APP [FLAG ...]\n"
        "       interlock worker list [--url URL] [--json]\n"
        "       interlock worker stacks ID [--url URL] [--json]\n"
        "       interlock worker drain ID [--wait] [--url URL] [--json]\n"
        "       interlock worker stacks [--json] [--pid N]",
        description="Handle the messages of an app's tasks. With a word instead of an app: 'list' "
        "shows the workers of all machines, 'stacks' shows what the handlers of a worker are "
        "doing now (without an ID, those of this user's workers on this machine), and "
        "'drain' makes a worker take no more messages and exit.",
        epilog="TERM and INT stop it: it takes no more messages, lets handlers finish and returns "
        "the rest to the queue. A second signal, or the end of the drain timeout, returns "
        "the messages of running handlers too. Exit codes: 0 stopped, every message "
        "settled; 1 a message was returned while its handler was running, the auditor found "
        "a violation, or the worker failed; 2 wrong usage, no such app or queue.",
    )
    parser.add_argument(
        "app", metavar="MODULE:APP", help="module and variable of the app, or list, stacks, drain"
    )
    parser.add_argument("id", metavar="ID", nargs="?", help="with stacks and drain: ID of a worker")
    for flag in FLAGS:
        flag.add_to(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Run the worker; or supervise several, or query running ones."""
    if given.app == "stacks" and given.id is None:
        return worker_stacks.run(given)
    if given.app in worker_directory.WORDS:
        return worker_directory.run(given)
    if given.id is not None:
        return refuse(f"{given.id!r} is one word too many: a worker takes one MODULE:APP")
    if given.wait:
        return refuse("--wait is for `interlock worker drain`; leave it out")
    if given.pid is not None:
        return refuse("--pid is for `interlock worker stacks`; leave it out")
    # As in `python -m`; the folder of the command is not a place for a program's modules.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    from interlock.worker.process.supervisor import VARIABLE

    if VARIABLE in os.environ:
        # One of several: the whole program is run again in it, with the same flags.
        given.processes, given.ready_file, given.metrics = 1, None, None
    if given.processes > 1:
        if given.watch:
            return refuse("--watch is for one process; leave out --processes")
        from interlock.cli.worker.many import supervise

        return supervise(given)
    from interlock.app.app import App
    from interlock.cli.worker.process import WorkerProcess
    from interlock.worker.process.app_reference import NoApp, load

    process = WorkerProcess(given)
    try:
        app = load(given.app, App)
        process.prepare(app)
    except NoApp as error:
        sys.stderr.write(error.traceback)
        return process.wait_for_change() if given.watch else refuse(str(error))
    except (ValueError, TypeError) as error:
        return refuse(str(error))
    return process.run()


def refuse(message: str) -> int:
    """Print wrong usage or bad input, and return the exit code for it."""
    print(f"interlock: {message}", file=sys.stderr, flush=True)
    return BAD_INPUT


BROKEN = 1
BAD_INPUT = 2
