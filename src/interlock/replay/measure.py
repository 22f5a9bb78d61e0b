"""Running a trace in one way and measuring it."""

from __future__ import annotations

import gc
import multiprocessing
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier

from interlock.auditor import Verdict
from interlock.replay.limit import Limit, limit, waited_for
from interlock.replay.progress import Progress
from interlock.replay.run import Record, Run
from interlock.replay.trace import Trace
from interlock.replay.watch import Watch
from interlock.replay.ways import Job, Pool, Shape, Way
from interlock.replay.workload import Workload, check_picklable
from interlock.runtime.concurrency import Limits


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run and its measurements."""

    way: Way
    pool: Pool
    shape: Shape
    run: Run
    limit: Limit
    verdict: Verdict
    digest: str
    """The ledger's digest of all keys after the run."""

    failures: tuple[tuple[str, str], ...]
    """Id and error of each message whose handler raised; such a message counts as handled."""


def measure(
    way: Way,
    trace: Trace,
    work: Workload,
    *,
    workers: int,
    pool: Pool = "thread",
    progress: Progress | None = None,
    limits: Limits | None = None,
    grouped: bool = False,
) -> Outcome:
    """Run the whole trace once in this way, with these limits of the queue, and with groups or not.

    Raises ValueError if the way has no such pool, or the work cannot be sent to its processes.
    Errors of the run itself are raised; handlers' exceptions are counted in `Outcome.failures`.
    """
    if pool not in way.pools:
        raise ValueError(f"pool {pool!r}; allowed for {way.name}: {', '.join(way.pools)}")
    watch = Watch(trace.messages, work)
    shape = way.shape(trace.messages, workers, pool)
    if shape.processes:
        # Not left to the pool: ending a process while the pool finds that out can hang the
        # interpreter at its exit (CPython before 3.12.8 and 3.13.1, gh-125451).
        check_picklable(work)
    with _processes(shape.processes) as executor:
        job = Job(trace.messages, workers, watch, pool, executor, limits, grouped)
        # Every way starts with the same heap: none pays for the previous one.
        gc.collect()
        with (progress or Progress()).of(way.name, len(trace.messages), lambda: watch.finished):
            way.run(job)
    return _outcome(way, pool, shape, trace, work, workers, watch)


def _outcome(
    way: Way, pool: Pool, shape: Shape, trace: Trace, work: Workload, workers: int, watch: Watch
) -> Outcome:
    messages = trace.messages
    begin = watch.puts[0] if messages else 0
    puts, starts, ends = (
        [(moment - begin) / 1e9 for moment in moments]
        for moments in (watch.puts, watch.starts, watch.ends)
    )
    durations = [end - start for start, end in zip(starts, ends, strict=True)]
    at_once = workers if pool == "asyncio" else shape.processes or shape.threads
    shortest = limit(messages, durations, at_once)
    blockers = waited_for(messages, puts, ends)
    run = Run(
        title=f"{trace.name}: {way.title}, {workers} workers, {work.spec}",
        workers=max(workers, max(watch.workers, default=0) + 1),
        seconds=max(ends, default=0.0),
        limit_seconds=shortest.seconds,
        records=[
            Record(index, m.id, m.keys, m.shared, worker, put, start, end, blocker)
            for index, (m, worker, put, start, end, blocker) in enumerate(
                zip(messages, watch.workers, puts, starts, ends, blockers, strict=True)
            )
        ],
    )
    failures = tuple((messages[index].id, error) for index, error in sorted(watch.failures))
    return Outcome(
        way, pool, shape, run, shortest, watch.verdict(), watch.ledger.digest(), failures
    )


@contextmanager
def _processes(count: int) -> Iterator[Executor | None]:
    """Yield a process pool of this many processes, all started; None if it is 0."""
    if not count:
        yield None
        return
    # Never fork: threads may be running, and a child would inherit their locks without them.
    context = multiprocessing.get_context("spawn")
    others, threads = set(multiprocessing.active_children()), set(threading.enumerate())
    pool = ProcessPoolExecutor(count, context, _meet, (context.Barrier(count),))
    its_own: list[threading.Thread] = []
    try:
        # No process takes a call before all have started, so each of these starts another one.
        for up in [pool.submit(int) for _ in range(count)]:
            up.result()
        its_own = [one for one in set(threading.enumerate()) - threads if not one.daemon]
        yield pool
    except BaseException:
        # A handler that never returns would be waited for.
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - others:
            # Not by a signal that the work's imports may handle.
            process.kill()
        for thread in its_own:
            # The interpreter's exit would write to its pipe while closing it. But an interrupted
            # thread may have a lock that this thread waits for.
            thread.join(LONGEST_JOIN)
        raise
    finally:
        pool.shutdown()


def _meet(barrier: Barrier) -> None:
    # Ctrl-C goes to the whole group of processes; the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    barrier.wait(LONGEST_SPAWN)


LONGEST_SPAWN = 60.0
LONGEST_JOIN = 5.0
