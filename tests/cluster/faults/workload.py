"""Clients of a run: threads at machines of their own, which write and read, and tell a history.

A writer writes at the nodes of its data centre, at random, one after another, and leaves a key of
its own when the outcome of a write is unknown. A client of the cluster continues with the same key:
its writes are numbered. A reader sits at one machine and reads at its node, or in the memory of
that machine. `checker` describes their operations on a key. The random numbers are by seed, what
comes of them is not."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import interlock
from interlock.errors import EngineUnavailable
from interlock.hub.client import Client
from interlock.hub.resp import ProtocolError, ReplyError
from tests.cluster.faults.history import FAILED, OK, READ, UNKNOWN, Operation, Recorder
from tests.cluster.faults.rows import TABLE, State, columns, shown

Word = str | int

TIMEOUT = 3.0
SURELY_NOT = ("STALE", "TRYAGAIN", "TABLEFULL", "OVERFLOW", "NODE")
"""Codes of errors after which a write is surely not done, nor will be."""
NOT_DONE = "it was not done"
"""So a node says that its log did not take a write in time."""

BURST = 8
"""Increments that are sent at once."""
SHARED = 3
"""Keys of each kind that everybody writes."""

KINDS = ("incr", "net", "high", "own", "flag", "any", "ttl", "cas")
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
    """The keys there are, for readers; and whether clients continue."""

    kinds: Sequence[str] = KINDS
    pause: float = 0.015
    """Seconds between two operations of a client, on average."""

    table: str = TABLE
    keys: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        prefixes = {"incr": "sum", "net": "net", "high": "max", "any": "any"}
        self.keys += [
            f"{prefix}-{number}"
            for kind, prefix in prefixes.items()
            if kind in self.kinds
            for number in range(SHARED)
        ]


class NotSent(Exception):
    """There was no connection."""


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
        return self.do_all([(kind, key, value, words)], id)[0]

    def do_all(
        self, asked: Sequence[tuple[str, str, int, Sequence[Word]]], id: str = ""
    ) -> list[Operation]:
        """Operations sent at once, and their lines."""
        start = time.monotonic()
        said: list[Any]
        try:
            connected = self._connected()
        except OSError as failure:
            # Nothing was sent.
            said = [NotSent(repr(failure))] * len(asked)
        else:
            try:
                said = list(connected.pipeline([words for *_, words in asked]))
            except (OSError, ProtocolError) as failure:
                said = [failure] * len(asked)
                self.leave()
        end = time.monotonic()
        return [
            self._done(one, reply, start, end, id) for one, reply in zip(asked, said, strict=True)
        ]

    def _done(
        self, asked: tuple[str, str, int, Sequence[Word]], said: Any, start: float, end: float,
        id: str,
    ) -> Operation:  # fmt: skip
        kind, key, value, _ = asked
        answer, error, reply, row = OK, "", None, None
        if isinstance(said, Exception):
            error = str(said) if isinstance(said, ReplyError | NotSent) else repr(said)
            surely = isinstance(said, NotSent) or error.startswith(SURELY_NOT) or NOT_DONE in error
            answer = FAILED if surely or kind == READ else UNKNOWN
        else:
            self.done += 1
            if kind == READ:
                row = shown(said)
            elif isinstance(said, int):
                reply = said
        operation = Operation(
            id or f"<{self.name}.{next(self.known.numbers)}>", self.name, self._place.name,
            self._place.dc, kind, key, start, end, answer, value, reply, row, error,
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
        kind = self.chance.choice([one for one in self.known.kinds if one != "cas"])
        done = self._burst() if self.chance.random() < 0.3 else getattr(self, f"_{kind}")()
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

    def _burst(self) -> Operation:
        """Many increments at once: what is done twice, or too late, is many then."""
        adds = [(self._shared("sum"), self.chance.randrange(1, 10)) for _ in range(BURST)]
        return self.do_all(
            [("incr", key, by, ("HINCRBY", self.place(key), "count", by)) for key, by in adds]
        )[-1]

    def _net(self) -> Operation:
        key, by = self._shared("net"), self.chance.choice((-7, -1, 1, 5))
        return self.do("incr", key, by, ("HINCRBY", self.place(key), "net", by))

    def _high(self) -> Operation:
        key = self._shared("max")
        value = next(self.known.numbers) + self.chance.randrange(1, 50)
        return self.do("high", key, value, ("HSET", self.place(key), "high", value))

    def _own(self) -> Operation:
        key = self._key("own")
        place, value = self.place(key), next(self.known.numbers)
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
        """A write of a row that no one else writes."""
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


@dataclass
class Ask:
    """A call of a client of the library."""

    kind: str
    key: str
    value: int
    method: str
    arguments: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    expected: int = 0


class Numbered(Guest):
    """A client of the whole cluster, `interlock+cluster://`: it writes and reads where it can, and
    continues with a key although the outcome of its last write there is unknown.

    Args of its own:
        url: of the cluster.
        timeout: seconds of a call.
        linear: its reads are linearizable.
        lanes: number of concurrent calls, by asyncio; 0: one after another, on its thread.
    """

    def __init__(
        self,
        name: str,
        dc: str,
        url: str,
        recorder: Recorder,
        known: Known,
        seed: str,
        enter: Enter,
        *,
        timeout: float,
        linear: bool = False,
        lanes: int = 0,
    ) -> None:
        self._url = f"{url}&timeout={timeout}" + ("&linearizable=1" if linear else "")
        self._timeout, self._linear, self._lanes = timeout, linear, lanes
        self._seen: dict[str, int] = {}
        self._absent: set[str] = set()
        """Keys known to have no row, which one of its calls needs."""
        place = Place(f"client {name}", dc, "", 0)
        super().__init__(name, [place], recorder, known, seed, enter)

    def _run(self) -> None:
        try:
            self._enter()
            if self._lanes:
                asyncio.run(self._all())
            else:
                with interlock.connect(self._url) as connected:
                    self._one(connected.table(self.known.table, State))
        except BaseException as error:
            self.error = error

    def _one(self, table: Any) -> None:
        while not self.known.stop.is_set():
            ask = self._asked(self.name)
            start = time.monotonic()
            said: Any = None
            try:
                said = getattr(table, ask.method)(ask.key, *ask.arguments, **ask.named)
            except (EngineUnavailable, KeyError) as error:
                said = error
            if self._told(ask, start, said).answer != OK:
                self.known.stop.wait(self.chance.random() * 0.2)
            self.known.stop.wait(self.chance.expovariate(1 / self.known.pause))

    async def _all(self) -> None:
        async with interlock.connect(self._url) as connected:
            table = connected.table(self.known.table, State)
            await asyncio.gather(
                *(self._lane(table, f"{self.name}.{n}") for n in range(self._lanes))
            )

    async def _lane(self, table: Any, lane: str) -> None:
        while not self.known.stop.is_set():
            ask = self._asked(lane)
            start = time.monotonic()
            said: Any = None
            leaves = self.chance.random() < 0.03
            # Some wait for no answer: what they asked for may come, but behind nothing later.
            most = self.chance.random() * 0.02 if leaves else self._timeout * 3
            try:
                call = getattr(table, ask.method)(ask.key, *ask.arguments, **ask.named)
                said = await asyncio.wait_for(call, most)
            except (EngineUnavailable, KeyError) as error:
                said = error
            except TimeoutError:
                assert leaves, f"{ask} took more than {most} s"
                said = EngineUnavailable("left", unknown=True)
            if self._told(ask, start, said).answer != OK:
                await asyncio.sleep(self.chance.random() * 0.2)
            await asyncio.sleep(self.chance.expovariate(1 / self.known.pause))

    def _told(self, ask: Ask, start: float, said: Any) -> Operation:
        """Record the outcome of a call."""
        answer, error, reply, row = OK, "", None, None
        if isinstance(said, EngineUnavailable):
            answer, error = UNKNOWN if said.unknown else FAILED, repr(said)
        elif isinstance(said, KeyError):
            # The row does not exist: so it did nothing.
            answer, error = FAILED, "no row"
        if ask.kind == READ:
            answer = FAILED if answer == UNKNOWN else answer
            row = columns(said) if answer == OK else None
            if answer == OK and ask.key.startswith("cas-"):
                self._absent -= {ask.key} if row is not None else set()
                self._seen[ask.key] = int((row or {}).get("last", 0))
        elif answer == OK and ask.kind == "cas":
            reply = int(said)
        elif answer == OK and ask.kind == "incr":
            reply = said
        elif answer == OK and said is False and ask.kind == "begin":
            answer, error = FAILED, "a row"
        elif answer == OK and said is False:
            answer, error = FAILED, "no row"
        if error == "no row":
            self._absent.add(ask.key)
            if ask.kind != READ:
                # That was seen where writes have their order: as good as the best of reads.
                self._record(ask, READ, start, OK, None, None, "", linear=True)
        else:
            self._absent.discard(ask.key)
        self.done += answer == OK or error == "no row"
        linear = self._linear and ask.kind == READ
        return self._record(ask, ask.kind, start, answer, reply, row, error, linear=linear)

    def _record(
        self, ask: Ask, kind: str, start: float, answer: str, reply: int | None,
        row: dict[str, int | str] | None, error: str, *, linear: bool,
    ) -> Operation:  # fmt: skip
        place = self._places[0]
        id = ask.id if kind == ask.kind else ""
        operation = Operation(
            id or f"<{self.name}.{next(self.known.numbers)}>", self.name, place.name, place.dc,
            kind, ask.key, start, time.monotonic(), answer, ask.value, reply, row, error, linear,
            ask.expected,
        )  # fmt: skip
        self._recorder.add(operation)
        return operation

    def _asked(self, lane: str) -> Ask:
        """Return the next call; lane: who alone writes its own keys, one call at a time."""
        draw = self.chance.random()
        if draw < 0.25:
            keys = self.known.keys
            key = self.chance.choice(keys if self.chance.random() < 0.4 else keys[-8:])
            if self.chance.random() < 0.5:
                key = f"own-{lane}"
            return Ask(READ, key, 0, "get")
        if draw < 0.45:
            return self._register(lane)
        if draw < 0.7:
            return self._count(lane)
        if draw < 0.85:
            return self._swap()
        if draw < 0.92:
            value = next(self.known.numbers) + self.chance.randrange(1, 50)
            key = f"max-{self.chance.randrange(SHARED)}"
            return Ask("high", key, value, "patch", (), {"high": value})
        id = f"<{self.name}.{next(self.known.numbers)}>"
        key = f"any-{self.chance.randrange(SHARED)}"
        if draw < 0.96:
            lives = self.chance.randrange(50, 1500)
            return Ask("expire", key, lives, "expire", (lives / 1000,), {}, id)
        return Ask("put", key, 0, "patch", (), {"who": id}, id)

    def _register(self, lane: str) -> Ask:
        key, draw = f"own-{lane}", self.chance.random()
        if key not in self.known.keys:
            self.known.keys.append(key)
        value = next(self.known.numbers)
        id = f"<{self.name}.{value}>"
        if draw < 0.15:
            return Ask("delete", key, value, "pop", (None,), {}, id)
        if draw < 0.45:
            return Ask("patch", key, value, "patch", (), {"last": value, "who": id}, id)
        return Ask("set", key, value, "set", (State(last=value, who=id),), {}, id)

    def _count(self, lane: str) -> Ask:
        by = self.chance.randrange(1, 10)
        if self.chance.random() < 0.5:
            key = f"sum-{self.chance.randrange(SHARED)}"
        else:
            key = f"sum-{lane}"
            if key not in self.known.keys:
                self.known.keys.append(key)
        if key in self._absent:
            return self._begun(key)
        return Ask("incr", key, by, "incr", ("count", by))

    def _begun(self, key: str) -> Ask:
        return Ask("begin", key, 0, "set", (State(),), {"only": "absent"})

    def _swap(self) -> Ask:
        key = f"cas-{self._places[0].dc[0]}{self.chance.randrange(2)}"
        if key not in self.known.keys:
            self.known.keys.append(key)
        if key in self._absent:
            return self._begun(key)
        if key not in self._seen or self.chance.random() < 0.5:
            return Ask(READ, key, 0, "get")
        expected = self._seen[key]
        value = next(self.known.numbers)
        arguments = ("last", expected, value)
        return Ask("cas", key, value, "compare_and_set", arguments, {}, "", expected)


class MemoryReader(Guest):
    """Reads in the memory of a node's machine, whether the node lives or not."""

    def __init__(
        self, name: str, place: Place, table: Path, capacity: int, recorder: Recorder,
        known: Known, seed: str,
    ) -> None:  # fmt: skip
        self._path, self._capacity = table, capacity
        self._table: interlock.SharedTable[State] | None = None
        self._inode = 0
        super().__init__(name, [place], recorder, known, seed)

    def step(self) -> None:
        table = self._opened()
        if table is None:
            self.known.stop.wait(0.05)
            return
        keys = self.known.keys
        key = self.chance.choice(keys if self.chance.random() < 0.3 else keys[-12:])
        start = time.monotonic()
        row = columns(table.get(key))
        self.done += 1
        # Memory that was lost and restored counts as another place.
        place = f"memory {self._inode} of {self._place.name}"
        self._recorder.add(Operation(
            f"<{self.name}.{self.done}>", self.name, place, self._place.dc, READ, key,
            start, time.monotonic(), OK, 0, None, row,
        ))  # fmt: skip

    def leave(self) -> None:
        if self._table is not None:
            self._table.close()
            self._table = None

    def _opened(self) -> interlock.SharedTable[State] | None:
        """The current table: the memory of a machine may have been lost."""
        try:
            inode = self._path.stat().st_ino
        except OSError:
            self.leave()
            return None
        if self._table is None or inode != self._inode:
            self.leave()
            with suppress(OSError, ValueError):
                self._table = interlock.SharedTable.open(
                    self._path, State, capacity=self._capacity, key_size=32, on_full="raise"
                )
                self._inode = inode
        return self._table
