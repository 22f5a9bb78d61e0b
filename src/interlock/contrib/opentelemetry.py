"""Traces by OpenTelemetry: a span for each send, each wait and each handling.

Needs only the API (the extra ``opentelemetry``); the program sets up the SDK and its exporter as
usual. The names are those of the semantic conventions for messaging.

If a message is not sampled, no trace data travels with it, and its handling costs nothing extra:
see ``Tracing``.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from contextvars import Token
from typing import TYPE_CHECKING, Any, NamedTuple

from interlock.app.app import App
from interlock.app.middleware import Handling, Middleware, Sending
from interlock.client import url as urls
from interlock.contrib.afterwards import Afterwards
from interlock.contrib.predecessors import Predecessor, Predecessors
from interlock.errors import Reject, RetryAfter
from interlock.explanation import key_names
from interlock.runtime.installation import needs

try:
    from opentelemetry import baggage, context, propagate, trace
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode
except ImportError as error:
    raise ImportError(
        f"interlock.contrib.opentelemetry needs the API of OpenTelemetry: {needs('opentelemetry')}"
    ) from error

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, Tracer, TracerProvider

    from interlock.app.job import Job

__all__ = ["Tracing", "instrument"]


class _Handled(NamedTuple):
    """The state of one handling."""

    attached: Token[Context]
    span: Span | None
    sender: Context
    began: int
    """Nanoseconds since 1970."""


class Tracing(Middleware):
    """Hooks that make spans; for ``App.use``, or by ``instrument``.

    - ``send QUEUE TASK`` (producer), of a call until it is put;
    - ``wait QUEUE TASK``, from then until a worker leased it, with links to the messages that it
      waited behind, as far as this process has handled them in a trace;
    - ``process QUEUE TASK`` (consumer), of its handler, the parent of the spans that the handler
      starts.

    All three are in the sender's trace. The sender decides whether it is sampled, and the decision
    travels with the message.

    Args:
        tracer_provider: default: the global one.
        propagator: writes the context into the headers of a message, and reads it there. Default:
            the global one.
        roots: also trace messages without a context (from a sender without tracing), each in a
            trace of its own. Then the sampler is asked for each message. Default False.
        carry_unsampled: send the context of a trace that is not sampled, so that logs of the
            handler can name it. Then each message has headers, which cost time on both sides.
            Default False. Baggage is carried in any case.
        keys: add the keys of messages to spans. Default True.
        explain: ask the engine, for each message that is sampled, which messages it waits behind
            when it is put, in any process; see ``Blockers``. Default False.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        propagator: TextMapPropagator | None = None,
        roots: bool = False,
        carry_unsampled: bool = False,
        keys: bool = True,
        explain: bool = False,
    ) -> None:
        self.with_headers_only = not roots
        self._provider = tracer_provider
        self._propagator = propagator
        self._roots = roots
        self._carry_unsampled = carry_unsampled
        self._keys = keys
        self._predecessors: Predecessors[SpanContext] = Predecessors()
        self._afterwards = Afterwards("interlock-spans")
        self._made: tuple[TracerProvider, Tracer] | None = None
        self._blockers: Any = None
        if explain:
            from interlock.contrib.blockers import Blockers

            self._blockers = Blockers(self._context_of)

    # -- Sending ----------------------------------------------------------------------------------

    def before_send(self, sending: Sending) -> None:
        """Begin the span of a send, and add its context to the headers."""
        parent = trace.get_current_span().get_span_context()
        if parent.is_valid and not parent.trace_flags.sampled and not self._carry_unsampled:
            self._carry(sending, None)
            return
        span = self._tracer.start_span(
            f"send {sending.queue}",
            kind=SpanKind.PRODUCER,
            attributes=self._attributes("send", "send", sending, sending.queue),
        )
        if span.is_recording():
            # Most are not recorded, and skip this.
            span.set_attributes(self._named(sending.keys, sending.shared))
            sending.state[SPAN] = span
        self._carry(sending, span)

    def after_send(self, sending: Sending, job: Job[Any]) -> None:
        """End the span of a send."""
        span: Span | None = sending.state.pop(SPAN, None)
        if span is None:
            return
        span.set_attribute("messaging.message.id", str(job.id))
        if job.known:
            span.set_attribute("interlock.known", True)
        if self._blockers is not None and (sending.keys or sending.shared):
            self._blockers.ask(span, job._app, sending.queue, job.id, time.time_ns())
        else:
            span.end()

    def on_send_error(self, sending: Sending, error: BaseException) -> None:
        """End the span of a send that has failed."""
        span: Span | None = sending.state.pop(SPAN, None)
        if span is not None:
            try:
                _fail(span, error)
            finally:
                span.end()

    def _carry(self, sending: Sending, span: Span | None) -> None:
        sampled = span is not None and span.get_span_context().trace_flags.sampled
        if sampled or self._carry_unsampled or baggage.get_all():
            carried = None if span is None else trace.set_span_in_context(span)
            (self._propagator or propagate).inject(sending.headers, carried)

    # -- Handling ---------------------------------------------------------------------------------

    def before_handle(self, handling: Handling) -> None:
        """Begin the span of a handling, and end that of the wait before it."""
        headers = handling.headers
        if not headers and not self._roots:
            return
        found = self._extracted(headers)
        sender = trace.get_current_span(found).get_span_context()
        if sender.trace_flags.sampled if sender.is_valid else self._roots:
            handling.state[SPAN] = self._begin(handling, found)
        else:
            handling.state[SPAN] = _Handled(context.attach(found), None, found, 0)

    def after_handle(self, handling: Handling, result: Any) -> None:
        """End the span of a handling."""
        self._end(handling, "acked", None)

    def on_error(self, handling: Handling, error: BaseException) -> None:
        """End the span of a failed handling; ``RetryAfter`` and ``Reject`` are not failures."""
        # By its class: an exception of a handler may raise when it is asked for it.
        kind = type(error)
        if issubclass(kind, RetryAfter):
            self._end(handling, "deferred", None)
        elif issubclass(kind, Reject):
            self._end(handling, "rejected", None)
        else:
            self._end(handling, "failed", error)

    def _begin(self, handling: Handling, sender: Context) -> _Handled:
        """Begin the span. This does no more than the handler may need: others wait."""
        lease, now = handling.lease, time.time_ns()
        span = self._tracer.start_span(
            f"process {lease.queue}",
            sender,
            kind=SpanKind.CONSUMER,
            attributes=self._attributes("process", "process", handling, lease.queue),
            start_time=now,
        )
        attached = context.attach(trace.set_span_in_context(span, sender))
        return _Handled(attached, span if span.is_recording() else None, sender, now)

    def _end(self, handling: Handling, outcome: str, error: BaseException | None) -> None:
        state: _Handled | None = handling.state.pop(SPAN, None)
        if state is None:
            # Nothing was begun: the message is in no trace, or an earlier hook has raised.
            return
        context.detach(state.attached)
        span = state.span
        if span is None:
            return
        lease, ended = handling.lease, time.time_ns()
        behind = self._predecessors.of(lease) if lease.attempt == 1 else []
        # Before it is settled, so that the next message finds it.
        self._predecessors.ended(lease, (ended - state.began) / 1e9, span.get_span_context())
        lost = lease.lost
        if error is not None:
            # Its traceback is written before it changes.
            _fail(span, error)

        def tell() -> None:
            if lease.attempt == 1:
                # The wait before a later attempt is its backoff, whose start is unknown here.
                self._tell_wait(handling, state, behind)
            span.set_attributes(
                {
                    **self._named(lease.keys, lease.shared),
                    "messaging.message.id": str(lease.id),
                    "interlock.attempt": lease.attempt,
                    "interlock.token": lease.token,
                    "interlock.outcome": outcome,
                }
            )
            if lost:
                span.set_attribute("interlock.lease.lost", True)
            span.end(ended)

        self._afterwards.do(tell)

    def _tell_wait(
        self, handling: Handling, state: _Handled, behind: list[Predecessor[SpanContext]]
    ) -> None:
        lease, now = handling.lease, state.began
        leased = lease.token * 1000
        # An engine's clock with another origin (a test's) is usable for durations only.
        ended = leased if 0 <= now - leased <= LONGEST_GAP else now
        began = ended - max(lease.token - lease.sequence, 0) * 1000
        # The other two spans have the keys.
        attributes = self._attributes("wait", None, handling, lease.queue)
        attributes["messaging.message.id"] = str(lease.id)
        if behind:
            attributes["interlock.behind.message.id"] = [str(one.id) for one in behind]
        span = self._tracer.start_span(
            f"wait {lease.queue}",
            state.sender,
            attributes=attributes,
            links=[
                Link(
                    one.note,
                    {
                        "interlock.link": "waited_behind",
                        "messaging.message.id": str(one.id),
                        **({"interlock.key": key_names([one.key])[0]} if self._keys else {}),
                    },
                )
                for one in behind
            ],
            start_time=began,
        )
        span.end(ended)

    def flush(self) -> None:
        """Have the SDK send its pending spans, within 3 seconds."""
        self._afterwards.drain()
        # Not part of the API: only an SDK has it.
        flush = getattr(self._provider or trace.get_tracer_provider(), "force_flush", None)
        if flush is not None:
            flush(LONGEST_FLUSH)

    # -- Both -------------------------------------------------------------------------------------

    @property
    def _tracer(self) -> Tracer:
        provider = self._provider or trace.get_tracer_provider()
        if self._made is None or self._made[0] is not provider:
            self._made = provider, provider.get_tracer("interlock", schema_url=SCHEMA)
        return self._made[1]

    def _attributes(
        self, name: str, kind: str | None, of: Sending | Handling, queue: str
    ) -> dict[str, Any]:
        """Return the attributes that a sampler gets, and all spans have; ``kind`` is that of the
        conventions, which have none for a wait."""
        found = {
            "messaging.system": "interlock",
            "messaging.operation.name": name,
            "messaging.destination.name": queue,
            "interlock.task": of.task,
            **_server(of.engine),
        }
        if kind is not None:
            found["messaging.operation.type"] = kind
        return found

    def _named(self, keys: frozenset[bytes], shared: frozenset[bytes]) -> dict[str, Any]:
        sets = {"interlock.keys": keys, "interlock.shared": shared}
        return {name: key_names(found) for name, found in sets.items() if found and self._keys}

    def _extracted(self, headers: Mapping[str, str]) -> Context:
        return (self._propagator or propagate).extract(headers, context.Context())

    def _context_of(self, headers: Mapping[str, str]) -> SpanContext | None:
        found = trace.get_current_span(self._extracted(headers)).get_span_context()
        return found if found.is_valid else None


