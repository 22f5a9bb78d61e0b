"""Queue metrics for Prometheus: each family once, and how many queues get lines of their own.

The hub's /metrics and `interlock exporter` report the same families from `il1_stats`, so dashboards
and alert rules work with both. The reference, the dashboard's lines, `interlock queue stats` and
the tests are made from the declarations below.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["OTHER", "QUEUE_FAMILIES", "STATES", "Family", "QueueFamily", "QueueFigures", "Sample"]

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


@dataclass(frozen=True, slots=True)
class QueueFamily(Family):
    """A family about queues: the figure it is read from, and the panel that shows it."""

    source: str = ""
    """Name in `il1_stats`, or of a figure of `Roots`; prefix of the names if there is a second
    label. Empty for the number of queues."""

    of_others: Literal["sum", "max"] = "sum"
    """Function that combines the figures of the queues without lines of their own."""

    values: tuple[str, ...] = ()
    """Values of the second label; `source` followed by one is the figure's name."""

    panel: str = ""
    """Title of the dashboard's panel that shows it; empty if none does."""

    line: str = ""
    """Name of its line in that panel; empty if the panel has an expression of its own."""


def counter(source: str, help: str, panel: str = "", line: str = "") -> QueueFamily:
    """Return a family that only rises."""
    name = f"interlock_queue_{source}_total"
    return QueueFamily(name, "counter", f"{help}{SINCE}", source=source, panel=panel, line=line)


def gauge(
    source: str, help: str, panel: str = "", line: str = "", name: str = "",
    of_others: Literal["sum", "max"] = "sum",
) -> QueueFamily:  # fmt: skip
    """Return a family that rises and falls."""
    name = f"interlock_queue_{name or source}"
    return QueueFamily(
        name, "gauge", help, source=source, of_others=of_others, panel=panel, line=line
    )


def of_each(
    name: str, label: str, values: tuple[str, ...], help: str, panel: str, source: str = ""
) -> QueueFamily:
    """Return a gauge with a line for each value of a second label."""
    name = f"interlock_queue_{name}"
    return QueueFamily(name, "gauge", help, ("queue", label), source, "sum", values, panel)


SINCE = ", since the queue was created"
STATES = ("delayed", "waiting", "ready", "leased", "backing_off", "held", "parked")
"""The states of an unsettled message; `interlock_queue_messages` has a line for each."""

MESSAGES = of_each(
    "messages",
    "state",
    STATES,
    "unsettled messages, by state; held ones block their keys until an operator acts",
    "Messages by state",
)
# An engine that does not report one of these in `il1_stats` has no such family.
OLDEST = (
    gauge("oldest_ready",
          "seconds that the oldest ready message has been in its place; 0 while none is ready",
          "Oldest ready", name="oldest_ready_seconds", of_others="max"),
    gauge("oldest_waiting",
          "seconds that the oldest blocked or paused message has waited; 0 while none waits",
          "Age of waiting messages", name="oldest_waiting_seconds", of_others="max"),
)  # fmt: skip
GAUGES = (
    # By the names of `Roots.figures`: a queue in which nothing is blocked has none.
    gauge(
        "blocked",
        "messages that wait for the roots of the queue, each counted once; up to 2,000",
        "Blocked messages",
    ),
    # The worst one of the others: a root in one queue blocks nothing in another.
    gauge(
        "blocked_by_one",
        "messages that wait for the root that blocks most; up to 2,000",
        "Blocked messages",
        of_others="max",
    ),
    gauge(
        "slow_leases",
        "messages that have been leased for 60 seconds or longer; up to 100",
        "Blockers",
        "leased for 60 s",
    ),
    of_each(
        "roots",
        "kind",
        ("held", "leased", "backing_off", "paused"),
        "messages and pauses that block others; leased messages count after 60 seconds",
        "Blockers",
        "roots_",
    ),
    # wire: gauges
    gauge("limited", "ready messages that wait for a limit or a rate", "Blocked messages"),
    gauge("groups", "groups with unsettled messages"),
    gauge("parked", "messages parked behind a paused or stuck key", "Blocked messages"),
    gauge("dead", "dead letters", "Dead letters"),
    gauge(
        "bytes",
        "bytes of unsettled messages; 0 if the queue does not count them",
        "Kept",
        "messages",
    ),
    gauge("lanes", "keys with unsettled messages", name="keys"),
    gauge(
        "paused", "paused keys, plus one while the queue itself is paused", "Paused, sealed or full"
    ),
    gauge("sealed", "1 while the queue refuses puts, else 0", "Paused, sealed or full"),
    gauge(
        "full",
        "1 while the queue has no room for another message, else 0",
        "Paused, sealed or full",
    ),
    gauge("results", "results kept"),
    gauge("result_bytes", "bytes of the results kept", "Kept", "results"),
    gauge(
        "riding", "leased messages that wait for the one before them in their run", "Kept", "riding"
    ),
    # /wire
)
COUNTERS = (
    # wire: counters
    counter("puts", "messages put", "Put, leased, handled", "put"),
    counter("leases", "messages leased", "Put, leased, handled", "leased"),
    counter("acks", "messages settled as handled", "Put, leased, handled", "handled"),
    counter("retries", "messages returned for a further attempt", "Failures", "retried"),
    counter("releases", "messages returned with their attempt unchanged", "Failures", "given back"),
    counter("leases_expired", "leases that expired", "Failures", "lease ran out"),
    counter("revoked", "leases that were revoked", "Failures", "lease revoked"),
    counter("dead_lettered", "messages that became dead letters", "Failures", "dead"),
    counter("cancelled", "messages cancelled", "Operated", "cancelled"),
    counter("skipped", "held messages that were skipped", "Operated", "skipped"),
    counter("requeued", "dead letters that were requeued", "Operated", "requeued"),
    counter("deduplicated", "puts with a known dedup string", "Operated", "deduplicated"),
    counter(
        "coalesced", "puts that replaced the payload of an earlier message", "Operated", "coalesced"
    ),
    counter("messages_expired", "messages dropped because they had expired"),
    counter("dead_expired", "dead letters removed because of their age"),
    # /wire
)
QUEUES = QueueFamily("interlock_queues", "gauge", "number of queues", (), panel="Queues")
CUT = QueueFamily(
    "interlock_queues_cut",
    "gauge",
    'queues without their own lines, summed as queue="other"',
    (),
)
QUEUE_FAMILIES = (MESSAGES, *OLDEST, *GAUGES, *COUNTERS, QUEUES, CUT)
"""In the order in which they are printed."""

