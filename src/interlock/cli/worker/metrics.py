"""The metrics of `interlock worker`: of one process, or of all that one supervises."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping

from interlock.cli.metrics_server import serving
from interlock.metrics import collector
from interlock.metrics.pages import Pages
from interlock.worker.process.supervisor import Supervisor
from interlock.worker.worker import Worker


@contextlib.contextmanager
def of_worker(
    where: tuple[str, int] | None, worker: Worker, is_ready: Callable[[], bool]
) -> Iterator[str]:
    """Serve the metrics of a worker in this process, and yield the address; without `where` none.

    Raises OSError if it cannot listen, ImportError if prometheus-client is not installed.
    """
    if where is None:
        yield ""
        return

    def health() -> Mapping[str, object]:
        if worker.broken is not None:
            return {"status": f"broken: {worker.broken}"}
        return {"status": "ok" if worker.answers(LONGEST_ANSWER) else "the worker hangs"}

    def metrics() -> str:
        reading = worker.reading()
        reading.counters.append(["restarts", [], 0])
        reading.gauges.append(["ready", [], int(is_ready())])
        return collector.body(reading)

    collector.needed()
    worker.measure()
    ready = lambda: "" if is_ready() else f"waiting for {worker.waits_for}, or stopping"  # noqa: E731
    with serving(where, Pages(metrics, ready, health)) as address:
        yield address


@contextlib.contextmanager
def of_supervisor(
    where: tuple[str, int] | None, supervisor: Supervisor, count: int
) -> Iterator[str]:
    """Serve the metrics of the workers of a supervisor; see `of_worker`."""
    if where is None:
        yield ""
        return

    def ready() -> str:
        return "" if supervisor.is_ready else "not all workers are ready, or they are stopping"

    def health() -> Mapping[str, object]:
        return {"status": "ok", "processes": supervisor.running, "wanted": count}

    def metrics() -> str:
        return collector.body(supervisor.reading(LONGEST_ANSWER))

    collector.needed()
    ended = threading.Event()

    def ask() -> None:
        # So that little is lost when a worker is killed between scrapes.
        while not ended.wait(OFTEN):
            supervisor.reading(LONGEST_ANSWER)

    threading.Thread(target=ask, name="interlock-readings", daemon=True).start()
    try:
        with serving(where, Pages(metrics, ready, health)) as address:
            yield address
    finally:
        ended.set()


LONGEST_ANSWER = 2.0
"""Seconds to wait for a process that may hang."""
OFTEN = 5.0
"""Seconds between unscraped readings of the workers."""
