"""Queue metrics for Prometheus: each family once, and how many queues get lines of their own.

The hub's /metrics and `interlock exporter` report the same families from `il1_stats`, so dashboards
and alert rules work with both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["OTHER", "QUEUE_FAMILIES", "STATES", "Family", "QueueFigures", "Sample"]

Sample = tuple[tuple[str, ...], float]
"""A family's label values, in order, and the figure."""


@dataclass(frozen=True, slots=True)
class Family:
    """One family of metrics: the lines of one name."""

    name: str
    """As Prometheus has it; a counter's ends in `_total`."""

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    """One line, without a full stop."""

    labels: tuple[str, ...] = ("queue",)


def counter(name: str, help: str) -> Family:
    """Return a family that only rises."""
    help = f"{help}, since the queue was created"
    return Family(f"interlock_queue_{name}_total", "counter", help)


def gauge(name: str, help: str) -> Family:
    """Return a family that rises and falls."""
    return Family(f"interlock_queue_{name}", "gauge", help)


STATES = ("delayed", "waiting", "ready", "leased", "backing_off", "held")
"""The states of an unsettled message; `interlock_queue_messages` has a line for each."""

MESSAGES = Family(
    "interlock_queue_messages",
    "gauge",
    "unsettled messages, by state; held ones block their keys until an operator acts",
    ("queue", "state"),
)
OLDEST = {
    "oldest_ready": gauge(
        "oldest_ready_seconds",
        "seconds that the oldest ready message has been in its place; 0 while none is ready",
    ),
    "oldest_waiting": gauge(
        "oldest_waiting_seconds",
        "seconds that the oldest blocked or paused message has waited; 0 while none waits",
    ),
}
# By the names of `Roots.figures`: a queue in which nothing is blocked has none.
STALLS = {
    "blocked": gauge(
        "blocked",
        "messages that wait for the roots of the queue, each counted once; up to 2,000",
    ),
    "blocked_by_one": gauge(
        "blocked_by_one", "messages that wait for the root that blocks most; up to 2,000"
    ),
    "slow_leases": gauge(
        "slow_leases", "messages that have been leased for 60 seconds or longer; up to 100"
    ),
}
ROOTS = Family(
    "interlock_queue_roots",
    "gauge",
    "messages and pauses that block others; leased messages count after 60 seconds",
    ("queue", "kind"),
)
KINDS = ("held", "leased", "backing_off", "paused")
# By the names of il1_stats.
GAUGES = {
    "dead": gauge("dead", "dead letters"),
    "bytes": gauge("bytes", "bytes of unsettled messages; 0 if the queue does not count them"),
    "lanes": gauge("keys", "keys with unsettled messages"),
    "paused": gauge("paused", "paused keys, plus one while the queue itself is paused"),
    "sealed": gauge("sealed", "1 while the queue refuses puts, else 0"),
    "full": gauge("full", "1 while the queue has no room for another message, else 0"),
    "results": gauge("results", "results kept"),
    "result_bytes": gauge("result_bytes", "bytes of the results kept"),
}
COUNTERS = {
    "puts": counter("puts", "messages put"),
    "leases": counter("leases", "messages leased"),
    "acks": counter("acks", "messages settled as handled"),
    "retries": counter("retries", "messages returned for a further attempt"),
    "releases": counter("releases", "messages returned with their attempt unchanged"),
    "leases_expired": counter("leases_expired", "leases that expired"),
    "revoked": counter("revoked", "leases that were revoked"),
    "dead_lettered": counter("dead_lettered", "messages that became dead letters"),
    "cancelled": counter("cancelled", "messages cancelled"),
    "skipped": counter("skipped", "held messages that were skipped"),
    "requeued": counter("requeued", "dead letters that were requeued"),
    "deduplicated": counter("deduplicated", "puts with a known dedup string"),
    "messages_expired": counter("messages_expired", "messages dropped because they had expired"),
    "dead_expired": counter("dead_expired", "dead letters removed because of their age"),
}
QUEUES = Family("interlock_queues", "gauge", "number of queues", ())
CUT = Family(
    "interlock_queues_cut",
    "gauge",
    'queues without their own lines, summed as queue="other"',
    (),
)
QUEUE_FAMILIES = (
    MESSAGES,
    *OLDEST.values(),
    *STALLS.values(),
    ROOTS,
    *GAUGES.values(),
    *COUNTERS.values(),
    QUEUES,
    CUT,
)
"""In the order in which they are printed."""

