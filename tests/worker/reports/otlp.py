"""A receiver of spans: OTLP over HTTP, as a collector takes them."""

from __future__ import annotations

from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.worker.reports.http_receiver import HTTPReceiver


class Receiver(HTTPReceiver):
    """Keeps all spans that it is sent."""

    def __init__(self) -> None:
        super().__init__(self._take)
        self.spans: list[Span] = []
        self.url = f"http://127.0.0.1:{self.port}/v1/traces"

    def __enter__(self) -> Receiver:
        super().__enter__()
        return self

    def _take(self, path: str, body: bytes) -> bytes:
        assert path == "/v1/traces"
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans += scope.spans
        answer: bytes = ExportTraceServiceResponse().SerializeToString()
        return answer


def attributes(carrier: Any) -> dict[str, Any]:
    """Attributes of a span or a link."""
    return {one.key: _value(one.value) for one in carrier.attributes}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return None if kind is None else getattr(value, kind)
