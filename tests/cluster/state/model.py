"""A model of a row: a list of all that was done to it, and the row computed anew each time.

Nothing is joined here: an event records an operation and what its writer had seen, and a row is the
result of all events. So it is slow, and written down once more, in another way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.naive.stamps import Stamp
from tests.cluster.naive.state import TableRules

NONE: Stamp = (0, "")


@dataclass(frozen=True)
class Event:
    """Something that was done to a row."""

    stamp: Stamp
    floor: Stamp
    """The newest end of a life that the writer knew of; of a delete its own."""
    deletes: bool = False
    expires: int | None = None
    """The time at which the row expires, 0 never; None where nothing was said of that."""
    sets: dict[int, Any] = field(default_factory=dict)
    """By the numbers of columns. Of a sum: less what was added by then."""
    adds: dict[int, int] = field(default_factory=dict)
    clears: dict[int, frozenset[tuple[int, Stamp]]] = field(default_factory=dict)
    """Flags that were cleared: the bit, and who had set it when."""


@dataclass(frozen=True)
class View:
    """A row as some events make it."""

    floor: Stamp
    life: tuple[Stamp, int] | None
    values: tuple[Any, ...]
    live: tuple[Event, ...]

    def is_alive(self, now_ms: int) -> bool:
        return self.life is not None and not 0 < self.life[1] <= now_ms

    def shown(self, now_ms: int) -> tuple[Any, ...] | None:
        return self.values if self.is_alive(now_ms) else None


class Model:
    """The columns of a row, and what events make of them."""

    def __init__(self, rules: TableRules) -> None:
        self.columns = rules.columns

    def view(self, events: Iterable[Event], all_events: Sequence[Event]) -> View:
        """Return what some of all events make; those were seen, in whatever order."""
        seen = list(events)
        floor = max((event.floor for event in seen), default=NONE)
        live = tuple(event for event in seen if event.floor == floor and not event.deletes)
        lives = [(event.stamp, event.expires) for event in live if event.expires is not None]
        values = tuple(
            self.value(number, floor, live, all_events) for number in range(len(self.columns))
        )
        return View(floor, max(lives, default=None), values, live)

    def value(
        self, number: int, floor: Stamp, live: Sequence[Event], all_events: Sequence[Event]
    ) -> Any:
        column = self.columns[number]
        sets = [(event.stamp, event.sets[number]) for event in live if number in event.sets]
        match column.merge:
            case "last":
                return max(sets, default=(NONE, column.zero))[1]
            case "max":
                return max((value for _, value in sets), default=column.zero)
            case "flags":
                return self.flags(number, live)
        base = max(sets, default=(NONE, 0))[1]
        least, most = column.range or (0, 0)
        total = base + self.added(number, floor, live, all_events)
        return min(max(total, least), most)

    def added(
        self, number: int, floor: Stamp, live: Sequence[Event], all_events: Sequence[Event]
    ) -> int:
        """Return what was added: who has seen one increment of a data centre has all before it."""
        newest: dict[str, Stamp] = {}
        for event in live:
            if number in event.adds:
                dc = event.stamp[1]
                newest[dc] = max(newest.get(dc, NONE), event.stamp)
        return sum(
            event.adds[number]
            for event in all_events
            if number in event.adds
            and event.floor == floor
            and event.stamp <= newest.get(event.stamp[1], NONE)
        )

    def flags(self, number: int, live: Sequence[Event]) -> int:
        """The bits that are on: which somebody set last in his place, and nobody cleared since."""
        return sum({1 << bit for bit, _ in self.set_flags(number, live)})

    def set_flags(self, number: int, live: Sequence[Event]) -> list[tuple[int, Stamp]]:
        last: dict[tuple[int, str], Stamp] = {}
        cleared: dict[tuple[int, str], Stamp] = {}
        for event in live:
            bits = event.sets.get(number, 0)
            for bit in range(bits.bit_length()):
                if bits >> bit & 1:
                    at = bit, event.stamp[1]
                    last[at] = max(last.get(at, NONE), event.stamp)
            for bit, stamp in event.clears.get(number, ()):
                at = bit, stamp[1]
                cleared[at] = max(cleared.get(at, NONE), stamp)
        return [(at[0], stamp) for at, stamp in last.items() if stamp > cleared.get(at, NONE)]