RATED = ("puts", "leases", "acks", "retries", "leases_expired")
"""Counters that live views show as rates."""


def rates_of(before: Mapping[str, int], now: Mapping[str, int], passed: float) -> dict[str, float]:
    """Return the increase per second of each counter of `RATED`; `passed` is in seconds."""
    return {name: max(now[name] - before[name], 0) / passed for name in RATED}


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
        counted = dict(zip(COUNTERS, self._sum_of_counters(others, rest), strict=True))
        labels, rows = [(name,) for name in own], [found[name] for name in own]
        for family in QUEUE_FAMILIES:
            samples: list[Sample]
            if family in (QUEUES, CUT):
                listed = found if family is QUEUES else others
                yield family, [((), len(listed) + unseen)]
                continue
            if family in OLDEST and not all(family.source in stats for stats in found.values()):
                continue
            if family.values:
                samples = [
                    ((name, value), stats.get(f"{family.source}{value}", 0))
                    for name, stats in zip(own, rows, strict=True)
                    for value in family.values
                ]
                if rest:
                    samples += [
                        ((OTHER, value), sum(_figures(f"{family.source}{value}", rest)))
                        for value in family.values
                    ]
            else:
                samples = list(zip(labels, _of_all(family, rows, now), strict=True))
                if family in counted:
                    of_rest: float = counted[family]
                else:
                    together = max if family.of_others == "max" else sum
                    of_rest = together([0, *_of_all(family, rest, now)])
                if rest:
                    samples.append(((OTHER,), of_rest))
            yield family, samples

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
            values = tuple(stats.get(family.source, 0) for family in COUNTERS)
            before = self._seen.get(queue, (0,) * len(values))
            for at, (old, new) in enumerate(zip(before, values, strict=True)):
                # A counter that fell belongs to a queue that was dropped and created again.
                self._counted[at] += new - old if new >= old else new
            seen[queue] = values
        self._seen = seen
        return self._counted


def _of_all(
    family: QueueFamily, all_stats: Iterable[Mapping[str, int]], now: float
) -> list[int] | list[float]:
    """Return the figures of these queues; for the oldest messages, their ages."""
    figures = _figures(family.source, all_stats)
    return [_age(since, now) for since in figures] if family in OLDEST else figures


def _figures(name: str, all_stats: Iterable[Mapping[str, int]]) -> list[int]:
    return [stats.get(name, 0) for stats in all_stats]


def _age(since: int, now: float) -> float:
    return max(now - since / 1e6, 0.0) if since else 0.0
