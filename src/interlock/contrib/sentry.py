"""Errors and traces of handlers for Sentry (the extra ``sentry``).

The program calls ``sentry_sdk.init`` as usual; without that nothing happens here.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from interlock.app.app import App
from interlock.app.middleware import Handling, Middleware, Sending
from interlock.errors import Reject, RetryAfter
from interlock.explanation import key_names
from interlock.runtime.installation import needs

try:
    import sentry_sdk
    from sentry_sdk.scope import add_global_event_processor
    from sentry_sdk.tracing import TransactionSource
    from sentry_sdk.utils import event_from_exception
except ImportError as error:
    raise ImportError(
        f"interlock.contrib.sentry needs the SDK of Sentry: {needs('sentry')}"
    ) from error

if TYPE_CHECKING:
    from sentry_sdk.tracing import Span, Transaction
    from sentry_sdk.types import Event, Hint

    from interlock.app.job import Job

__all__ = ["Reporting", "instrument"]


class _Handled(NamedTuple):
    """The state of one handling."""

    opened: contextlib.ExitStack
    transaction: Transaction


class Reporting(Middleware):
    """Hooks that report errors, and each handling as a transaction; for ``App.use``, or by
    ``instrument``.

    Each handling has an isolation scope of its own, with the task, queue, id and attempt as tags
    (``interlock.task`` …) and all of these, the keys and the token as the context ``interlock``. An
    error is reported for each attempt that fails; ``RetryAfter`` and ``Reject`` are not errors.
    With Sentry tracing, a handling is a transaction (``queue.process``) in the trace of its sender,
    and a send within a transaction is a span of it (``queue.publish``).

    Args:
        keys: report the keys of messages. Default True.
        propagate: send the trace along with messages, so that an error of a handler is linked to
            the sender's reports. Default True. Each message has headers then.
    """

    def __init__(self, *, keys: bool = True, propagate: bool = True) -> None:
        self._keys = keys
        self._propagate = propagate
        global _watches
        if not _watches:
            _watches = True
            add_global_event_processor(_unless_told)

    # -- Sending ----------------------------------------------------------------------------------

    def before_send(self, sending: Sending) -> None:
        """Begin the span of a send, and add its trace to the headers."""
        if not sentry_sdk.get_client().is_active():
            return
        span: Span | None = None
        if sentry_sdk.get_current_span() is not None:
            span = sentry_sdk.start_span(op="queue.publish", name=sending.task, origin=ORIGIN)
            span.set_data("messaging.system", "interlock")
            span.set_data("messaging.destination.name", sending.queue)
            sending.state[STATE] = span
        if self._propagate:
            scope = sentry_sdk.get_current_scope()
            for name, value in scope.iter_trace_propagation_headers(span=span):
                known = sending.headers.get(name)
                # Another hook's baggage entries stay.
                both = f"{known},{value}" if known and name == "baggage" else value
                sending.headers[name] = both

    def after_send(self, sending: Sending, job: Job[Any]) -> None:
        """End the span of a send."""
        span: Span | None = sending.state.pop(STATE, None)
        if span is not None:
            span.set_data("messaging.message.id", str(job.id))
            span.finish()

    def on_send_error(self, sending: Sending, error: BaseException) -> None:
        """End the span of a failed send; the sender reports the error."""
        span: Span | None = sending.state.pop(STATE, None)
        if span is not None:
            span.set_status("internal_error")
            span.finish()

    # -- Handling ---------------------------------------------------------------------------------

    def before_handle(self, handling: Handling) -> None:
        """Begin the scope and the transaction of a handling."""
        if not sentry_sdk.get_client().is_active():
            return
        lease = handling.lease
        with contextlib.ExitStack() as opening:
            scope = opening.enter_context(sentry_sdk.isolation_scope())
            scope.clear_breadcrumbs()
            scope.set_transaction_name(handling.task, source=TransactionSource.TASK)
            facts: dict[str, Any] = {
                "task": handling.task,
                "queue": lease.queue,
                "id": str(lease.id),
                "attempt": lease.attempt,
            }
            for name, value in facts.items():
                scope.set_tag(f"interlock.{name}", str(value))
            if self._keys:
                facts["keys"] = key_names(lease.keys)
                facts["shared"] = key_names(lease.shared)
            scope.set_context("interlock", {**facts, "token": lease.token})
            transaction = sentry_sdk.continue_trace(
                handling.headers,
                op="queue.process",
                name=handling.task,
                source=TransactionSource.TASK,
                origin=ORIGIN,
            )
            opening.enter_context(sentry_sdk.start_transaction(transaction))
            transaction.set_data("messaging.system", "interlock")
            transaction.set_data("messaging.destination.name", lease.queue)
            transaction.set_data("messaging.message.id", str(lease.id))
            transaction.set_data("messaging.message.retry.count", lease.attempt - 1)
            if lease.attempt == 1:
                waited = max(lease.token - lease.sequence, 0) / 1000
                transaction.set_data("messaging.message.receive.latency", waited)
            handling.state[STATE] = _Handled(opening.pop_all(), transaction)

    def after_handle(self, handling: Handling, result: Any) -> None:
        """End the transaction of a handling."""
        self._end(handling, "ok", None)

    def on_error(self, handling: Handling, error: BaseException) -> None:
        """Report an error, except ``RetryAfter`` and ``Reject``, and end the transaction."""
        # By its class: an exception of a handler may raise when it is asked for it.
        if issubclass(type(error), RetryAfter | Reject):
            self._end(handling, "aborted", None)
        else:
            self._end(handling, "internal_error", error)

    def _end(self, handling: Handling, status: str, error: BaseException | None) -> None:
        state: _Handled | None = handling.state.pop(STATE, None)
        if state is None:
            # Nothing was begun: an earlier hook has raised, or Sentry is off.
            return
        with state.opened:
            state.transaction.set_status(status)
            if error is not None:
                event, hint = event_from_exception(
                    error,
                    client_options=sentry_sdk.get_client().options,
                    mechanism={"type": "interlock", "handled": False},
                )
                sentry_sdk.capture_event(event, hint=hint)


def instrument(app: App, **options: Any) -> Reporting:
    """Report an app's handlings; return the hooks. The options are ``Reporting``'s.

    At the end of a worker, or of a process of its pool, the remaining reports are sent.
    """
    reporting = Reporting(**options)
    app.use(reporting)
    app.on_process_stop(lambda: sentry_sdk.flush(timeout=LONGEST_FLUSH))
    return reporting


def _unless_told(event: Event, hint: Hint) -> Event | None:
    """Drop log records from another process, one of a pool: Sentry has them from there."""
    record = hint.get("log_record")
    elsewhere = record is not None and record.process not in (None, os.getpid())
    return None if elsewhere else event


_watches = False
LONGEST_FLUSH = 3.0
"""Seconds."""
ORIGIN = "auto.queue.interlock"
STATE = "sentry"
"""Key of this in the state of a send, or of a handling."""
