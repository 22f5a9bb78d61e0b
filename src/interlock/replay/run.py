"""The data that one run of a trace left behind: which worker handled which message, and when.

`interlock.replay` makes a `Run` after each way of running a trace; the report and the picture
are drawn from it and from nothing else.
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
    """Keys held together with other readers; none of them is in `keys`."""

    worker: int
    """The worker that handled it, from 0 to `Run.workers` - 1."""

    put_time: float
    """The time when the message was put."""

    start: float
    """The time when its handler started."""

    end: float
    """The time when its handler ended; never before `start`."""

    waited_for: int | None
    """Index of the message it waited for last: of the conflicting messages before it, the one
    that ended last, where that was after `put_time`. None if it waited for no message."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a whole trace."""

    title: str
    """The run in words, such as "redis-commits.jsonl.gz, 8 workers, sleep:1ms"."""

    workers: int
    """The number of workers; `Record.worker` is below it."""

    seconds: float
    """From the first put to the end of the last handler."""

    limit_seconds: float
    """No schedule of these workers could be shorter: the larger of the critical path and
    all handler time divided by `workers`, both from the measured durations."""

    records: Sequence[Record]
    """One for each message, in the trace's order."""
