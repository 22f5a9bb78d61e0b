"""Random schedules for a queue on a server, compared with the model, and made small when they fail.

A step names what it settles by its place among what was leased lately, so that it means something
when the steps before it are taken away. The model answers a whole schedule first: so all calls of a
schedule are sent in one pipeline.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import redis

from tests.engine.calls import parts_of
from tests.engine.model import LEASED, Refused, Spec
from tests.engine.model_read import ReadModel
from tests.engine.timed import START, WIRE

KEYS = ("a", "b", "c", "d", "e", "f")
CONSUMERS = ("one", "two", "three")
LATELY = 12

Step = tuple[str, Any]


@dataclass
class Call:
    """A call with what the model says of it: a reply, or the first word of an error."""

    name: str
    arguments: list[str]
    expected: list[str] | str
    now: int


@dataclass
class Director:
    """Turns steps into calls, and asks the model."""

    model: ReadModel = field(default_factory=lambda: ReadModel(START))
    calls: list[Call] = field(default_factory=list)
    leased: list[tuple[str, str]] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    last: dict[str, Call] = field(default_factory=dict)

    def take(self, step: Step) -> None:
        getattr(self, "_" + step[0])(step[1])

    def _call(self, name: str, arguments: list[str], expected: list[str] | str) -> Call:
        call = Call(name, arguments, expected, self.model.now)
        self.calls.append(call)
        return call

    def _numbered(
        self, name: str, consumer: str, rest: list[str], ask: Callable[[], list[str]]
    ) -> None:
        number = self.numbers.get(consumer, 0) + 1
        arguments = [consumer, str(number), *rest]
        try:
            expected = ask()
        except Refused as refused:
            self._call(name, arguments, str(refused))
            return
        # A call that was refused has done nothing and is not kept.
        self.numbers[consumer] = number
        self.last[consumer] = self._call(name, arguments, expected)

    def _tick(self, span: int) -> None:
        self.model.now += span

    def _put(self, step: tuple[str, int, list[Spec]]) -> None:
        consumer, wait, specs = step
        rest = [str(wait), *[part for spec in specs for part in spec.arguments()]]
        self._numbered("put", consumer, rest, lambda: self.model.put(specs))

    def _note(self) -> None:
        for entry in self.model.line:
            pair = str(entry.token), str(entry.id)
            if entry.state == LEASED and pair not in self.leased:
                self.leased.append(pair)

    def _lease(self, step: tuple[str, int, int, int, str]) -> None:
        consumer, wait, count, duration, kind = step
        rest = [str(wait), str(count), str(duration), kind]
        ask = lambda: self.model.lease(consumer, count, duration, kind)  # noqa: E731
        self._numbered("lease", consumer, rest, ask)
        self._note()

    def _settlements(self, picks: list[tuple[str, int, int]]) -> list[list[str]]:
        made = []
        for verb, pick, delay in picks:
            lately = self.leased[-LATELY:] or [("5", "7")]
            token, id = lately[pick % len(lately)]
            rest = {
                "NACK": ["" if delay < 0 else str(delay), f"broken {delay}"],
                "REJECT": ["bad"],
                "DONE": ["r" * (pick + 1)],
            }.get(verb, [])
            made.append([verb, token, id, *rest])
        return made

    def _settle(self, step: tuple[str, list[tuple[str, int, int]]]) -> None:
        consumer, picks = step
        made = self._settlements(picks)
        rest = [part for one in made for part in one]
        self._numbered("settle", consumer, rest, lambda: self.model.settle(made))

    def _next(self, step: tuple[str, int, int, int, str, list[tuple[str, int, int]]]) -> None:
        consumer, wait, count, duration, kind, picks = step
        made = self._settlements(picks)

        def ask() -> list[str]:
            answers = self.model.settle(made)
            reply = self.model.grant(consumer, count, duration, kind)
            return [str(len(made)), *answers, *reply]

        flat = [part for one in made for part in one]
        self._numbered("next", consumer, [str(wait), str(count), str(duration), kind, *flat], ask)
        self._note()

    def _extend(self, step: tuple[int, int]) -> None:
        pick, duration = step
        token, _ = self.leased[-1 - pick % len(self.leased)] if self.leased else ("5", "7")
        self._call("extend", [token, str(duration)], self.model.extend(token, duration))

    def _repeat(self, consumer: str) -> None:
        if before := self.last.get(consumer):
            self._call(before.name, before.arguments, before.expected)

    def _stale(self, consumer: str) -> None:
        if self.numbers.get(consumer, 0) > 1:
            number = str(self.numbers[consumer] - 1)
            self._call("lease", [consumer, number, "0", "1", "9", "any"], "STALECALL")

    def _id(self, pick: int) -> str:
        """Mostly of a message that is there, sometimes of one that was."""
        entries = self.model.unsettled()
        if not entries or pick % 7 == 0:
            entries = self.model.dead or entries
        if not entries or pick % 11 == 0:
            return str(max(self.model.number - pick % 13, 1))
        return str(entries[pick % len(entries)].id)

    def _operate(self, step: tuple[str, int, list[str]]) -> None:
        """A function that takes an id, or none, and perhaps more."""
        name, pick, more = step
        arguments = more if pick < 0 else [self._id(pick), *more]
        method = getattr(self.model, name)
        try:
            if name in ("pause", "resume", "configure"):
                expected = method(arguments)
            else:
                expected = method(*arguments)
        except Refused as refused:
            expected = str(refused)
        self._call(name, arguments, expected)

    def _read(self, step: tuple[int, int, str]) -> None:
        pick, limit, key = step
        model, id = self.model, self._id(pick)
        self._call("stats", [], model.stats())
        for one in (None, key):
            after = id if pick % 3 == 0 else ""
            more = [] if one is None else [one]
            letters = model.dead_letters(limit, after, one)
            self._call("dead_letters", [str(limit), after, *more], letters)
        self._call("peek", [id], model.peek(id))
        self._call("result", [id, "0"], model.result(id))
        self._call("explain", ["id", id, str(limit)], model.explain("id", id, limit))
        self._call("explain", ["key", key, str(limit)], model.explain("key", key, limit))
        self._call("configure", [], model.configure([]))
        # In no order: compared piece by piece.
        self._call("scan", ["0", "1000"], [part for one in model.scan() for part in one])
        self._call("hot", ["0"], [part for one in model.hot() for part in one])

    def drain(self) -> None:
        """Calls that leave nothing unsettled and nothing known."""
        self._operate(("resume", -1, []))
        if self.model.paused:
            self._operate(("resume", -1, list(self.model.paused)))
        while self.model.unsettled():
            self.model.now += 100_000_000
            self._lease(("last", 0, 1_000, 999, "any"))
            out = [e for e in self.model.line if e.state == LEASED]
            made = [["ACK", str(e.token), str(e.id)] for e in out]
            if made:
                flat = [part for one in made for part in one]
                self._numbered("settle", "last", flat, partial(self.model.settle, made))
            for entry in [e for e in self.model.line if e.state == "held"]:
                self._operate(("skip", -1, [str(entry.id)]))
        self.model.now += 301_000_000
        self._operate(("purge", -1, ["dead"]))
        self._lease(("last", 0, 1, 1, "any"))


def random_steps(rng: random.Random, count: int) -> list[Step]:
    def spec() -> Spec:
        named = rng.choices(KEYS[: rng.choice([2, 6])], k=rng.choice([0, 1, 1, 2, 3, 5]))
        cut = rng.randint(0, len(named))
        options: dict[str, tuple[float, Callable[[], object]]] = {
            "PRIORITY": (0.3, lambda: rng.choice([1, -1, 100, -100, 0])),
            "DELAY": (0.15, lambda: rng.choice([0, 1, 10, 40])),
            "DEDUP": (0.25, lambda: rng.choice("xyz")),
            "WINDOW": (0.5, lambda: rng.choice([0, 1, 30])),
            "ATTEMPTS": (0.4, lambda: rng.choice([0, 1, 2, 3])),
            "FIRST": (0.2, lambda: rng.choice([0, 1, 7, 1_000])),
            "FACTOR": (0.1, lambda: rng.choice([1_000, 1_500, 3_333])),
            "LONGEST": (0.1, lambda: rng.choice([0, 5, 100])),
            "JITTER": (0.1, lambda: rng.choice([0, 1])),
            "THEN": (0.2, lambda: rng.choice(["dead", "hold"])),
            "RESULT": (0.2, lambda: rng.choice([0, 5, 50, 10_000])),
            "BARRIER": (0.08, lambda: rng.choice([0, 1, 1])),
        }
        chosen = tuple((k, str(make())) for k, (p, make) in options.items() if rng.random() < p)
        if ("BARRIER", "1") in chosen:
            named = []
        payload = f"payload {rng.randrange(10**6)}" * (100 if rng.random() < 0.05 else 1)
        return Spec(payload, tuple(named[:cut]), tuple(named[cut:]), chosen)

    def picks(least: int) -> list[tuple[str, int, int]]:
        verbs = ["ACK", "ACK", "ACK", "NACK", "NACK", "REJECT", "RELEASE", "DONE"]
        return [
            (rng.choice(verbs), rng.randrange(LATELY), rng.choice([0, 0, 1, 10, -1]))
            for _ in range(rng.choice([1, 1, 2, 5, 8]) if least else rng.choice([0, 1, 2, 5]))
        ]

    def who() -> str:
        return rng.choice(CONSUMERS)

    def wait() -> int:
        return rng.choice([0, 0, 0, 5, 1_000])

    def keys() -> list[str]:
        return rng.choices(KEYS, k=rng.choice([0, 1, 1, 2]))

    def declared() -> list[str]:
        options: dict[str, list[int] | list[str]] = {
            "MAXSIZE": [0, 0, 12, 30],
            "MAXBYTES": [0, 0, 3_000],
            "MAXDEAD": [0, 2, 1_000],
            "WINDOW": [0, 9, 300_000_000],
            "ATTEMPTS": [0, 1, 3],
            "FIRST": [0, 9, 100],
            "FACTOR": [1_000, 2_500],
            "LONGEST": [50, 60_000_000],
            "JITTER": [0, 1],
            "THEN": ["dead", "hold"],
            "RESULTS": [0, 8, 100],
        }
        chosen = [(k, str(rng.choice(v))) for k, v in options.items() if rng.random() < 0.3]
        return rng.choice([["REPLACE"], ["REPLACE"], []]) + [part for p in chosen for part in p]

    def operation() -> tuple[str, int, list[str]]:
        name = rng.choice(list(OPERATIONS))
        pick, make = OPERATIONS[name]
        return name, rng.randrange(1_000) if pick else -1, make()

    OPERATIONS: dict[str, tuple[bool, Callable[[], list[str]]]] = {
        "cancel": (True, list),
        "revoke": (True, lambda: [rng.choice(["retry", "hold", "dead", "skip"])]),
        "retry": (True, list),
        "skip": (True, list),
        "bury": (True, list),
        "requeue": (True, list),
        "pause": (False, keys),
        "resume": (False, keys),
        "reopen": (False, list),
    }
    if rng.random() < 0.3:
        OPERATIONS["seal"] = (False, list)
        OPERATIONS["configure"] = (False, declared)
        OPERATIONS["purge"] = (False, lambda: [rng.choice(["pending", "dead"])])

    def wanted() -> tuple[int, int, int, str]:
        kind = rng.choice(["any", "any", "any", "keyed", "unkeyed"])
        return wait(), rng.choice([1, 1, 2, 4, 30]), rng.choice([1, 5, 20, 1000]), kind

    ways: dict[str, tuple[int, Callable[[], Any]]] = {
        "put": (22, lambda: (who(), wait(), [spec() for _ in range(rng.choice([1, 1, 1, 2, 5]))])),
        "lease": (16, lambda: (who(), *wanted())),
        "settle": (22, lambda: (who(), picks(1))),
        "next": (18, lambda: (who(), *wanted(), picks(0))),
        "extend": (5, lambda: (rng.randrange(LATELY), rng.choice([1, 5, 30]))),
        "tick": (20, lambda: rng.choice([1, 1, 3, 9, 25, 1_000_000])),
        "repeat": (4, who),
        "stale": (1, who),
        "operate": (16, operation),
        "read": (3, lambda: (rng.randrange(1_000), rng.choice([1, 2, 5, 50]), rng.choice(KEYS))),
    }
    names = rng.choices(list(ways), [weight for weight, _ in ways.values()], k=count)
    return [(name, ways[name][1]()) for name in names]


LEFT = {"c", "o", "clock", "ko", "c.reply"} | {f"k:{consumer}" for consumer in (*CONSUMERS, "last")}
# Who waits, and what would wake them: they leave when their wait is over, by the server's clock.
WAITING = ("w:", "told:", "wake:", "room")


def in_order(name: str, reply: list[str]) -> list[str]:
    """What goes through all in no order is sorted, as the model's is."""
    if name not in ("scan", "hot"):
        return reply
    cursor, *rest = reply
    assert cursor == "0"
    pieces = []
    while rest:
        size = 2
        if name == "scan":
            exclusive, shared, options = map(int, rest[4:7])
            size = 10 + exclusive + shared + 2 * options
        pieces.append(rest[:size])
        rest = rest[size:]
    return [part for piece in sorted(pieces) for part in piece]


