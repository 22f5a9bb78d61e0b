"""The data of one run of a trace: the worker of each message, and its times.

`interlock.replay` makes a `Run` after each way of running a trace; the report and the picture are
made from it alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Record:
    """One handled message. All times are seconds since the run began."""

    index: int
    """Place in the trace, from 0; `Run.records[index]` is this record."""

    id: str
    """The message's id in the trace; an integer id is given as its digits."""

    keys: tuple[str, ...]
    """Keys held exclusively, in the trace's order, each once. Empty for an unkeyed message."""

    shared: tuple[str, ...]
    """Keys shared with other readers; none of them is in `keys`."""

    worker: int
    """The worker that handled it, from 0 to `Run.workers` - 1."""

    put_time: float
    """The time when the message was put."""

    start: float
    """The time when its handler started."""

    end: float
    """The time when its handler ended; never before `start`."""

    waited_for: int | None
    """Index of the message it waited for last: of the earlier conflicting messages, the last to
    end, if that was after `put_time`. None if it waited for no message."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a whole trace."""

    title: str
    """The run's label, such as "redis-commits.jsonl.gz, 8 workers, sleep:1ms"."""

    workers: int
    """Number of workers; `Record.worker` is below it."""

    seconds: float
    """Seconds from the first put to the end of the last handler."""

    limit_seconds: float
    """Lower bound for any schedule of these workers: the larger of the critical path and all
    handler time divided by `workers`, both from the measured durations."""

    records: Sequence[Record]
    """One for each message, in the trace's order."""
