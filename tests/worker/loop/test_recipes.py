"""Traces with many handlers at once, of messages that are leased together."""

from __future__ import annotations

import collections
import threading

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from interlock import Reject
from interlock.app import App
from interlock.contrib.opentelemetry import instrument

pytestmark = pytest.mark.parametrize("engine", ["memory", "redis", "hub"], indirect=True)
MANY = 400


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
    assert outcomes == {"acked": 300, "rejected": 100}
