"""Traces by OpenTelemetry: which spans there are, what they tell, and that none is lost."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler
from opentelemetry.trace import SpanKind, StatusCode

from interlock import Handling, InterlockError, Reject, RetryAfter, current_lease
from interlock.app import App
from interlock.app.middleware import Sending
from interlock.contrib.opentelemetry import Tracing, instrument
from interlock.retry import Retry
from tests.worker.apps import traced
from tests.worker.reports.otlp import Receiver, attributes
from tests.worker.workers import PATIENCE, Workers, wait_for

MESSAGES = int(os.environ.get("INTERLOCK_TRACED", "200"))
"""Messages of which no span may be lost; 10,000 for a whole run."""


class Traced:
    """An app, and the spans that it made."""

    def __init__(self, sampler: Sampler, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=ParentBased(sampler), shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.app = App("memory://", retry=Retry(3))
        self.tracing = instrument(self.app, self.provider, **options)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def of(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name.startswith(f"{name} ")]


@pytest.fixture
def sampled() -> Traced:
    return Traced(ALWAYS_ON)


def told(span: ReadableSpan) -> dict[str, Any]:
    assert span.attributes is not None
    return dict(span.attributes)


def links_of(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    found: int = span.context.span_id
    return found


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


# -- None lost ------------------------------------------------------------------------------------


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.mark.watchdog(600 if MESSAGES > 1000 else 90)
@pytest.mark.parametrize("pool", ["thread", "asyncio", "process"])
def test_every_message_has_its_spans(
    workers: Workers, url: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, pool: str
) -> None:
    provider = traced.provider_to(receiver.url)
    monkeypatch.setattr(traced.app, "_hooks", type(traced.app._hooks)())
    instrument(traced.app, provider)
    traced.app.close()
    traced.app.url = url
    task = traced.book_async if pool == "asyncio" else traced.book
    ids: list[int] = []

    def send(first: int) -> None:
        for number in range(first, MESSAGES, 16):
            ids.append(task.send(number % 50, number).id)

    handlers = "2" if pool == "process" else "16"
    worker = workers.start(
        "--pool", pool, "--concurrency", handlers, app="tests.worker.apps.traced:app",
        SPANS_TO=receiver.url,
    )  # fmt: skip
    threads = [threading.Thread(target=send, args=(first,)) for first in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    traced.app._queue("default").join(500 if MESSAGES > 1000 else PATIENCE)
    assert worker.stopped() == 0, worker.output
    provider.shutdown()
    traced.app.close()
    # The processes of a pool send what they have when they end, which the worker does not wait for.
    wait_for(lambda: len(receiver.spans) >= 3 * MESSAGES, f"{len(receiver.spans)} spans")

    spans: dict[str, dict[str, Any]] = {"send": {}, "wait": {}, "process": {}}
    for span in receiver.spans:
        name, id = span.name.split()[0], attributes(span)["messaging.message.id"]
        assert id not in spans[name], "told twice"
        spans[name][id] = span
    assert all({*of} == {str(id) for id in ids} for of in spans.values())
    handled = {span.span_id: span for span in spans["process"].values()}
    linked = 0
    for id, wait in spans["wait"].items():
        send_span, process = spans["send"][id], spans["process"][id]
        assert {wait.parent_span_id, process.parent_span_id} == {send_span.span_id}
        assert {wait.trace_id, process.trace_id} == {send_span.trace_id}
        assert wait.start_time_unix_nano <= wait.end_time_unix_nano
        assert wait.end_time_unix_nano <= process.start_time_unix_nano
        # It began when the message was put, which the send was over with a little later.
        assert wait.start_time_unix_nano <= send_span.end_time_unix_nano
        for link in wait.links:
            linked += 1
            before = handled[link.span_id]
            assert attributes(before)["interlock.keys"] == attributes(process)["interlock.keys"]
            assert before.end_time_unix_nano <= process.start_time_unix_nano
            # It was handled while this one waited.
            assert before.end_time_unix_nano >= wait.start_time_unix_nano
    assert linked or pool == "process"


# -- Contents -------------------------------------------------------------------------------------


def test_span_names_follow_the_semantic_conventions(sampled: Traced) -> None:
    @sampled.app.task(keys="a:{n}", shared="r:{n}", queue="mail")
    def post(n: int) -> None:
        """Does nothing."""

    with sampled.app.testing() as worker:
        job = post.send(1)
        worker.run_until_idle()
    (sent,), (wait,), (process,) = (sampled.of(name) for name in ("send", "wait", "process"))
    assert [sent.name, wait.name, process.name] == [
        "send mail", "wait mail", "process mail",
    ]  # fmt: skip
    assert [sent.kind, wait.kind, process.kind] == [
        SpanKind.PRODUCER, SpanKind.INTERNAL, SpanKind.CONSUMER,
    ]  # fmt: skip
    common = {
        "messaging.system": "interlock",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job.id),
        "interlock.task": "post",
    }
    keys = {"interlock.keys": ("a:1",), "interlock.shared": ("r:1",)}
    operation = "messaging.operation.name", "messaging.operation.type"
    assert told(sent) == common | keys | dict(zip(operation, ("send", "send"), strict=True))
    assert told(wait) == common | {operation[0]: "wait"}
    assert told(process) == common | keys | dict(
        zip(operation, ("process", "process"), strict=True)
    ) | {
        "interlock.attempt": 1,
        "interlock.token": told(process)["interlock.token"],
        "interlock.outcome": "acked",
    }
    assert parent_of(wait) == parent_of(process) == id_of(sent)


def test_spans_name_the_server_of_the_engine() -> None:
    found = Traced(ALWAYS_ON)

    @found.app.task
    def post() -> None: ...

    for url, server in (
        ("redis://:secret@db.lan:6380/2", {"server.address": "db.lan", "server.port": 6380}),
        ("interlock://[::1]:6399", {"server.address": "::1", "server.port": 6399}),
        ("unix:/run/redis.sock", {"server.address": "/run/redis.sock"}),
        ("memory://", {}),
    ):
        sending = Sending("post", "q", (), {}, frozenset(), frozenset(), engine=url)
        found.tracing.before_send(sending)
        found.tracing.on_send_error(sending, RuntimeError())
        seen = told(found.spans[-1])
        assert {name: seen[name] for name in seen if name.startswith("server.")} == server


def test_keys_can_be_omitted_from_spans() -> None:
    found = Traced(ALWAYS_ON, keys=False)

    @found.app.task(keys="a:{n}")
    def post(n: int) -> None:
        """Does nothing."""

    with found.app.testing() as worker:
        post.send(1)
        post.send(1)
        worker.run_until_idle()
    assert len(found.spans) == 6
    assert not [span for span in found.spans if "a:1" in span.to_json()]
    assert [len(wait.links) for wait in found.of("wait")] == [0, 1]


def test_a_span_links_to_the_message_it_waited_for(sampled: Traced) -> None:
    app = sampled.app

    @app.task(keys=lambda keys, readers: keys, shared=lambda keys, readers: readers)
    def post(keys: list[str], readers: list[str]) -> None:
        """Does nothing."""

    with app.testing() as worker:
        for keys, readers in (
            (["a"], []), (["b"], []), (["a", "b"], []), ([], ["a"]), ([], ["a"]), (["a"], []),
        ):  # fmt: skip
            post.send(keys, readers)
        worker.run_until_idle()
        worker.advance(60)
        post.send(["a"], [])
        worker.run_until_idle()
    one, two, both, reads, reads_too, last, _ = (id_of(span) for span in sampled.of("process"))
    found = [set(links_of(span)) for span in sampled.of("wait")]
    assert found == [
        set(), set(), {one, two}, {one, both}, {one, both}, {one, both, reads, reads_too},
        # At its put, nothing was left.
        set(),
    ]  # fmt: skip
    assert last not in found[-1]
    (link, *_) = sampled.of("wait")[2].links
    assert link.attributes is not None
    assert link.attributes["interlock.link"] == "waited_behind"
    assert set(told(sampled.of("wait")[2])["interlock.behind.message.id"]) == {"1", "2"}


def test_the_engine_names_the_message_a_span_waited_for(sampled: Traced) -> None:
    asking = Traced(ALWAYS_ON, explain=True)

    @asking.app.task(keys="a:{n}")
    def post(n: int) -> None:
        """Does nothing."""

    # Nothing is handled here: as if other processes did.
    with asking.app.testing():
        for _ in range(2):
            post.send(1)
        wait_for(lambda: len(asking.spans) == 2, "both sends end")
    first, second = sorted(asking.spans, key=lambda span: span.start_time or 0)
    assert (links_of(first), links_of(second)) == ([], [id_of(first)])
    assert told(second)["interlock.behind.message.id"] == ("1",)
    assert (second.end_time or 0) < time.time_ns()


def test_an_engine_that_does_not_explain_loses_no_span(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise InterlockError("no right to read")

    monkeypatch.setattr("interlock.client.admin.operator.Operator.explain", refused)
    asking = Traced(ALWAYS_ON, explain=True)

    @asking.app.task(keys="a:{n}")
    def post(n: int) -> None:
        """Does nothing."""

    with asking.app.testing(), caplog.at_level(logging.WARNING, "interlock.app"):
        for _ in range(3):
            post.send(1)
        wait_for(lambda: len(asking.spans) == 3, "the sends end")
    assert [record.getMessage() for record in caplog.records] == [
        "queue 'default': spans do not record what messages wait behind: no right to read"
    ]


def test_a_failure_sets_an_error_status_and_steering_does_not(sampled: Traced) -> None:
    app = sampled.app

    @app.task(keys="a:{how}")
    def post(how: str) -> None:
        lease = current_lease()
        if how == "raise" and lease.attempt == 1:
            raise LookupError("no such letter")
        if how == "later" and lease.attempt == 1:
            raise RetryAfter(1)
        if how == "reject":
            raise Reject("no")

    with app.testing() as worker:
        for how in ("raise", "later", "reject"):
            post.send(how)
        with pytest.raises(LookupError):
            worker.run_until_idle()
        for _ in range(3):
            worker.advance(100)
            worker.run_until_idle()
    spans = sampled.of("process")
    found = {(told(one)["interlock.keys"][0], told(one)["interlock.attempt"]): one for one in spans}
    outcomes = {at: told(one)["interlock.outcome"] for at, one in found.items()}
    assert outcomes == {
        ("a:raise", 1): "failed", ("a:raise", 2): "acked", ("a:later", 1): "deferred",
        ("a:later", 2): "acked", ("a:reject", 1): "rejected",
    }  # fmt: skip
    wrong = [at for at, one in found.items() if one.status.status_code is StatusCode.ERROR]
    assert wrong == [("a:raise", 1)]
    failed = found["a:raise", 1]
    assert told(failed)["error.type"] == "LookupError"
    (event,) = failed.events
    assert event.attributes is not None
    assert event.attributes["exception.message"] == "no such letter"
    # A wait is reported once, for the first attempt; all attempts are in one trace.
    assert len(sampled.of("wait")) == 3
    assert parent_of(failed) == parent_of(found["a:raise", 2])


def test_spans_and_sends_of_a_handler_are_children_of_its_span(sampled: Traced) -> None:
    app = sampled.app
    seen: list[int] = []

    @app.task
    async def inner() -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)

    @app.task
    def outer() -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)
        inner.send()

    with app.testing() as worker:
        outer.send()
        worker.run_until_idle()
    outside, inside = sampled.of("process")
    assert seen == [id_of(outside), id_of(inside)]
    (send_inner,) = [
        span for span in sampled.of("send") if told(span)["interlock.task"].endswith("inner")
    ]
    assert parent_of(send_inner) == id_of(outside)
    assert parent_of(inside) == id_of(send_inner)
    assert len({span.context.trace_id for span in sampled.spans if span.context}) == 1
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_send_that_fails_ends_its_span_as_an_error(sampled: Traced) -> None:
    @sampled.app.task
    def post(what: object) -> None:
        """Never runs."""

    with sampled.app.testing() as worker:
        with pytest.raises(InterlockError):
            post.send(object())
        worker.run_until_idle()
    (span,) = sampled.spans
    assert span.status.status_code is StatusCode.ERROR
    assert told(span)["error.type"] == "interlock.errors.PayloadError"


# -- Not sampled ----------------------------------------------------------------------------------


def headers_seen(app: App) -> list[dict[str, str]]:
    seen: list[dict[str, str]] = []

    @app.before_handle
    def see(handling: Handling) -> None:
        seen.append(handling.headers)

    return seen


def test_an_unsampled_send_has_no_headers_and_no_overhead() -> None:
    found = Traced(ALWAYS_OFF)
    tasks = found.app._as_tasks()

    @found.app.task
    def post(n: int) -> None:
        """Does nothing."""

    with found.app.testing() as worker:
        assert not found.app._hooks.handling
        seen = headers_seen(found.app)
        assert found.app._hooks.handling
        post.send(1)
        worker.run_until_idle()
    assert (found.spans, seen) == ([], [{}])
    # That of the plain calls, which hooks around handlers would close.
    assert tasks.plain is not found.app._as_tasks()._plain


def test_a_sender_that_is_not_sampled_has_no_span_below_it(sampled: Traced) -> None:
    @sampled.app.task
    def post(n: int) -> None:
        """Does nothing."""

    off = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    with (
        off.get_tracer("web").start_as_current_span("request"),
        sampled.app.testing() as worker,
    ):
        post.send(1)
        worker.run_until_idle()
    assert sampled.spans == []


@pytest.mark.parametrize("carried", [False, True])
def test_baggage_is_always_sent_and_the_context_on_request(carried: bool) -> None:
    found = Traced(ALWAYS_OFF, carry_unsampled=carried)
    seen: list[tuple[object, bool]] = []

    @found.app.task
    def post(n: int) -> None:
        valid = trace.get_current_span().get_span_context().is_valid
        seen.append((baggage.get_baggage("user"), valid))

    token = context.attach(baggage.set_baggage("user", "ann"))
    with found.app.testing() as worker:
        post.send(1)
        context.detach(token)
        post.send(2)
        worker.run_until_idle()
    assert seen == [("ann", True), (None, carried)]
    assert found.spans == []


def test_a_message_of_an_untraced_sender_is_traced_on_request() -> None:
    for roots, names in ((False, []), (True, ["process default", "wait default"])):
        found = Traced(ALWAYS_ON, roots=roots)
        hooks = found.app._hooks
        for name in ("before_send", "after_send", "on_send_error"):
            hooks.remove(name, getattr(found.tracing, name))

        @found.app.task
        def post(n: int) -> None:
            """Does nothing."""

        with found.app.testing() as worker:
            post.send(1)
            worker.run_until_idle()
        assert sorted(span.name for span in found.spans) == names
        found.app.close()


def test_without_an_sdk_tracing_does_nothing() -> None:
    with App("memory://") as app:
        app.use(Tracing())
        seen = headers_seen(app)

        @app.task
        def post(n: int) -> None:
            """Does nothing."""

        with app.testing() as worker:
            post.send(1)
            worker.run_until_idle()
        assert seen == [{}]
