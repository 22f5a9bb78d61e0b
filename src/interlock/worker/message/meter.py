"""The meter of a worker: how long messages waited and were handled, and their outcomes.

It counts by queue and task in plain lists and dicts, because it is called for each message; the
metrics format is produced when somebody scrapes.
"""

from __future__ import annotations

import collections
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from interlock.client.wire import messages as wire

if TYPE_CHECKING:
    from interlock.client.faces.batch import LeasedBatch
    from interlock.worker.loop.batch_run import BatchRun
    from interlock.worker.message.execution import Execution, Outcome, TaskLease

__all__ = ["BOUNDS", "OTHER", "UNREADABLE", "Histogram", "Meter", "Reading", "outcome_name"]

BOUNDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
          1800.0)  # fmt: skip
"""Upper bounds in seconds of the buckets of both histograms; one more bucket has longer
durations."""
MOST_TASKS = 200
"""Number of tasks with figures of their own."""
OTHER = "other"
"""The name under which the remaining tasks are summed."""
UNREADABLE = "unreadable"
"""The task name for messages that are not a readable call."""


class Reading(NamedTuple):
    """The figures at one moment, each a list of name, labels and value; can be written as JSON."""

    counters: list[list[Any]]
    gauges: list[list[Any]]
    histograms: list[list[Any]]
    """The value is the number in each bucket, followed by their sum in seconds."""


class Histogram:
    """Counts of durations by how long they are, and their sum in seconds."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0


class Series:
    """The figures of one task on one queue."""

    __slots__ = ("handlings", "lost", "outcomes", "timeouts", "waits")

    def __init__(self) -> None:
        self.waits = Histogram()
        """From the put, or the due time, to the lease; first attempts only."""
        self.handlings = Histogram()
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.lost = 0
        self.timeouts = 0


class Meter:
    """The figures of one worker, counted by its owner and by the thread of its batches."""

    def __init__(self, queues: Iterable[str] = ()) -> None:
        """``queues``: those for which it reports zeros from the beginning."""
        # Held only for a few additions.
        self._lock = threading.Lock()
        self._series: dict[tuple[str, str], Series] = {}
        self._tasks: dict[str, None] = {}
        self._cut: set[str] = set()
        self._released = collections.Counter(dict.fromkeys(queues, 0))
        self._unknown = collections.Counter(self._released)

    # -- Counting ---------------------------------------------------------------------------------

    def ended(self, execution: Execution, outcome: Outcome, settles: bool) -> None:
        """Count a handler that has ended; `settles`: this settles the message."""
        # Inlined, because this runs for each message, too.
        held, started = execution.held, execution.started
        took = (execution.ended or 0.0) - (execution.offered if started is None else started)
        name = "acked" if outcome.how == "ack" else outcome_name(outcome)
        with self._lock:
            series = self._series.get((held.queue, held.task)) or self._of(held.queue, held.task)
            times = series.handlings
            times.counts[bisect_left(BOUNDS, took)] += 1
            times.sum += took
            if held.attempt == 1:
                waited = (held._leased_at - held.sequence) / 1e6
                times = series.waits
                times.counts[bisect_left(BOUNDS, waited)] += 1
                # Below 0 after the clock was set back, for instance.
                times.sum += waited if waited > 0 else 0.0
            if settles:
                series.outcomes[name] += 1

    def settled(self, held: TaskLease, outcome: Outcome) -> None:
        """Count a message that is settled without a handler, or while its handler still runs."""
        with self._lock:
            self._of(held.queue, held.task).outcomes[outcome_name(outcome)] += 1

    def timed_out(self, held: TaskLease) -> None:
        """Count a handler that exceeded its task's timeout."""
        with self._lock:
            self._of(held.queue, held.task).timeouts += 1

    def lost(self, held: TaskLease) -> None:
        """Count a settlement that came too late."""
        with self._lock:
            self._of(held.queue, held.task).lost += 1

    def released(self, queue: str, count: int = 1) -> None:
        """Count messages that are returned before a handler has begun them."""
        with self._lock:
            self._released[queue] += count

    def unknown(self, queue: str) -> None:
        """Count a message of a task that this worker does not have."""
        with self._lock:
            self._unknown[queue] += 1

    def handled(self, run: BatchRun, first: int, last: int, ended: float) -> None:
        """Count the messages of a batch that have ended, from index `first` to before `last`;
        `ended`: the time.monotonic() at which the last of them did."""
        if first >= last or not run.turns:
            # Empty, or the meter is newer than the batch.
            return
        waits, step = _waits(run.batch, first, last)
        queue, turns = run.source.name, run.turns
        with self._lock:
            for number, (begin, since, task) in enumerate(turns, 1):
                end, until = turns[number][:2] if number < len(turns) else (last, ended)
                if begin < first:
                    begin, since = first, run.begun
                if end > last:
                    end, until = last, ended
                if begin >= end:
                    continue
                series = self._of(queue, task)
                series.outcomes["acked"] += end - begin
                handlings, waited = series.handlings, series.waits
                handlings.counts[0] += end - begin
                handlings.sum += until - since
                while begin < end:
                    stride = (begin - first) // step
                    stop = min(end, first + (stride + 1) * step)
                    bucket, seconds = waits[stride]
                    if bucket >= 0:
                        waited.counts[bucket] += stop - begin
                        waited.sum += seconds * (stop - begin)
                    begin = stop
            if run.slow or ended - run.begun > BOUNDS[0]:
                self._count_slow(run, first, last, ended)
            if run.others:
                self._count_failed(run, first, last)

    def _count_slow(self, run: BatchRun, first: int, last: int, ended: float) -> None:
        """Count slow messages as slow: they were counted with the quick ones, and their seconds
        too."""
        slow = [one for one in run.slow if first <= one[0] < last]
        if run.begun and last == run.ended:
            slow.append((last - 1, ended - run.begun))
        for place, seconds in slow:
            counts = self._of(run.source.name, _task_at(run, place)).handlings.counts
            counts[0] -= 1
            counts[bisect_left(BOUNDS, seconds)] += 1

    def _count_failed(self, run: BatchRun, first: int, last: int) -> None:
        """Count failed messages as failed: they were counted with the successful ones."""
        failed = [(at, outcome) for at, outcome in run.others if outcome.how != "ack"]
        place_of = {at: place for place, at in enumerate(run.batch.places)} if failed else {}
        for at, outcome in failed:
            place = place_of[at]
            if first <= place < last:
                outcomes = self._of(run.source.name, _task_at(run, place)).outcomes
                outcomes["acked"] -= 1
                outcomes[outcome_name(outcome)] += 1

    def _of(self, queue: str, task: str) -> Series:
        found = self._series.get((queue, task))
        if found is None:
            name = task or UNREADABLE
            if name not in self._tasks:
                if len(self._tasks) >= MOST_TASKS:
                    self._cut.add(name)
                    name = OTHER
                else:
                    self._tasks[name] = None
            # Under its other name as well, so that the next lookup finds it immediately.
            found = self._series.setdefault((queue, name), Series())
            self._series[queue, task] = found
        return found

    # -- Telling ----------------------------------------------------------------------------------

    def read(self) -> Reading:
        """Return the current figures."""
        told = Reading([], [], [])
        with self._lock:
            for (queue, task), series in self._series.items():
                if not task or (task in self._cut):
                    continue  # the same list under another name
                labels = [queue, task]
                for outcome, count in series.outcomes.items():
                    told.counters.append(["handled", [*labels, outcome], count])
                told.counters.append(["lost", labels, series.lost])
                told.counters.append(["timeouts", labels, series.timeouts])
                for name, one in (("wait", series.waits), ("handling", series.handlings)):
                    told.histograms.append([name, labels, [*one.counts, one.sum]])
            for name, counts in (("released", self._released), ("unknown", self._unknown)):
                told.counters.extend([name, [queue], count] for queue, count in counts.items())
            told.gauges.append(["tasks_cut", [], len(self._cut)])
        return told


