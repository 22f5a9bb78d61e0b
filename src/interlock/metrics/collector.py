"""The metrics of a worker as prometheus-client collects them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from interlock.metrics.families import WORKER_FAMILIES
from interlock.runtime.installation import needs
from interlock.runtime.queue_figures import Family
from interlock.worker.message.meter import BOUNDS, Reading

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from interlock.worker.worker import Worker

__all__ = ["WorkerCollector", "body"]


class WorkerCollector:
    """Collector for prometheus-client with the metrics of a worker in this program.

    ::

        prometheus_client.REGISTRY.register(WorkerCollector(worker))

    The worker counts from then on, so register it before the worker is started. The command
    ``interlock worker --metrics`` registers it by itself.

    Raises:
        ImportError: prometheus-client is not installed.
    """

    def __init__(self, worker: Worker) -> None:
        needed()
        self._worker = worker.measure()

    def describe(self) -> list[Metric]:
        """Return nothing: a worker's families depend on the messages it has handled."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        return families(self._worker.reading())


class _Collected:
    """The metrics of one scrape, for the writer of prometheus-client."""

    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self.collect = collect


def body(reading: Reading) -> str:
    """Return a reading in the text format of Prometheus."""
    client = needed()
    written: bytes = client.generate_latest(_Collected(lambda: families(reading)))
    return written.decode()


def families(reading: Reading) -> Iterator[Metric]:
    """Yield the families of a reading, in their order, including those without a sample."""
    from prometheus_client import core
    from prometheus_client.utils import floatToGoString

    found: dict[str, list[Any]] = {}
    for name, labels, value in (*reading.counters, *reading.gauges, *reading.histograms):
        found.setdefault(name, []).append((labels, value))
    bounds = [floatToGoString(one) for one in (*BOUNDS, float("inf"))]  # type: ignore[no-untyped-call]
    metric: Any
    for name, family in WORKER_FAMILIES.items():
        told = sorted(found.get(name, ()))
        if family.kind == "histogram":
            metric = core.HistogramMetricFamily(family.name, sentence(family), labels=family.labels)
            for labels, (*counts, seconds) in told:
                metric.add_metric(
                    labels, list(zip(bounds, accumulate(counts), strict=True)), seconds
                )
        else:
            made = core.CounterMetricFamily if family.kind == "counter" else core.GaugeMetricFamily
            metric = made(family.name, sentence(family), labels=family.labels)
            for labels, value in told:
                metric.add_metric(labels, value)
        yield metric


def sentence(family: Family) -> str:
    """Return the help of a family as written in the text."""
    return f"{family.help[:1].upper()}{family.help[1:]}."


def needed() -> Any:
    """Return prometheus-client. Raises ImportError with the command that installs it."""
    try:
        import prometheus_client
    except ImportError:
        raise ImportError(
            f"metrics of a worker need prometheus-client: {needs('metrics')}"
        ) from None
    return prometheus_client
