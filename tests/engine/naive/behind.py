"""The naive model of a queue: what happens to messages behind a failure (clause 31).

A key is shut while it is paused or a stuck message carries it. What waits on it leaves the lane,
the last message first; a parked message has all of its places or none.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.engine.naive.groups import GroupedModel
from tests.engine.naive.model import HELD, MOST, PARKED, QUEUED, Entry, Refused, Spec

MOVES = 1000
"""Messages that one call moves."""
TIMES = 8
"""A message that was parked this often waits in its place."""


class BehindModel(GroupedModel):
    def behind(self, entry: Entry) -> str:
        """The outcome for a message, by its own value or else by that of the queue."""
        return self.option("BEHIND", entry)

    def minds(self) -> bool:
        """Some message may leave its place."""
        own = (entry.options.get("BEHIND", "wait") for entry in self.unsettled())
        return (
            self.options["BEHIND"] != "wait" or bool(self.parked) or any(v != "wait" for v in own)
        )

    def stuck_on(self, key: str) -> list[Entry]:
        return sorted((e for e in self.lane(key) if e.stuck), key=lambda entry: entry.id)

    def held_on(self, key: str) -> Entry | None:
        return next((entry for entry in self.lane(key) if entry.state == HELD), None)

    def key_is_shut(self, key: str) -> bool:
        return key in self.paused or bool(self.stuck_on(key))

    def front(self, key: str) -> list[Entry]:
        """Messages that nothing on this key blocks."""
        lane = self.lane(key)
        writers = [at for at, entry in enumerate(lane) if key in entry.exclusive]
        return lane[: max(writers[0], 1)] if writers else lane

    def parked_under(self, key: str) -> list[Entry]:
        return sorted((e for e in self.parked if e.under == key), key=lambda entry: entry.first)

    # Whether a message may leave, or take, its place.

    def has_dead_room(self) -> bool:
        """There is room for one dead letter beside those that are promised."""
        dying = sum(entry.dying is not None for entry in self.line)
        return len(self.dead) + dying < int(self.options["MAXDEAD"])

    def may_park(self, count: int, size: int) -> bool:
        """At most half of each bound is parked."""
        most, bytes = int(self.options["MAXSIZE"]), int(self.options["MAXBYTES"])
        size += sum(len(entry.payload) for entry in self.parked)
        too_many = most and 2 * (len(self.parked) + count) > most
        return not too_many and not (bytes and 2 * size > bytes)

    def refuse_stuck(self, specs: Iterable[Spec]) -> None:
        """Refuse a put of which too much could be parked."""
        found = []
        for spec in specs:
            options = dict(spec.options)
            parks = options.get("BEHIND", self.options["BEHIND"]) == "park"
            exclusive, shared = spec.canonical_keys()
            keys = [k for k in (*exclusive, *shared) if self.key_is_shut(k) or self.parked_under(k)]
            delayed = int(options.get("DELAY", 0)) or "DEBOUNCE" in options
            if parks and keys and not delayed:
                found.append(spec)
        if found and not self.may_park(len(found), sum(len(spec.payload) for spec in found)):
            raise Refused("STUCK")

    def _would_wait(self, entry: Entry, key: str) -> bool:
        """At the end of the lane, it would have a conflicting message before it."""
        return any(key in entry.exclusive or key in other.exclusive for other in self.lane(key))

    def _held_back(self, entry: Entry, key: str) -> bool:
        if key in self.paused or (self.stuck_on(key) and self._would_wait(entry, key)):
            return True
        first = entry.first or entry.sequence
        return any(other.first < first for other in self.parked_under(key))

    def take_place(self, entry: Entry) -> None:
        """A message that is new, due or on its way back takes its places, or none."""
        returns, value = entry.state == PARKED, self.behind(entry)
        for key in [] if value == "wait" else entry.keys:
            if value == "park":
                # A put was refused before; one that is due would pass those that are parked here.
                if not entry.returned and self._held_back(entry, key):
                    self._park(entry, key)
                    return
            elif (
                self.held_on(key)
                and self._would_wait(entry, key)
                and (value == "cancel" or self.has_dead_room())
            ):
                self._go_with_it(entry, key)
                return
        if returns:
            self.parked.remove(entry)
            entry.state, entry.sequence = QUEUED, self._next_number()
            self.happened("returned", entry)
        self.line.append(entry)

    def _park(self, entry: Entry, key: str) -> None:
        entry.under = key
        if entry.state == PARKED:
            # From one list to another.
            return
        if entry in self.line:
            self.line.remove(entry)
        entry.forget_wait()
        entry.state, entry.set_aside = PARKED, None
        entry.first = entry.first or entry.sequence
        entry.times += 1
        entry.since = self.now
        self.parked.append(entry)
        self.happened("parked", entry)

    def _go_with_it(self, entry: Entry, key: str) -> None:
        """It is buried or cancelled with the first held message of a key."""
        held = self.held_on(key)
        assert held
        text = f"behind message {held.id}"
        if self.behind(entry) == "cancel":
            self._cancel(entry, text)
            return
        self.add_error(entry, text)
        self.happened("dead", entry, error=text)
        self.bury_entry(entry)

    def _cancel(self, entry: Entry | None, error: str = "") -> bool:
        raise NotImplementedError

    # Sweeps and returns.

    def begin_moves(self) -> None:
        """Begin a call: it first continues what earlier ones left."""
        self.moves, self.moved_keys = MOVES, MOST["MAX_BATCH_KEYS"]
        self.move()

    def sweep(self, keys: Iterable[str]) -> None:
        if self.minds():
            self.sweeps += [key for key in keys if key not in self.sweeps]

    def become_stuck(self, entry: Entry) -> None:
        entry.stuck = entry.returned = True
        self.sweep(entry.keys)

    def begins_to_die(self, entry: Entry, token: int, error: str) -> bool:
        """Hold a message, which would be a dead letter, for as long as others go with it.

        False: none does.
        """
        before, entry.state = entry.state, HELD
        tails = [(self.lane(key)[-1], key) for key in entry.keys]
        goes = any(
            tail is not entry
            and self.behind(tail) in ("bury", "cancel")
            and self._leaves(tail, key, len(self.dead) + 1)
            for tail, key in tails
        )
        if not goes or entry.barrier or not self.minds():
            entry.state = before
            return False
        entry.returned, entry.dying = True, (token, error)
        self.sweep(entry.keys)
        self.move()
        if entry.dying is not None:
            entry.dying = 0, None
            self.happened("hold", entry, token, error=error)
        return True

    def _end_dying(self) -> None:
        for entry in [entry for entry in self.line if entry.dying is not None]:
            if not any(key in self.sweeps for key in entry.keys):
                assert entry.dying is not None
                token, error = entry.dying
                told = entry.newest_error() if error is None else error
                self.happened("dead", entry, token, error=told)
                entry.dying = None
                self.bury_entry(entry)

    def open_keys(self) -> set[str]:
        """Keys that are open, and whose parked messages return."""
        under = {entry.under for entry in self.parked}
        return {key for key in under if not self.key_is_shut(key)}

    def has_moves(self) -> bool:
        return bool(self.sweeps or self.resweep is not None or self.open_keys())

    def move(self) -> None:
        while self.moves > 0 and self.moved_keys > 0 and self.has_moves():
            if self.sweeps:
                self._sweep_one(self.sweeps[0])
            elif self.resweep is not None:
                self._sweep_next()
            else:
                opened = self.open_keys()
                back = [entry for entry in self.parked if entry.under in opened]
                entry = min(back, key=lambda entry: entry.first)
                self._count(entry)
                self.take_place(entry)

    def _count(self, entry: Entry) -> None:
        self.moves -= 1
        self.moved_keys -= len(entry.keys)

    def _sweep_one(self, key: str) -> None:
        """The last message of a lane goes, or ends the sweep."""
        last = self.lane(key)[-1:]
        if not last or not self._leaves(last[0], key, len(self.dead)):
            self.sweeps.remove(key)
            self._end_dying()
            return
        self._count(last[0])
        if self.behind(last[0]) == "park":
            self._park(last[0], key)
        else:
            self._go_with_it(last[0], key)

    def _sweep_next(self) -> None:
        """Another value of the queue: each shut key is swept again, in the order of bytes."""
        shut = {key for entry in self.line if entry.stuck for key in entry.keys} | set(self.paused)
        behind = sorted(key for key in shut if key > (self.resweep or ""))
        self.resweep = behind[0] if behind else None
        self.sweep(behind[:1])
        self.moves -= bool(behind)

    def _leaves(self, entry: Entry, key: str, dead: int) -> bool:
        if entry.state != QUEUED:
            return False
        waits, value = entry not in self.front(key), self.behind(entry)
        if value == "park":
            shut = key in self.paused or (waits and bool(self.stuck_on(key)))
            stays = entry.returned or entry.times >= TIMES
            return shut and not stays and self.may_park(1, len(entry.payload))
        if value == "wait" or not waits or self.held_on(key) is None:
            return False
        dead += sum(one.dying is not None for one in self.line)
        return value == "cancel" or dead < int(self.options["MAXDEAD"])

    # Explanations.

    def parking(self, entry: Entry) -> tuple[list[str], list[Entry]]:
        """The list of a parked message, and the stuck messages for which it is there."""
        if entry.state != PARKED:
            return [], []
        ahead = sum(other.first < entry.first for other in self.parked_under(entry.under))
        age = str(max(self.now - entry.since, 0))
        told = [entry.under, age, str(entry.times), str(min(ahead, 1000))]
        return [*told, str(int(entry.under in self.paused))], self.stuck_on(entry.under)[:10]
