"""An app whose sends and handlings are traced, to the receiver that SPANS_TO names."""

from __future__ import annotations

import os

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from interlock.app import App
from interlock.contrib.opentelemetry import instrument
from interlock.retry import Retry

app = App(audit=True, retry=Retry(first=0.01))


def provider_to(url: str) -> TracerProvider:
    """Makes what sends spans there; it drops none, as one of the usual size does."""
    provider = TracerProvider()
    exporter = OTLPSpanExporter(endpoint=url)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=500_000))
    return provider


if "SPANS_TO" in os.environ:
    instrument(app, provider_to(os.environ["SPANS_TO"]))


@app.task(keys="account:{account}")
def book(account: int, number: int) -> None:
    """Does nothing."""


@app.task(keys="account:{account}")
async def book_async(account: int, number: int) -> None:
    """Does nothing, as a coroutine."""
