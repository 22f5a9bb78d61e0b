"""The metrics of an engine's queues, read from the engine on each scrape."""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet

from interlock.client.admin.operator import Operator
from interlock.client.admin.queue_counts import QueueCounts
from interlock.client.request import Refused
from interlock.client.wire import worker_directory
from interlock.errors import InterlockError
from interlock.explanation import key_text
from interlock.metrics.text import text
from interlock.runtime.limits import MAX_WALKED
from interlock.runtime.queue_figures import MOST_QUEUES, OTHER, Family, QueueFigures, Sample

__all__ = ["EXPORTER_FAMILIES", "Exporter"]

_log = logging.getLogger("interlock.exporter")

UP = Family("interlock_up", "gauge", "1 while the engine answers, else 0", ())
SECONDS = Family(
    "interlock_exporter_scrape_seconds", "gauge", "seconds that querying the engine took", ()
)
KEY_WAITING = Family(
    "interlock_queue_key_waiting",
    "gauge",
    "unsettled messages of the longest keys of the fullest queues; only with --keys",
    ("queue", "key"),
)
WORKERS = Family(
    "interlock_workers",
    "gauge",
    "announced workers, by the first queue that they lease from",
    ("queue", "state"),
)
EXPORTER_FAMILIES = (UP, SECONDS, KEY_WAITING, WORKERS)
"""Families in addition to those of queues."""

Told = Iterator[tuple[Family, Sequence[Sample]]]


class Exporter:
    """The metrics of the queues of one engine, as text.

    Of any number of concurrent scrapes, one queries the engine. An engine that does not answer
    within `patience` seconds is reported down; the query continues until the client gives it up.
    """

    def __init__(
        self,
        operator: Operator,
        queues: str = "*",
        keys: int = 0,
        most: int = MOST_QUEUES,
        patience: float = 5.0,
    ) -> None:
        """Report the queues whose names match the glob `queues`, with `keys` keys of each."""
        self._operator = operator
        self._counts = QueueCounts(queues)
        self._figures = QueueFigures(most)
        self._keys = keys
        self._patience = patience
        self._lock = threading.Lock()
        self._asking: Future[str] | None = None
        self.trouble = ""
        """Reason why the engine did not answer the last time; empty if it did."""

    def text(self) -> str:
        """Return the page of metrics. Never raises: an engine that is down is reported as such."""
        with self._lock:
            asking = self._asking
            if asking is None:
                asking = self._asking = Future()
                threading.Thread(
                    target=self._ask, args=(asking,), name="interlock-exporter", daemon=True
                ).start()
        try:
            return asking.result(self._patience)
        except NotYet:
            self._failed(f"no answer in {self._patience:g} s")
        except InterlockError as error:
            self._failed(str(error))
        except Exception as error:
            _log.exception("cannot report queue metrics")
            self.trouble = repr(error)
        return text([(UP, [((), 0)])])

    def _ask(self, asking: Future[str]) -> None:
        try:
            told = text(self._told())
        except BaseException as error:
            with self._lock:
                self._asking = None
            asking.set_exception(error)
        else:
            with self._lock:
                self._asking = None
            if self.trouble:
                _log.warning("the engine answers again")
                self.trouble = ""
            asking.set_result(told)

    def _failed(self, why: str) -> None:
        # Once for each trouble, not for each scrape.
        if not self.trouble:
            _log.error("the engine does not answer: %s", why)
        self.trouble = why

    def _told(self) -> Told:
        began = time.monotonic()
        found = self._stalled(self._counts.stats(self._operator))
        families = list(self._figures.told(found, self._counts.now()))
        own = {labels[0] for labels, _ in families[0][1]}
        workers = self._workers(list(found), own)
        keys = list(self._waiting(found, own)) if self._keys else []
        yield UP, [((), 1)]
        yield SECONDS, [((), round(time.monotonic() - began, 6))]
        yield from families
        yield KEY_WAITING, keys
        yield WORKERS, workers

    def _stalled(self, found: Mapping[str, dict[str, int]]) -> Mapping[str, dict[str, int]]:
        """Return the counts, with the figures of roots where messages are blocked.

        Messages are counted behind the first roots of the queues in which most wait.
        """
        active = {name: one for name, one in found.items() if one["leased"] or one["waiting"]}
        known = self._counts.roots(self._operator, active, LOOKED_AT)
        stalls = self._counts.stalls(self._operator, found, MAX_WALKED, known)
        told = dict(found)
        for figures in (known, stalls):
            for queue, roots in figures.items():
                told[queue] = told[queue] | roots.figures()
        return told

    def _waiting(self, found: Mapping[str, Mapping[str, int]], own: set[str]) -> Iterator[Sample]:
        """Yield the keys with most messages of the largest queues that have lines."""
        fullest = heapq.nlargest(
            MOST_LOOKED_AT, own & found.keys(), key=lambda name: found[name]["unsettled"]
        )
        for queue in sorted(fullest):
            if found[queue]["unsettled"]:
                named: Counter[str] = Counter()
                for key, depth in self._operator.hot_keys(queue, self._keys, PAGES):
                    named[key_text(key)] += depth
                yield from (((queue, key), depth) for key, depth in named.items())

    def _workers(self, queues: Sequence[str], own: set[str]) -> list[Sample]:
        """Return the number of workers, by the queue of their announcement."""
        counted: Counter[tuple[str, str]] = Counter()
        for queue, reply in zip(
            queues, self._operator.each("workers", queues, "", MANY), strict=True
        ):
            # An older engine has none.
            if isinstance(reply, Refused) or not reply:
                continue
            label = queue if queue in own else OTHER
            some = worker_directory.workers(reply)
            if len(some) == MANY or sum(map(len, reply)) > MUCH:
                # There may be more.
                some = self._operator.workers(queue)
            for one in some:
                counted[label, _state(one.said)] += 1
        return sorted(counted.items())


def _state(said: Mapping[str, object]) -> str:
    """Return a worker's announced state, which may hold anything."""
    state = said.get("state")
    return str(state) if state in ("running", "draining") else "unknown"


LOOKED_AT = 100
"""Maximum roots of each queue that are read."""
MOST_LOOKED_AT = 100
"""Maximum queues whose keys are read."""
PAGES = 4
"""Round trips for the keys of one queue, about 1,000 of them each."""
MANY = 512
"""Workers per call."""
MUCH = 500_000
"""Bytes of a reply beyond which it may be incomplete."""
