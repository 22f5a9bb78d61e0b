"""The scenarios, a module for each group of rows; the table lists them in this order."""

import sys

from benchmarks.row import Row
from benchmarks.scenarios import (
    asynchronous,
    behaviours,
    core,
    engines,
    executors,
    exporter,
    hub,
    queues,
    restarts,
    sends,
    single,
    threads,
    trace,
    workers,
)

if sys.platform == "linux":
    from benchmarks.scenarios import cluster, footprint, outbox, stores, tables

    _TABLES: tuple[Row, ...] = tables.ROWS
    _STORES: tuple[Row, ...] = stores.ROWS
    _CLUSTER: tuple[Row, ...] = cluster.ROWS
    _OUTBOX: tuple[Row, ...] = outbox.ROWS
    _FOOTPRINT: tuple[Row, ...] = footprint.ROWS
else:
    _TABLES = _STORES = _CLUSTER = _OUTBOX = _FOOTPRINT = ()

ROWS: tuple[Row, ...] = (
    *single.ROWS,
    *threads.ROWS,
    *executors.ROWS,
    *behaviours.ROWS,
    *asynchronous.ROWS,
    *core.ROWS,
    *trace.ROWS,
    *_TABLES,
    *_CLUSTER,
    *hub.ROWS,
    *_STORES,
    *queues.ROWS,
    *restarts.ROWS,
    *engines.ROWS,
    *sends.ROWS,
    *_OUTBOX,
    *workers.ROWS,
    *exporter.ROWS,
    *_FOOTPRINT,
)
