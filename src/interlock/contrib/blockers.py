"""Asks the engine which messages a new one waits behind, and records them in the span of its send.

The engine knows the messages of all processes. A separate thread makes the queries, which only read
(``explain`` and ``peek``): neither a send nor an event loop waits for them.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import queue as _queue
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from interlock.app import envelope
from interlock.client.admin.operator import Operator
from interlock.client.admin.server import Server
from interlock.errors import InterlockError, PayloadError
from interlock.runtime import forks
from interlock.worker.message.tasks import NotHere

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext

    from interlock.app.app import App

__all__ = ["Blockers"]

_log = logging.getLogger("interlock.app")


class _Asked(NamedTuple):
    span: Span
    app: App
    queue: str
    id: int
    ended: int
    """Time of the end of the send, ns since 1970."""


class Blockers:
    """Ends the spans of sends, once the messages in front are known.

    A span gets the ids as ``interlock.behind.message.id``, and a link to the send of each that is
    traced itself. If queries outpace the engine, spans end without that.
    """

    def __init__(self, context_of: Callable[[Mapping[str, str]], SpanContext | None]) -> None:
        self._context_of = context_of
        self._lock = threading.Lock()
        self._forks = -1
        self._work: _queue.Queue[_Asked] = _queue.Queue(MOST_ASKED)
        self._refused = False

    def ask(self, span: Span, app: App, queue: str, id: int, ended: int) -> None:
        """End the span of a message's send once the engine has answered. Returns immediately."""
        self._start()
        try:
            self._work.put_nowait(_Asked(span, app, queue, id, ended))
        except _queue.Full:
            span.end(ended)

    def close(self) -> None:
        """End all remaining spans, without their queries."""
        with contextlib.suppress(_queue.Empty):
            while True:
                one = self._work.get_nowait()
                one.span.end(one.ended)

    def _start(self) -> None:
        if self._forks == forks.count:
            return
        with self._lock:
            if self._forks != forks.count:
                # At first, and in the child of a fork, which has no thread.
                self._work = _queue.Queue(MOST_ASKED)
                self._forks = forks.count
                atexit.register(self.close)
                threading.Thread(target=self._run, name="interlock-blockers", daemon=True).start()

    def _run(self) -> None:
        work = self._work
        while True:
            one = work.get()
            try:
                self._tell(one)
            except InterlockError as error:
                if not self._refused:
                    self._refused = True
                    _log.warning(
                        "queue %r: spans do not record what messages wait behind: %s",
                        one.queue, error, extra={"queue": one.queue},
                    )  # fmt: skip
            except Exception:
                _log.exception("a span could not record what its message waits behind")
            finally:
                one.span.end(one.ended)
            del one

    def _tell(self, one: _Asked) -> None:
        client = one.app._client
        if client is None:
            return
        operator = Operator(Server(client))
        explained = operator.explain(one.queue, id=one.id, limit=1)
        if explained is None or not explained.nodes:
            return
        holders = {id for each in explained.nodes[0].blocked for id in each.holders}
        told = sorted(holders)[:MOST_TOLD]
        if told:
            one.span.set_attribute("interlock.behind.message.id", [str(id) for id in told])
        for id in told:
            found = operator.peek(one.queue, id)
            if found is None:
                continue
            try:
                sent = self._context_of(envelope.read(found.payload).headers)
            except (PayloadError, NotHere):
                continue
            if sent is not None:
                attributes = {"interlock.link": "waits_behind", "messaging.message.id": str(id)}
                one.span.add_link(sent, attributes)


MOST_ASKED = 256
MOST_TOLD = 8
"""Maximum messages in front that one span lists."""