def instrument(app: App, tracer_provider: TracerProvider | None = None, **options: Any) -> Tracing:
    """Trace an app's sends and handlings; return the hooks. The options are ``Tracing``'s.

    At the end of a worker, or of a process of its pool, the remaining spans are sent.
    """
    tracing = Tracing(tracer_provider, **options)
    app.use(tracing)
    app.on_process_stop(tracing.flush)
    return tracing


@functools.lru_cache(maxsize=64)
def _server(url: str) -> Mapping[str, str | int]:
    """Return the address of an engine as spans have it; empty for one in the process."""
    if not url or url.startswith("memory:"):
        return {}
    addresses = urls.parse(url).addresses
    if not addresses:
        return {}
    host, _, port = addresses[0].rpartition(":")
    if addresses[0].startswith("unix:") or not port.isdigit():
        return {"server.address": addresses[0].removeprefix("unix:")}
    return {"server.address": host.strip("[]"), "server.port": int(port)}


def _fail(span: Span, error: BaseException) -> None:
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ != "builtins":
        name = f"{kind.__module__}.{name}"
    span.set_attribute("error.type", name)
    span.set_status(Status(StatusCode.ERROR, kind.__name__))
    span.record_exception(error)


SPAN = "opentelemetry"
"""Key of this in the state of a send, or of a handling."""
SCHEMA = "https://opentelemetry.io/schemas/1.30.0"
LONGEST_FLUSH = 3000
"""Milliseconds."""
LONGEST_GAP = 60_000_000_000
"""Nanoseconds from a lease to its handler, beyond which the clocks are taken to disagree."""
