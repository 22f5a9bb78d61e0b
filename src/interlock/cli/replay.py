"""`interlock replay TRACE`: run recorded messages in order per key, and check the order."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag, positive
from interlock.errors import InterlockError
from interlock.explanation import printable_json
from interlock.replay.groups import grouped, is_of_key
from interlock.replay.limit_names import limited
from interlock.replay.trace import Trace, TraceError, read, read_git

if TYPE_CHECKING:
    from interlock.replay.measure import Outcome
    from interlock.replay.ways import Pool, Way
    from interlock.replay.workload import Workload
    from interlock.runtime.concurrency import Limits

FLAGS = (
    Flag("--git", "replay the history of a repository: commits, keyed by the files they touched",
         "REPO"),
    Flag("--workers", "maximum number of messages handled at the same time (8)", "N", positive, 8),
    Flag("--work", "what a handler does: sleep:1ms, spin:100us, hash, recorded (it takes as long "
         "as when it was recorded), or module:function, called with the message (sleep:1ms)",
         "WORK", default="sleep:1ms"),
    Flag("--way", "what runs the messages: queue, executor or taskgroup (queue)",
         choices=("queue", "executor", "taskgroup"), default="queue"),
    Flag("--pool", "where handlers run (thread; for taskgroup only asyncio)",
         choices=("thread", "process", "asyncio")),
    Flag("--url", "run through a queue on an engine, created for this run and removed after it: "
         "interlock://HOST:PORT of a hub, redis://HOST:PORT, memory://; repeatable, and the "
         "first is reported in full", "URL", many=True),
    Flag("--compare", "also run the trace in other common ways: one thread, static hash, a queue "
         "and a thread for each key, rendezvous, scanning registry"),
    Flag("--json", "print one JSON object instead of text"),
    Flag("--picture", "draw the run: which worker handled each message, when, and what waited",
         "FILE.html|.svg"),
    Flag("--skip-bad", "count bad lines and continue"),
    Flag("--limit", "replay the first N messages only", "N", positive),
    Flag("--limits", "run with limits and rates of the queue, such as bank=4,api=10/1s:20, and "
         "report how much longer it takes than without them; a message counts under a name if its "
         "line has it as limit, or if one of its keys begins with it", "LIST"),
    Flag("--group", "run with groups that take turns, and report how long each waits with and "
         "without turns: the field of a line, or of its payload, that is the group, such as "
         "tenant; key: the first key; key/: its part before the first /", "FIELD"),
)  # fmt: skip


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the subcommand."""
    parser = commands.add_parser(
        "replay",
        description="Replay recorded messages in order per key, never two conflicting ones at the "
        "same time, and all others in parallel; then check the order independently.",
        epilog="TRACE has one JSON object per line, with id, keys, and optionally shared, time, "
        "payload. Exit codes: 0 order was kept, 1 it was not or the run failed, 2 wrong "
        "usage or bad input, 130 Ctrl-C.",
    )
    parser.add_argument(
        "trace", metavar="TRACE", nargs="?", help="JSON lines, plain or gzip; - for standard input"
    )
    for flag in FLAGS:
        flag.add_to(parser)
    parser.set_defaults(run=run, fail=parser.error)


def run(given: argparse.Namespace) -> int:
    """Replay as the flags say; return 0 if order was kept, else 1."""
    from interlock.replay import workload
    from interlock.replay.ways import way

    if given.url and given.way != "queue":
        given.fail(f"--url with --way {given.way}; allowed: --way queue")
    pools = way(given.way).pools if not given.url else ("thread", "process")
    given.pool = given.pool or pools[0]
    if given.pool not in pools:
        of = f"--way {given.way}" if not given.url else "--url"
        given.fail(f"--pool {given.pool}; allowed with {of}: {', '.join(pools)}")
    if (given.trace is None) == (given.git is None):
        given.fail("give either TRACE or --git REPO")
    if given.limits and given.way != "queue":
        given.fail(f"--limits with --way {given.way}; allowed: --way queue")
    _check_group(given)
    _check_picture(given)
    try:
        limits = _limits(given)
        work = workload.parse(given.work)
        if given.pool == "process":
            workload.check_picklable(work)
        trace = _read(given)
        if limits:
            trace = limited(trace, limits)
        if given.group:
            trace = grouped(trace, given.group)
    except (TraceError, workload.WorkloadError) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.filename or given.trace or given.git}: {error.strerror or error}")
    try:
        ours = _through(given.url) if given.url else [way(given.way)]
    except (ImportError, ValueError) as error:
        return _refuse(f"--url: {error}")
    except InterlockError as error:
        from interlock.cli.queue.subcommand import explained

        print(f"interlock: {explained(str(error))}", file=sys.stderr)
        return BROKEN
    return _replay(given, trace, work, ours, limits)


