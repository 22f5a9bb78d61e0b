"""The scenarios, a module for each group of rows; the table lists them in this order."""

from benchmarks.row import Row
from benchmarks.scenarios import (
    asynchronous,
    behaviours,
    core,
    engines,
    executors,
    hub,
    queues,
    restarts,
    single,
    threads,
    trace,
    workers,
)

ROWS: tuple[Row, ...] = (
    *single.ROWS,
    *threads.ROWS,
    *executors.ROWS,
    *behaviours.ROWS,
    *asynchronous.ROWS,
    *core.ROWS,
    *trace.ROWS,
    *hub.ROWS,
    *queues.ROWS,
    *restarts.ROWS,
    *engines.ROWS,
    *workers.ROWS,
)
