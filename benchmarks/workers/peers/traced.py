"""Ours, with a span for each send, wait and handling of the messages that are sampled: one in a
hundred, or the share in BENCH_SAMPLING. Spans are made and batched, and sent nowhere."""

import os
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

from benchmarks.workers.handled import BROKER, note
from interlock.app import App
from interlock.contrib.opentelemetry import instrument

SAMPLING = float(os.environ.get("BENCH_SAMPLING", "0.01"))


class Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


provider = TracerProvider(sampler=ParentBasedTraceIdRatio(SAMPLING))
provider.add_span_processor(BatchSpanProcessor(Nowhere()))
app = App(BROKER)
instrument(app, provider)


@app.task(name="noop", keys="account:{number}")
def noop(number: int) -> None:
    note(number)


def enqueue(numbers: range) -> None:
    for number in numbers:
        noop.send(number)


WORKER = ("interlock", "worker", f"{__package__}.traced:app", "--log-level", "error")
