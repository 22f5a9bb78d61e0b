"""Threads at work: a real trace, and one slow handler among quick ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from benchmarks.drive import Clock, together
from benchmarks.row import Pair, Row, Sample, alternating
from interlock import KeyedQueue, ShutDown
from interlock.auditor import Auditor
from interlock.replay.limit import limit
from interlock.replay.trace import Message, read

TRACE = Path(__file__).parents[2] / "examples" / "data" / "redis-commits.jsonl.gz"
WORK = 0.001
SLOW = 1.0
SLOW_WORKERS = 8
PACE = 0.0005
PUTS = 1_600
KEYS = 100


@cache
def messages() -> list[Message]:
    """Return the recorded messages; a 1 ms handler for each takes 11 s on one thread."""
    return read(TRACE).messages


def makespan(workers: int, _pair: int) -> Pair:
    """Measure the whole trace, put at once, beside the limit.

    The limit is max(critical path, work ÷ workers) of the handlers as they were measured. A queue
    that keeps the interpreter busy makes the handlers longer too; `work` in the raw results shows
    it (11 s is what they ask for).
    """
    trace = messages()
    queue: KeyedQueue[int] = KeyedQueue()
    auditor = Auditor()
    durations = [0.0] * len(trace)

    def handle(place: int) -> None:
        clock = Clock()
        auditor.started(place)
        time.sleep(WORK)
        auditor.ended(place)
        durations[place] = clock.seconds()

    def put_all() -> None:
        for place, message in enumerate(trace):
            queue.put(place, keys=message.keys, shared=message.shared)
        queue.shutdown()

    worker = partial(_work, queue, handle)
    seconds = together([put_all, *[worker] * workers])
    for place, message in enumerate(trace):
        auditor.expect(place, message.keys, message.shared)
    verdict = auditor.check()
    bound = limit(trace, durations, workers)
    ours = Sample(
        seconds,
        len(trace),
        lost=verdict.lost + verdict.unfinished + verdict.repeated,
        misordered=verdict.order + verdict.overlap,
        details={"critical_path": bound.critical_path, "work": bound.work},
    )
    return Pair(ours, Sample(bound.seconds, len(trace)))


def waits(slow: bool) -> Sample:
    """Measure waits at about 1,800 messages a second for 8 workers, 1 ms each.

    With `slow` the first takes a second.

    One in 20 holds the slow one's key and is left out of the figure: the rest have nothing to
    wait for. The value is the 99th percentile of the time from a put to its handler's start.
    """
    queue: KeyedQueue[int] = KeyedQueue()
    auditor = Auditor()
    put_at = [0.0] * PUTS
    waited = [0.0] * PUTS
    keys = ["slow" if number % 20 == 0 else f"account:{number % KEYS}" for number in range(PUTS)]

    def handle(number: int) -> None:
        waited[number] = time.perf_counter() - put_at[number]
        auditor.started(number)
        time.sleep(SLOW if slow and number == 0 else WORK)
        auditor.ended(number)

    def put_all() -> None:
        for number, key in enumerate(keys):
            put_at[number] = time.perf_counter()
            queue.put(number, keys=key)
            time.sleep(PACE)
        queue.shutdown()

    together([put_all, *[partial(_work, queue, handle)] * SLOW_WORKERS])
    for number, key in enumerate(keys):
        auditor.expect(number, [key])
    verdict = auditor.check()
    free = sorted(wait for wait, key in zip(waited, keys, strict=True) if key != "slow")
    return Sample(
        free[int(len(free) * 0.99)] * 1e3,
        PUTS,
        lost=verdict.lost + verdict.unfinished + verdict.repeated,
        misordered=verdict.order + verdict.overlap,
        details={"p50": free[len(free) // 2] * 1e3, "longest": free[-1] * 1e3},
    )


def _work(queue: KeyedQueue[int], handle: Callable[[int], None]) -> None:
    while True:
        try:
            lease = queue.get()
        except ShutDown:
            return
        with lease as number:
            handle(number)


ROWS = (
    *(
        Row(
            name=f"trace/makespan-{workers}",
            title=f"makespan of a real trace, {workers} workers, about 1 ms each",
            peer="the limit",
            bar=1.05,
            unit="s",
            pair=partial(makespan, workers),
        )
        for workers in (4, 8)
    ),
    Row(
        name="trace/slow-handler",
        title="one handler of 1 s among 1 ms ones: p99 wait of the others",
        peer="the same run without it",
        bar=1.1,
        unit="ms",
        pair=alternating(partial(waits, True), partial(waits, False)),
    ),
)
