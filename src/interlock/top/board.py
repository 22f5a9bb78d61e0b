"""Polls of an engine, with a memory of counts, rates, and their history.

No terminal here. All calls wait for the engine, so they are made on a thread.
"""

from __future__ import annotations

import collections
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from interlock.app import envelope
from interlock.client.admin.answers import wait_for_answer
from interlock.client.admin.operator import Operator
from interlock.client.admin.queue_counts import QueueCounts
from interlock.client.wire.records import Letter, Stored
from interlock.errors import PayloadError
from interlock.roots import Roots
from interlock.runtime.queue_figures import rates_of
from interlock.worker.message.tasks import UnknownVersion

__all__ = ["ACTIONS", "Action", "Board", "Entry", "Look", "QueueLook", "WorkerLook"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A message of a list."""

    id: int
    task: str
    keys: tuple[bytes, ...]
    attempt: int
    error: str


@dataclass(frozen=True, slots=True)
class Look:
    """All queues at one moment."""

    stats: dict[str, dict[str, int]]
    rates: dict[str, dict[str, float]]
    """Each counter's increase per second; empty for a queue seen the first time."""
    depths: dict[str, Sequence[float]]
    """Numbers of messages at the last polls."""
    stalls: dict[str, Roots] = field(default_factory=dict)
    """Roots of the queues in which messages are blocked."""


@dataclass(frozen=True, slots=True)
class QueueLook:
    """One queue at one moment."""

    stats: dict[str, int]
    hot: list[tuple[bytes, int]]
    held: list[Entry]
    dead: list[Entry]
    paused: int
    stall: Roots | None = None
    """Its roots, if messages are blocked."""


@dataclass(frozen=True, slots=True)
class WorkerLook:
    """One worker, as it announced itself."""

    queue: str
    name: str
    age: float
    said: dict[str, Any] = field(default_factory=dict)


class Board:
    """The knowledge of an engine."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self._counts = QueueCounts()
        self._before: dict[str, dict[str, int]] = {}
        self._asked = 0.0
        self._depths: dict[str, collections.deque[float]] = {}

    def look(self) -> Look:
        """Poll all queues. Raises InterlockError if the engine does not answer."""
        now, stats = time.monotonic(), self.operator.all_stats()
        passed = max(now - self._asked, 1e-6)
        rates = {
            name: rates_of(self._before[name], counts, passed)
            for name, counts in stats.items()
            if name in self._before
        }
        self._before, self._asked = stats, now
        # Deleted queues are forgotten: the view may be open for weeks.
        self._depths = {
            name: self._depths.get(name, collections.deque(maxlen=COURSE)) for name in stats
        }
        for name, counts in stats.items():
            self._depths[name].append(float(counts["unsettled"]))
        depths: dict[str, Sequence[float]] = {
            name: tuple(some) for name, some in self._depths.items()
        }
        return Look(stats, rates, depths, self._stalls(stats))

    def queue(self, name: str) -> QueueLook:
        """Poll one queue, a bounded part of it however much it holds."""
        stats = self.operator.stats(name)
        held = [_stored(one) for one in self._held(name)] if stats["held"] else []
        held.sort(key=lambda one: one.id)
        dead = list(itertools.islice(self.operator.dead_letters(name), SHOWN))
        paused = len(self.operator.paused(name)) if stats.get("paused") else 0
        hot = self.operator.hot_keys(name, HOT, pages=PAGES)
        stall = self._stalls({name: stats}).get(name)
        return QueueLook(stats, hot, held, [_letter(one) for one in dead], paused, stall)

    def _stalls(self, stats: dict[str, dict[str, int]]) -> dict[str, Roots]:
        found = self._counts.stalls(self.operator, stats)
        return {
            name: roots for name, roots in found.items() if roots.is_stall(stats[name]["unsettled"])
        }

    def workers(self) -> list[WorkerLook]:
        """Return the workers of all queues, by name."""
        found = [
            WorkerLook(queue, one.worker, one.age, one.said)
            for queue, one in self.operator.all_workers()
        ]
        return sorted(found, key=lambda one: one.name)[:MOST_WORKERS]

    def stacks(self, queue: str, worker: str) -> dict[str, Any] | None:
        """Ask a worker for its handlers' stacks; None if it has not answered in time."""
        number = self.operator.ask(queue, worker, ASKED)
        if number is None:
            return None
        return wait_for_answer(self.operator, queue, worker, number, LONGEST_ANSWER)

    def act(self, action: Action, queue: str, id: int) -> bool:
        """Operate on a message. Returns False if it no longer exists, or is in another state."""
        return action.do(self.operator, queue, id)

    def _held(self, name: str) -> Iterator[Stored]:
        found, cursor = 0, b"0"
        for _ in range(PAGES):
            cursor, some = self.operator.page(name, cursor, PAGE)
            for one in some:
                if one.state == "held":
                    found += 1
                    yield one
            if cursor == b"0" or found >= SHOWN:
                return


class _Do(Protocol):
    def __call__(self, operator: Operator, queue: str, id: int, /) -> bool: ...


@dataclass(frozen=True, slots=True)
class Action:
    """An operation on a message."""

    key: str
    """Key that triggers it."""
    word: str
    of: Literal["held", "dead"]
    meaning: str
    do: _Do


def _change(function: str) -> Callable[[Operator, str, int], bool]:
    return lambda operator, queue, id: operator.change(function, queue, id)


ACTIONS = (
    Action("r", "retry", "held", "it is handled again immediately", _change("retry")),
    Action("s", "skip", "held", "it is settled unhandled, and its keys continue", _change("skip")),
    Action("b", "bury", "held", "it becomes a dead letter, and its keys continue", _change("bury")),
    Action("r", "requeue", "dead", "it is put behind all other messages",
           lambda operator, queue, id: operator.requeue(queue, id) is not None),
    Action("x", "discard", "dead", "it is deleted permanently",
           lambda operator, queue, id: operator.discard(queue, id)),
)  # fmt: skip


def _stored(one: Stored) -> Entry:
    return Entry(one.id, task_of(one.payload), one.keys + one.shared, one.attempt, one.error)


def _letter(one: Letter) -> Entry:
    return Entry(one.id, task_of(one.payload), one.keys + one.shared, one.attempts, one.error)


def task_of(payload: bytes) -> str:
    """Return the name of the task that a message calls; empty if it calls none."""
    try:
        return envelope.read(payload).task
    except (PayloadError, UnknownVersion):
        return ""


COURSE = 60
"""Polls that are remembered."""
SHOWN = 200
"""Maximum held messages, and dead letters, of a list."""
HOT = 10
PAGE = 512
PAGES = 20
MOST_WORKERS = 1000
ASKED = '{"ask": "stacks"}'
LONGEST_ANSWER = 10.0
"""Seconds."""
