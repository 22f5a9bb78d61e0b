"""Histories of a row in several data centres: done by commands, and beside it in the model."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from typing import Any

from interlock import Row
from tests.cluster.naive.commands import Commands
from tests.cluster.naive.stamps import NEVER, Stamp, hybrid
from tests.cluster.naive.state import TableRules
from tests.cluster.state.model import Event, Model, View
from tests.cluster.state.rows import Time

KEY = b"k"
Operation = tuple[Any, ...]
"""``("set", column, value)``, ``("add", column, by)``, ``("put", {column: value}, ms or 0)``,
``("expire", ms)``, ``("persist",)``, ``("delete",)``; columns by number."""


class Centre:
    """A data centre: its state of the row, and the changes that it has seen, by number."""

    def __init__(self, history: History, dc: str, ahead: int) -> None:
        self.history = history
        self.commands = commands_of(history.row, dc, history.age)
        self.rules = self.commands.rules
        self.rules.newest_seen = NEVER
        self.clock = history.time.clock(dc, ahead)
        self.ahead = ahead
        self.state: bytes | None = None
        self.seen: set[int] = set()

    @property
    def now(self) -> int:
        return self.history.time.ms + self.ahead

    def apply(self, number: int) -> None:
        """See a change, perhaps not for the first time."""
        delta = self.history.deltas[number]
        before = self.state
        self.state = self.rules.join(before, delta)
        if number in self.seen:
            assert self.state is before, "what was seen changes nothing"
        self.seen.add(number)
        self.clock.saw(self.rules.newest(delta))

    def shown(self) -> tuple[Any, ...] | None:
        return None if self.state is None else self.rules.values(self.state, self.now)

    def do(self, operation: Operation) -> int | None:
        """Do something, here and in the model; return the number of the change, if it is one."""
        history = self.history
        words = [b"%b" % word for word in self.words(operation)]
        outcome = self.commands.run(words, False, lambda _: self.state, self.clock, self.now)
        assert not outcome.reply.startswith(b"-ERR unknown"), outcome
        if not outcome.changes:
            expected = history.event(self, operation, (0, self.clock.dc))
            assert expected is None, (operation, outcome.reply)
            return None
        ((_, delta),) = outcome.changes
        stamp = (self.clock._last, self.clock.dc)
        event = history.event(self, operation, stamp)
        assert event is not None, (operation, outcome.reply)
        history.events.append(event)
        history.deltas.append(delta)
        number = len(history.deltas) - 1
        self.apply(number)
        return number

    def words(self, operation: Operation) -> list[bytes]:
        def name(number: int) -> bytes:
            return self.rules.columns[number].name.encode()

        match operation:
            case "set", number, value:
                return [b"HSET", b"t:k", name(number), b"%d" % value]
            case "add", number, by:
                return [b"HINCRBY", b"t:k", name(number), b"%d" % by]
            case "put", values, ms:
                pairs = [w for n, value in values.items() for w in (name(n), b"%d" % value)]
                return [b"TABLE", b"SET", b"t:k", b"ANY", b"%d" % ms if ms else b"NEVER", *pairs]
            case "expire", ms:
                return [b"PEXPIRE", b"t:k", b"%d" % ms]
            case ("persist",):
                return [b"PERSIST", b"t:k"]
        return [b"DEL", b"t:k"]


@functools.cache
def commands_of(row: type[Row], dc: str, age: float) -> Commands:
    """One for each data centre, for all its histories: to make them takes longer than a history."""
    return Commands(TableRules(row, tombstone_age=age), table_name="t")


class History:
    """A history: all that was done to one row in some data centres."""

    def __init__(self, row: type[Row], ahead: Sequence[int] = (0, 0), *, age: float = 1e6) -> None:
        self.row = row
        self.age = age
        self.time = Time()
        self.model = Model(commands_of(row, "model", age).rules)
        self.events: list[Event] = []
        self.deltas: list[bytes] = []
        names = ("east", "west", "north")
        self.centres = [Centre(self, names[n], ms) for n, ms in enumerate(ahead)]

    def view(self, centre: Centre) -> View:
        return self.model.view((self.events[number] for number in centre.seen), self.events)

    def event(self, centre: Centre, operation: Operation, stamp: Stamp) -> Event | None:
        """Return an operation as done in the light of what was seen; None if it changes nothing."""
        view = self.view(centre)
        is_alive = view.is_alive(centre.now)
        floor = view.floor
        if view.life is not None and not is_alive:
            floor = max(hybrid(view.life[1]), view.life[0][0]), ""
        live = view.live if floor == view.floor else ()
        create = None if is_alive else 0
        match operation:
            case "set", number, value:
                column = self.model.columns[number]
                if column.range and not column.range[0] <= value <= column.range[1]:
                    return None
                return self.setting(stamp, floor, live, {number: value}, create)
            case "put", values, ms:
                if is_alive:
                    values = dict.fromkeys(range(len(self.model.columns)), 0) | values
                return self.setting(stamp, floor, live, values, centre.now + ms if ms else 0)
            case "add", number, by:
                shown = view.values[number] if is_alive else 0
                column = self.model.columns[number]
                least, most = column.range or (0, 0)
                if not least <= shown + by <= most:
                    return None
                if column.merge == "sum":
                    return Event(stamp, floor, expires=create, adds={number: by})
                return self.setting(stamp, floor, live, {number: shown + by}, create, shown)
        if not is_alive or view.life is None:
            return None
        match operation:
            case "expire", ms:
                return Event(stamp, floor, expires=centre.now + ms)
            case ("persist",):
                return Event(stamp, floor, expires=0) if view.life[1] else None
        return Event(stamp, stamp, deletes=True)

    def setting(
        self,
        stamp: Stamp,
        floor: Stamp,
        live: Sequence[Event],
        values: dict[int, Any],
        expires: int | None,
        before: int | None = None,
    ) -> Event:
        """The event that sets columns; ``before``: flags that are raised from it, bit by bit."""
        sets, clears = {}, {}
        for number, value in values.items():
            column = self.model.columns[number]
            if column.merge == "sum":
                value -= self.model.added(number, floor, live, self.events)
            if column.merge == "flags":
                here = self.model.set_flags(number, live)
                kept = value if before is None else value | ~before
                clears[number] = frozenset(at for at in here if not kept >> at[0] & 1)
                value &= ~(before or 0)
            sets[number] = value
        return Event(stamp, floor, expires=expires, sets=sets, clears=clears)

    def check(self, centre: Centre) -> None:
        """Check that a data centre shows what the model says of all that it has seen."""
        view = self.view(centre)
        assert centre.shown() == view.shown(centre.now), (centre.clock.dc, self.events)
        if view.is_alive(centre.now) and view.life is not None and centre.state is not None:
            assert centre.rules.expires_at(centre.state) == view.life[1]

    def end(self, chance: random.Random) -> None:
        """Bring every change everywhere, in any order: all are the same then, to the byte."""
        for centre in self.centres:
            missing = [number for number in range(len(self.deltas)) if number not in centre.seen]
            missing += chance.sample(range(len(self.deltas)), len(self.deltas) // 3)
            chance.shuffle(missing)
            for number in missing:
                centre.apply(number)
            self.check(centre)
        states = {centre.state for centre in self.centres}
        assert len(states) == 1, self.events
        for _ in range(2):
            assert joined(self, chance.sample(self.deltas, len(self.deltas))) in states


def joined(history: History, deltas: Sequence[bytes]) -> bytes | None:
    """Return changes as one state; pairs of them are joined first, as in a snapshot."""
    rules = history.centres[0].rules
    states = list(deltas)
    while len(states) > 1:
        pairs = zip(states[::2], states[1::2], strict=False)
        odd = states[-1:] if len(states) % 2 else []
        states = [rules.join(one, other) for one, other in pairs] + odd
    return states[0] if states else None
