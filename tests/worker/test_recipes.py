"""Metrics by hooks, as the page about watching workers has them, and traces: with many handlers at
once, as a user would."""

from __future__ import annotations

import collections
import threading
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from interlock import Reject
from interlock.app import App
from interlock.contrib.opentelemetry import instrument
from tests.docs.snippets import blocks
from tests.worker.workers import ROOT

pytestmark = pytest.mark.parametrize("engine", ["memory", "redis", "hub"], indirect=True)
PAGE = ROOT / "docs/howto/watch-workers.md"
MANY = 400


def recipe(text: str, names: dict[str, Any]) -> dict[str, Any]:
    """Runs the snippet of the page that has this text, but for the lines that make its own app."""
    (code,) = ["\n".join(one.code) for one in blocks(Path(PAGE)) if text in "\n".join(one.code)]
    kept = code.partition("\nmetrics = Metrics()")[0].replace('app = App("memory://")', "")
    exec(compile(kept, str(PAGE), "exec"), names)
    return names


def handle_many(app: App, pool: str) -> None:
    """Calls that wait when the worker begins, so that it leases many with each call."""

    together = threading.Barrier(16)

    @app.task
    def square(number: int) -> int:
        together.wait(30)
        if number % 4 == 3:
            raise Reject("odd")
        return number * number

    for number in range(MANY):
        square.send(number)
    with app.worker(threads=16, pool=pool):
        app._queue("default").join(30)


@pytest.mark.parametrize("pool", ["thread", "asyncio"])
def test_no_count_and_no_time_is_lost_of_metrics(app: App, pool: str) -> None:
    class Noting(collections.Counter[str]):
        noted = 0

        def __setitem__(self, key: str, value: float) -> None:
            self.noted += 1
            super().__setitem__(key, value)  # type: ignore[assignment]

    metrics = recipe("class Metrics(", {})["Metrics"]()
    metrics.seconds = Noting()
    app.use(metrics)
    handle_many(app, pool)
    assert metrics.count == {("square", "done"): 300, ("square", "reject"): 100}
    assert metrics.seconds.noted == MANY


@pytest.mark.parametrize("pool", ["thread", "asyncio"])
def test_each_span_of_the_traces_is_ended_once(app: App, pool: str) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = instrument(app, provider)
    handle_many(app, pool)
    tracing.flush()
    spans = exporter.get_finished_spans()
    kinds = {"send": MANY, "wait": MANY, "process": MANY}
    assert collections.Counter(span.name.split()[0] for span in spans) == kinds
    sent = {span.context.span_id for span in spans if span.kind is SpanKind.PRODUCER}
    for kind in (SpanKind.CONSUMER, SpanKind.INTERNAL):
        mine = [span for span in spans if span.kind is kind]
        assert {span.parent.span_id for span in mine if span.parent} == sent
        ids = {(span.attributes or {})["messaging.message.id"] for span in mine}
        assert len(ids) == MANY
    told = [span.attributes or {} for span in spans if span.kind is SpanKind.CONSUMER]
    outcomes = collections.Counter(str(one["interlock.outcome"]) for one in told)
    assert outcomes == {"done": 300, "rejected": 100}
