"""Clients of a run: threads at machines of their own, which write and read, and tell a history.

A writer writes at the nodes of its data centre, one after another as the mood takes it; a reader
sits at one machine and reads at its node. What they do with a key is said in `checker`. The random
numbers are by seed, what comes of them is not.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from interlock.hub.client import Client
from interlock.hub.resp import ProtocolError, ReplyError
from tests.cluster.faults.history import FAILED, OK, READ, UNKNOWN, Operation, Recorder
from tests.cluster.faults.rows import TABLE, shown

Word = str | int

TIMEOUT = 3.0
SURELY_NOT = ("NOTPRIMARY", "STALE", "TRYAGAIN", "TABLEFULL", "OVERFLOW")
"""Codes of errors after which a write is surely not done, nor will be."""

SHARED = 3
"""Keys of each kind that everybody writes."""

KINDS = ("incr", "net", "high", "own", "flag", "any", "ttl")
Enter = Callable[[], None]


@dataclass
class Place:
    """A node as clients reach it."""

    name: str
    dc: str
    host: str
    port: int


@dataclass
class Known:
    """The keys there are, for readers; and whether clients go on."""

    kinds: Sequence[str] = KINDS
    pause: float = 0.015
    """Seconds between two operations of a client, on average."""

    table: str = TABLE
    keys: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        prefixes = {"incr": "sum", "net": "net", "high": "max", "any": "any"}
        self.keys += [
            f"{prefix}-{number}"
            for kind, prefix in prefixes.items()
            if kind in self.kinds
            for number in range(SHARED)
        ]


class Guest:
    """One client, on a thread of its own."""

    def __init__(
        self,
        name: str,
        places: Sequence[Place],
        recorder: Recorder,
        known: Known,
        seed: str,
        enter: Enter = lambda: None,
    ) -> None:
        self.name = name
        self.error: BaseException | None = None
        self.done = 0
        """Operations that were answered as done."""
        self.chance = random.Random(seed)
        self.known = known
        self._places = places
        self._place = places[0]
        self._recorder = recorder
        self._enter = enter
        self._client: Client | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(TIMEOUT * 3)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        if self.error is not None:
            raise AssertionError(f"{self.name}: {self.error!r}") from self.error

    def step(self) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        try:
            self._enter()
            while not self.known.stop.is_set():
                self.step()
                # A client's own pace.
                self.known.stop.wait(self.chance.expovariate(1 / self.known.pause))
        except BaseException as error:
            self.error = error
        finally:
            self.leave()

    def leave(self) -> None:
        """End the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def move(self) -> None:
        """Go to any node."""
        self.leave()
        self._place = self.chance.choice(self._places)

    def do(self, kind: str, key: str, value: int, words: Sequence[Word], id: str = "") -> Operation:
        """One operation, and its line in the history."""
        id = id or f"<{self.name}.{next(self.known.numbers)}>"
        start = time.monotonic()
        reply: int | None = None
        row = None
        error = ""
        try:
            connected = self._connected()
        except OSError as failure:
            # Nothing was sent.
            answer, error = FAILED, repr(failure)
        else:
            try:
                said = connected.call(*words)
            except ReplyError as failure:
                error = str(failure)
                surely = error.startswith(SURELY_NOT)
                answer = FAILED if surely or kind == READ else UNKNOWN
            except (OSError, ProtocolError) as failure:
                answer, error = FAILED if kind == READ else UNKNOWN, repr(failure)
                self.leave()
            else:
                answer = OK
                self.done += 1
                if kind == READ:
                    row = shown(said)
                elif isinstance(said, int):
                    reply = said
        operation = Operation(
            id, self.name, self._place.name, self._place.dc, kind, key,
            start, time.monotonic(), answer, value, reply, row, error,
        )  # fmt: skip
        self._recorder.add(operation)
        return operation

    def place(self, key: str) -> str:
        """The key of a row, as commands have it."""
        return f"{self.known.table}:{key}"

    def _connected(self) -> Client:
        if self._client is None:
            address = f"{self._place.host}:{self._place.port}"
            self._client = Client(address, timeout=TIMEOUT)
        return self._client


class Reader(Guest):
    """Reads rows, one at a time."""

    def step(self) -> None:
        # The newest keys are those that are written.
        keys = self.known.keys
        key = self.chance.choice(keys if self.chance.random() < 0.4 else keys[-8:])
        done = self.do(READ, key, 0, ("HGETALL", self.place(key)))
        if done.answer != OK:
            self.leave()
            self.known.stop.wait(0.1)