def _limits(given: argparse.Namespace) -> Limits | None:
    if given.limits is None:
        return None
    from interlock.cli.queue.actions.configure import typed
    from interlock.runtime.concurrency import limits_text

    try:
        found: Any = typed("limits", given.limits)
        limits_text(found, "--limits")
    except ValueError as error:
        given.fail(str(error))
    return found or None


def _through(urls: list[str]) -> list[Way]:
    from interlock.replay.ways import remote

    return [remote.way(url) for url in urls]


def _read(given: argparse.Namespace) -> Trace:
    if given.git is not None:
        return read_git(given.git, skip_bad=given.skip_bad, limit=given.limit)
    field = None if given.group is None or is_of_key(given.group) else given.group
    return read(given.trace, skip_bad=given.skip_bad, limit=given.limit, group=field)


def _replay(
    given: argparse.Namespace,
    trace: Trace,
    work: Workload,
    ours: list[Way],
    limits: Limits | None,
) -> int:
    from interlock.replay import report
    from interlock.replay.measure import measure
    from interlock.replay.progress import Progress
    from interlock.replay.watch import serial_digest
    from interlock.replay.ways import PEERS, way

    progress = Progress(sys.stderr)

    def run_way(
        one: Way, pool: Pool, limits: Limits | None = None, grouped: bool = False
    ) -> Outcome:
        return measure(
            one,
            trace,
            work,
            workers=given.workers,
            pool=pool,
            progress=progress,
            limits=limits,
            grouped=grouped,
        )

    in_turns = bool(given.group)

    # The whole trace is put in one go: deep queues and long waits are expected here, and the report
    # at the end shows how long messages waited, and for what.
    logging.getLogger("interlock.queue").setLevel(logging.CRITICAL)
    try:
        outcome, *others = [run_way(one, given.pool, limits, in_turns) for one in ours]
        unlimited = run_way(ours[0], given.pool, None, in_turns) if limits else None
        ungrouped = run_way(ours[0], given.pool, limits) if in_turns else None
        # The other ways use threads and processes; a coroutine runs on a loop of each thread.
        pool: Pool = "process" if given.pool == "process" else "thread"
        # Through an engine: compare with the same queue without one, too.
        names = ("queue", *PEERS) if given.url else PEERS
        peers = [run_way(way(name), pool) for name in names] if given.compare else []
    except Exception as error:
        log.debug("the run broke", exc_info=True)
        print(f"interlock: the run failed: {type(error).__name__}: {error}", file=sys.stderr)
        return BROKEN
    finally:
        logging.getLogger("interlock.queue").setLevel(logging.NOTSET)
    summary = report.summarise(
        trace,
        outcome,
        [*others, *peers],
        workers=given.workers,
        work=work.spec,
        serial_digest=serial_digest(trace.messages),
        limits=limits,
        unlimited=unlimited,
        ungrouped=ungrouped,
    )
    if given.json:
        print(printable_json(summary, indent=2))
    else:
        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        print(report.text(summary, color=color), end="")
    if given.picture is not None:
        from interlock.replay import picture

        picture.write(Path(given.picture), outcome.run)
        print(f"picture written to {given.picture}", file=sys.stderr)
    # The other ways may break the order; ours must not, on any engine.
    ours_kept = [row["violations"] == 0 and row["digest_matches"]
                 for row in (summary, *summary["compared"][1 : 1 + len(others)])]  # fmt: skip
    return 0 if all(ours_kept) else BROKEN


def _check_group(given: argparse.Namespace) -> None:
    if given.group is None:
        return
    if given.way != "queue":
        given.fail(f"--group with --way {given.way}; allowed: --way queue")
    if not given.group:
        given.fail("--group is empty; allowed: a field, key, or key and a separator")
    if given.git is not None and not is_of_key(given.group):
        given.fail(f"--group {given.group} with --git; allowed: key, key/")


def _check_picture(given: argparse.Namespace) -> None:
    """Check --picture before the run, which may take minutes."""
    if given.picture is None:
        return
    path = Path(given.picture)
    if path.suffix not in (".html", ".svg"):
        given.fail(f"--picture {given.picture}; allowed: a file that ends in .html or .svg")
    if not path.parent.is_dir():
        given.fail(f"--picture {given.picture}: there is no folder {path.parent}")


def _refuse(message: str) -> int:
    print(f"interlock: {message}", file=sys.stderr)
    return BAD_INPUT


log = logging.getLogger("interlock.replay")
BROKEN = 1
BAD_INPUT = 2