def outcome_name(outcome: Outcome) -> str:
    """Return the outcome of a message, in the words of the metrics."""
    if outcome.how == "defer":
        return "deferred"
    if outcome.how == "drop":
        return "expired"
    if outcome.how == "reject":
        return "rejected"
    return outcome.expected


def _waits(batch: LeasedBatch, first: int, last: int) -> tuple[list[tuple[int, float]], int]:
    """Return how long messages waited, as a bucket and seconds, and how many messages each
    represents.

    They were leased together, so only a few are examined, each representing those after it. If some
    were handled before, all are examined; the bucket of those is -1.
    """
    reply, places, token = batch.reply, batch.places, batch.token
    alike = batch.all_first or all(reply[place + wire.ATTEMPT] in wire.FIRST for place in places)
    step = -(-(last - first) // MOST_LOOKED_AT) if alike else 1
    found = []
    for number in range(first, last, step):
        place = places[number]
        if alike or reply[place + wire.ATTEMPT] in wire.FIRST:
            sequence = int(reply[place + wire.SEQUENCE] or reply[place])
            seconds = (token - sequence) / 1e6 if token > sequence else 0.0
            found.append((bisect_left(BOUNDS, seconds), seconds))
        else:
            found.append((-1, 0.0))
    return found, step


def _task_at(run: BatchRun, place: int) -> str:
    """Return the task of the message with this number."""
    return run.turns[bisect_right(run.turns, place, key=itemgetter(0)) - 1][2]


MOST_LOOKED_AT = 4
