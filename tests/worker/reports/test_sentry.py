"""Errors and transactions for Sentry."""

from __future__ import annotations

import inspect
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from interlock import Reject, RetryAfter, connect, current_lease
from interlock.app import App, envelope
from interlock.contrib.sentry import instrument
from interlock.retry import Retry
from tests.worker.reports.http_receiver import HTTPReceiver
from tests.worker.workers import Workers, wait_for


class Kept(Transport):
    """Keeps what would be sent."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.events += items_of(envelope)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event.get("type", "error") == kind]


def items_of(envelope: Envelope) -> list[dict[str, Any]]:
    kinds = "event", "transaction"
    return [json.loads(item.get_bytes()) for item in envelope.items if item.type in kinds]


@pytest.fixture
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    transport = Kept()
    # Its default integrations change modules of the standard library permanently.
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:9/1",
        transport=transport,
        traces_sample_rate=getattr(request, "param", 1.0),
        default_integrations=False,
        auto_enabling_integrations=False,
    )
    yield transport
    sentry_sdk.get_global_scope().set_client(None)


@pytest.fixture
def app() -> Iterator[App]:
    with App("memory://", retry=Retry(3)) as made:
        instrument(made)
        yield made


def test_an_error_is_reported_with_its_message(app: App, kept: Kept) -> None:
    @app.task(keys="a:{n}", shared="r:{n}", queue="mail")
    def post(n: int) -> None:
        if current_lease().attempt == 1:
            raise LookupError("no such letter")

    with app.testing() as worker:
        job = post.send(1)
        with pytest.raises(LookupError):
            worker.run_until_idle()
        worker.advance(60)
        worker.run_until_idle()
    (event,) = kept.of("error")
    told = {"task": "post", "queue": "mail", "id": str(job.id), "attempt": 1}
    assert event["tags"] == {f"interlock.{name}": str(value) for name, value in told.items()}
    context = event["contexts"]["interlock"]
    assert context.pop("token") > 0
    assert context == told | {"keys": ["a:1"], "shared": ["r:1"]}
    (value,) = event["exception"]["values"]
    assert (value["type"], value["value"]) == ("LookupError", "no such letter")
    assert value["mechanism"] == {"type": "interlock", "handled": False}
    assert event["transaction"] == "post"
    first, second = (each["contexts"]["trace"] for each in kept.of("transaction"))
    assert (first["op"], first["status"], second["status"]) == (
        "queue.process", "internal_error", "ok",
    )  # fmt: skip
    assert event["contexts"]["trace"]["trace_id"] == first["trace_id"]
    assert [each["data"]["messaging.message.retry.count"] for each in (first, second)] == [0, 1]


def test_a_steering_exception_is_not_reported_as_an_error(app: App, kept: Kept) -> None:
    @app.task
    def post(how: str) -> None:
        if current_lease().attempt == 1:
            raise RetryAfter(1) if how == "later" else Reject("no")

    with app.testing() as worker:
        post.send("later")
        post.send("reject")
        worker.run_until_idle()
        worker.advance(10)
        worker.run_until_idle()
    assert kept.of("error") == []
    statuses = [each["contexts"]["trace"]["status"] for each in kept.of("transaction")]
    assert sorted(statuses) == ["aborted", "aborted", "ok"]


def test_a_handled_message_is_in_the_trace_of_its_sender(app: App, kept: Kept) -> None:
    @app.task
    async def post(n: int) -> None:
        """Does nothing."""

    with app.testing() as worker:
        with sentry_sdk.start_transaction(name="request", op="http.server"):
            job = post.send(1)
        worker.run_until_idle()
    sent, handled = kept.of("transaction")
    (span,) = sent["spans"]
    assert (span["op"], span["data"]["messaging.message.id"]) == ("queue.publish", str(job.id))
    trace = handled["contexts"]["trace"]
    assert trace["trace_id"] == sent["contexts"]["trace"]["trace_id"]
    assert trace["parent_span_id"] == span["span_id"]


@pytest.mark.parametrize("kept", [None], indirect=True)
def test_without_tracing_errors_still_name_the_trace_of_the_sender(app: App, kept: Kept) -> None:
    @app.task
    def post(n: int) -> None:
        raise LookupError(n)

    with app.testing() as worker:
        sentry_sdk.capture_message("sent")
        post.send(1)
        with pytest.raises(LookupError):
            worker.run_until_idle()
    assert kept.of("transaction") == []
    said, raised = kept.of("error")
    assert said["contexts"]["trace"]["trace_id"] == raised["contexts"]["trace"]["trace_id"]


def test_a_scope_belongs_to_one_message(app: App, kept: Kept) -> None:
    @app.task
    def post(n: int) -> None:
        if n == 1:
            sentry_sdk.set_tag("seen", "first")
            sentry_sdk.add_breadcrumb(message="first")
        else:
            raise LookupError(n)

    with app.testing() as worker:
        post.send(1)
        post.send(2)
        with pytest.raises(LookupError):
            worker.run_until_idle()
    (event,) = kept.of("error")
    assert "seen" not in event["tags"]
    assert not event.get("breadcrumbs", {}).get("values")


def test_without_sentry_init_no_headers_are_sent(app: App) -> None:
    seen: list[dict[str, str]] = []
    app.before_handle(lambda handling: seen.append(handling.headers))

    @app.task
    def post(n: int) -> None:
        """Does nothing."""

    with app.testing() as worker:
        post.send(1)
        worker.run_until_idle()
    assert seen == [{}]


@pytest.mark.share(2)
@pytest.mark.parametrize("pool", ["asyncio", "process"])
def test_a_worker_reports_each_error_once(workers: Workers, url: str, pool: str) -> None:
    name = "fail_async" if pool == "asyncio" else "fail"
    events: list[dict[str, Any]] = []
    lock = threading.Lock()

    def take(path: str, body: bytes) -> bytes:
        with lock:
            events.extend(items_of(Envelope.deserialize(body)))
        return b"{}"

    with HTTPReceiver(take) as receiver, connect(url) as client:
        queue = client.queue("default", bytes)
        signature = inspect.signature(lambda account: None)
        for account in range(3):
            call = envelope.write(name, signature, (account,), {}, None, {})
            queue.put(call, keys=[f"account:{account}"], retry=Retry(1))
        worker = workers.start(
            "--pool", pool, "--concurrency", "2", app="tests.worker.apps.reported:app",
            SENTRY_DSN=f"http://key@127.0.0.1:{receiver.port}/1",
        )  # fmt: skip
        queue.join(40)
        assert worker.stopped() == 0, worker.output
        wait_for(lambda: len(events) >= 6, f"{len(events)} events")
    errors = [event for event in events if event.get("type") != "transaction"]
    # The worker logs them as errors as well, which Sentry's logging integration reports.
    assert sorted(event["exception"]["values"][-1]["value"] for event in errors) == [
        "no account 0", "no account 1", "no account 2",
    ]  # fmt: skip
    assert {event["tags"]["interlock.task"] for event in errors} == {name}
    assert len(events) == 6