OTHER = "other"
"""Name for the sum of queues without lines of their own."""
MOST_QUEUES = 1000


class QueueFigures:
    """The families of all queues, from `il1_stats`; one object for each place that reports them.

    At most `most` queues have lines of their own, and keep them as long as they exist. The others
    are summed. Their counters do not fall when one of them is dropped, or gets lines of its own: a
    counter that falls would be taken for one that began anew.
    """

    def __init__(self, most: int = MOST_QUEUES) -> None:
        self._most = most
        self._own: dict[str, None] = {}
        self._seen: dict[str, tuple[int, ...]] = {}
        """The last counters of each queue of the others."""
        self._counted = [0] * len(COUNTERS)
        """The sum of the others' counters."""

    def told(
        self, found: Mapping[str, Mapping[str, int]], now: float, unseen: int = 0
    ) -> Iterator[tuple[Family, list[Sample]]]:
        """Yield each family with its samples.

        Args:
            found: answers of `il1_stats`, by queue name. Figures that an older server lacks are
                left out.
            now: the engine's time, seconds since 1970.
            unseen: number of further queues: reported as cut, and in no sum.
        """
        own, others = self._divided(found)
        rest = [found[name] for name in others]
        counted = self._sum_of_counters(others, rest)
        labels, rows = [(name,) for name in own], [found[name] for name in own]

        def by_queue(values: Iterable[float], of_rest: float) -> list[Sample]:
            told: list[Sample] = list(zip(labels, values, strict=True))
            return [*told, ((OTHER,), of_rest)] if rest else told

        messages: list[Sample] = [
            ((name, state), found[name][state]) for name in own for state in STATES
        ]
        if rest:
            messages += [((OTHER, state), sum(one[state] for one in rest)) for state in STATES]
        yield MESSAGES, messages
        for name, family in OLDEST.items():
            if all(name in stats for stats in found.values()):
                oldest = max((_age(one[name], now) for one in rest), default=0.0)
                yield family, by_queue([_age(stats[name], now) for stats in rows], oldest)
        for name, family in STALLS.items():
            # The worst one of the others: a root in one queue blocks nothing in another.
            worst = max if name == "blocked_by_one" else sum
            yield family, by_queue(_figures(name, rows), worst([0, *_figures(name, rest)]))
        roots: list[Sample] = [
            ((name, kind), found[name].get(f"roots_{kind}", 0)) for name in own for kind in KINDS
        ]
        if rest:
            roots += [((OTHER, kind), sum(_figures(f"roots_{kind}", rest))) for kind in KINDS]
        yield ROOTS, roots
        for name, family in GAUGES.items():
            yield family, by_queue(_figures(name, rows), sum(_figures(name, rest)))
        for (name, family), of_rest in zip(COUNTERS.items(), counted, strict=True):
            yield family, by_queue(_figures(name, rows), of_rest)
        yield QUEUES, [((), len(found) + unseen)]
        yield CUT, [((), len(others) + unseen)]

    def _divided(self, found: Iterable[str]) -> tuple[list[str], list[str]]:
        """Return the names that have lines of their own, and the others."""
        names = sorted(found)
        there = set(names)
        self._own = {name: None for name in self._own if name in there}
        if len(names) > self._most:
            # It would clash with the sum of the others under the same name.
            self._own.pop(OTHER, None)
        for name in names:
            if len(self._own) >= self._most:
                break
            if name != OTHER or len(names) <= self._most:
                self._own.setdefault(name)
        return [one for one in names if one in self._own], [
            one for one in names if one not in self._own
        ]

    def _sum_of_counters(
        self, others: Sequence[str], rest: Sequence[Mapping[str, int]]
    ) -> list[int]:
        seen: dict[str, tuple[int, ...]] = {}
        for queue, stats in zip(others, rest, strict=True):
            values = tuple(stats.get(name, 0) for name in COUNTERS)
            before = self._seen.get(queue, (0,) * len(values))
            for at, (old, new) in enumerate(zip(before, values, strict=True)):
                # A counter that fell belongs to a queue that was dropped and created again.
                self._counted[at] += new - old if new >= old else new
            seen[queue] = values
        self._seen = seen
        return self._counted


def _figures(name: str, all_stats: Iterable[Mapping[str, int]]) -> list[int]:
    return [stats.get(name, 0) for stats in all_stats]


def _age(since: int, now: float) -> float:
    return max(now - since / 1e6, 0.0) if since else 0.0