class Writer(Guest):
    """Writes of all kinds; it keeps keys that it alone writes, and takes new ones in time."""

    def __init__(self, *arguments: object, **more: object) -> None:
        self._mine: dict[str, str] = {}
        self._alive: set[str] = set()
        self._generations = itertools.count()
        super().__init__(*arguments, **more)  # type: ignore[arg-type]

    def step(self) -> None:
        kind = self.chance.choice(self.known.kinds)
        done = getattr(self, f"_{kind}")()
        if done.answer != OK:
            self.move()
            self.known.stop.wait(self.chance.random() * 0.2)
        elif self.chance.random() < 0.02:
            self.move()

    def _shared(self, prefix: str) -> str:
        return f"{prefix}-{self.chance.randrange(SHARED)}"

    def _incr(self) -> Operation:
        key, by = self._shared("sum"), self.chance.randrange(1, 10)
        return self.do("incr", key, by, ("HINCRBY", self.place(key), "count", by))

    def _net(self) -> Operation:
        key, by = self._shared("net"), self.chance.choice((-7, -1, 1, 5))
        return self.do("incr", key, by, ("HINCRBY", self.place(key), "net", by))

    def _high(self) -> Operation:
        key = self._shared("max")
        value = next(self.known.numbers) + self.chance.randrange(1, 50)
        return self.do("high", key, value, ("HSET", self.place(key), "high", value))

    def _own(self) -> Operation:
        key = self._key("own")
        place, value = self.place(key), next(self.known.numbers) + 1
        id = f"<{self.name}.{value}>"
        draw = self.chance.random()
        if key in self._alive and draw < 0.15:
            return self._alone("delete", key, value, ("DEL", place), id)
        words: tuple[Word, ...] = ("last", value, "who", id)
        if key in self._alive and draw < 0.45:
            return self._alone("patch", key, value, ("TABLE", "PATCH", place, *words), id)
        if draw < 0.7:
            return self._alone("put", key, value, ("HSET", place, *words), id)
        words = ("TABLE", "SET", place, "ANY", "DEFAULT", *words)
        return self._alone("set", key, value, words, id)

    def _flag(self) -> Operation:
        key = self._key("flag")
        value = self.chance.randrange(1, 2**40)
        return self._alone("flags", key, value, ("HSET", self.place(key), "marks", value))

    def _any(self) -> Operation:
        key = self._shared("any")
        place, draw = self.place(key), self.chance.random()
        id = f"<{self.name}.{next(self.known.numbers)}>"
        if draw < 0.15:
            return self.do("delete", key, 0, ("DEL", place), id)
        if draw < 0.25:
            lives = self.chance.randrange(50, 1500)
            return self.do("expire", key, lives, ("PEXPIRE", place, lives), id)
        if draw < 0.4:
            bits = self.chance.randrange(256)
            return self.do("flags", key, bits, ("HSET", place, "marks", bits, "who", id), id)
        if draw < 0.6:
            by = self.chance.randrange(1, 10)
            return self.do("incr", key, by, ("HINCRBY", place, "count", by), id)
        if draw < 0.8:
            return self.do("put", key, 0, ("HSET", place, "who", id), id)
        words = ("TABLE", "SET", place, "ANY", "DEFAULT", "last", 1, "who", id)
        return self.do("set", key, 0, words, id)

    def _ttl(self) -> Operation:
        key = self._key("ttl", again=0.3)
        place, lives = self.place(key), self.chance.randrange(20, 2000)
        id = f"<{self.name}.{next(self.known.numbers)}>"
        return self.do(
            "set", key, lives, ("TABLE", "SET", place, "ANY", lives, "last", 1, "who", id), id
        )

    def _alone(
        self, kind: str, key: str, value: int, words: Sequence[Word], id: str = ""
    ) -> Operation:
        """A write of a row that nobody else writes."""
        done = self.do(kind, key, value, words, id)
        if done.answer == UNKNOWN:
            # It may still come, so nobody could say what is right there from now on.
            self._mine.pop(key.partition("-")[0])
        elif done.answer == OK:
            (self._alive.discard if kind == "delete" else self._alive.add)(key)
        return done

    def _key(self, prefix: str, again: float = 0.98) -> str:
        if prefix not in self._mine or self.chance.random() > again:
            key = f"{prefix}-{self.name}-{next(self._generations)}"
            self._mine[prefix] = key
            self.known.keys.append(key)
        return self._mine[prefix]


def settle(guests: Sequence[Guest], deadline: float) -> list[str]:
    """Wait until each of them was answered as done again; answers who was not in time."""
    before = {guest.name: guest.done for guest in guests}
    waiting = list(guests)
    while waiting and time.monotonic() < deadline:
        time.sleep(0.02)  # Between two looks.
        waiting = [one for one in waiting if one.done == before[one.name] and one.error is None]
    return [one.name for one in waiting]


def end(guests: Sequence[Guest], known: Known) -> None:
    """Have them all end. Raises AssertionError where one broke."""
    known.stop.set()
    errors: list[AssertionError] = []
    for guest in guests:
        with suppress(AssertionError):
            guest.join()
            continue
        errors.append(AssertionError(f"{guest.name}: {guest.error!r}"))
    if errors:
        raise errors[0]