def compare(connection: redis.Redis, steps: list[Step]) -> tuple[int, str | None]:
    """How many calls were made, and what was wrong with the first that was."""
    director = Director()
    for step in steps:
        director.take(step)
    director.drain()
    key = f"il:{{{uuid.uuid4().hex}}}"
    pipeline = connection.pipeline(transaction=False)
    for call in director.calls:
        pipeline.set(f"{key}:clock", call.now)
        pipeline.fcall(f"il{WIRE}_{call.name}", 1, key, *call.arguments)
    replies = pipeline.execute(raise_on_error=False)[1::2]
    told = []
    for call, reply in zip(director.calls, replies, strict=True):
        failed = isinstance(reply, Exception)
        got = str(reply) if failed else in_order(call.name, [part.decode() for part in reply])
        said = f"at {call.now - START}: il1_{call.name} {' '.join(map(repr, call.arguments))}"
        told.append(f"{said} -> {got}")
        same = got == call.expected
        if failed and isinstance(call.expected, str):
            same = str(got).startswith(call.expected)
        if not same:
            tail = "\n  ".join(told[-40:])
            return len(told), f"the model says {call.expected}\nof the last of\n  {tail}"
    found: Any = connection.keys(f"{key}:*")
    more = parts_of(connection, key) - LEFT
    more = {name for name in more if not name.startswith(WAITING)}
    connection.delete(*found)
    return len(told), f"left over when the queue was empty: {sorted(more)}" if more else None


def shrunk(connection: redis.Redis, steps: list[Step]) -> list[Step]:
    """Fewer steps that still go wrong: runs of them are left out as long as one can be."""
    size = len(steps) // 2
    while size:
        at = 0
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            if compare(connection, fewer)[1]:
                steps = fewer
            else:
                at += size
        size //= 2
    return steps
