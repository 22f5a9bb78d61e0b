"""Recipes of the page about watching workers, with many handlers at once, as a user would."""

from __future__ import annotations

import collections
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest

from interlock import Reject
from interlock.app import App
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


class Span:
    def __init__(self, name: str, parent: Any) -> None:
        self.name, self.parent = name, parent
        self.attributes: dict[str, str] = {}
        self.errors: list[BaseException] = []
        self.ended = 0

    def set_attribute(self, name: str, value: str) -> None:
        self.attributes[name] = value

    def record_exception(self, error: BaseException) -> None:
        self.errors.append(error)

    def set_status(self, status: str) -> None:
        assert status == "error"

    def end(self) -> None:
        self.ended += 1


class Telemetry:
    """Stands for OpenTelemetry: as much of it as the page uses."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.attached = threading.local()
        self.sent = 0
        self.modules = {
            "propagate": types.SimpleNamespace(inject=self.inject, extract=dict),
            "trace": types.SimpleNamespace(
                get_tracer=lambda name: self,
                SpanKind=types.SimpleNamespace(CONSUMER="consumer"),
                StatusCode=types.SimpleNamespace(ERROR="error"),
                set_span_in_context=lambda span, context: (span, context),
            ),
            "context": types.SimpleNamespace(attach=self.attach, detach=self.detach),
        }

    def inject(self, headers: dict[str, str]) -> None:
        self.sent += 1
        headers["traceparent"] = str(self.sent)

    def start_span(self, name: str, parent: dict[str, str], kind: str) -> Span:
        assert kind == "consumer"
        span = Span(name, parent["traceparent"])
        self.spans.append(span)
        return span

    def attach(self, context: Any) -> Any:
        return context, threading.get_ident()

    def detach(self, token: Any) -> None:
        assert token[1] == threading.get_ident()


@pytest.fixture
def telemetry(monkeypatch: pytest.MonkeyPatch) -> Telemetry:
    made = Telemetry()
    module = types.ModuleType("opentelemetry")
    vars(module).update(made.modules)
    monkeypatch.setitem(sys.modules, "opentelemetry", module)
    return made


@pytest.mark.parametrize("pool", ["thread", "asyncio"])
def test_each_span_of_the_traces_is_ended_once(app: App, telemetry: Telemetry, pool: str) -> None:
    recipe("def carry(", {"app": app})
    handle_many(app, pool)
    assert [span.ended for span in telemetry.spans] == [1] * MANY
    assert {span.parent for span in telemetry.spans} == {str(n + 1) for n in range(MANY)}
    assert len({span.attributes["messaging.message.id"] for span in telemetry.spans}) == MANY
    assert sum(len(span.errors) for span in telemetry.spans) == 100
