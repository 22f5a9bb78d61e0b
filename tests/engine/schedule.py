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
from typing import Any

import redis

from tests.engine.model import Model, Spec
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

    model: Model = field(default_factory=lambda: Model(START))
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

    def _numbered(self, name: str, consumer: str, rest: list[str], expected: list[str]) -> None:
        number = self.numbers[consumer] = self.numbers.get(consumer, 0) + 1
        wait = [] if name == "settle" else ["0"]
        call = self._call(name, [consumer, str(number), *wait, *rest], expected)
        self.last[consumer] = call

    def _tick(self, span: int) -> None:
        self.model.now += span

    def _put(self, step: tuple[str, list[Spec]]) -> None:
        consumer, specs = step
        rest = [part for spec in specs for part in spec.arguments()]
        self._numbered("put", consumer, rest, self.model.put(specs))

    def _note(self, reply: list[str]) -> None:
        token = reply[0]
        now_out = [str(e.id) for e in self.model.line if str(e.token) == token != ""]
        self.leased += [(token, id) for id in now_out]

    def _lease(self, step: tuple[str, int, int, str]) -> None:
        consumer, count, duration, kind = step
        reply = self.model.lease(count, duration, kind)
        self._numbered("lease", consumer, [str(count), str(duration), kind], reply)
        self._note(reply)

    def _settlements(self, picks: list[tuple[str, int, int]]) -> list[list[str]]:
        made = []
        for verb, pick, delay in picks:
            lately = self.leased[-LATELY:] or [("5", "7")]
            token, id = lately[pick % len(lately)]
            rest = {
                "NACK": ["" if delay < 0 else str(delay), "broken"],
                "REJECT": ["bad"],
                "DONE": ["done"],
            }.get(verb, [])
            made.append([verb, token, id, *rest])
        return made

    def _settle(self, step: tuple[str, list[tuple[str, int, int]]]) -> None:
        consumer, picks = step
        made = self._settlements(picks)
        rest = [part for one in made for part in one]
        self._numbered("settle", consumer, rest, self.model.settle(made))

    def _next(self, step: tuple[str, int, int, str, list[tuple[str, int, int]]]) -> None:
        consumer, count, duration, kind, picks = step
        made = self._settlements(picks)
        answers = self.model.settle(made)
        reply = self.model.grant(count, duration, kind)
        rest = [str(count), str(duration), kind, *[part for one in made for part in one]]
        self._numbered("next", consumer, rest, [str(len(made)), *answers, *reply])
        self._note(reply)

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

    def _read(self, pick: int) -> None:
        self._call("stats", [], self.model.stats())
        self._call("dead_letters", ["50"], self.model.dead_letters(50))
        entries = [*self.model.line, *self.model.delayed]
        id = str(entries[pick % len(entries)].id) if entries else "7"
        self._call("peek", [id], self.model.peek(id))

    def drain(self) -> None:
        """Calls that leave nothing unsettled and nothing known."""
        while self.model.line or self.model.delayed:
            self.model.now += 100_000_000
            self._lease(("last", 1_000, 999, "any"))
            out = [e for e in self.model.line if e.state == "leased"]
            made = [["ACK", str(e.token), str(e.id)] for e in out]
            if made:
                flat = [part for one in made for part in one]
                self._numbered("settle", "last", flat, self.model.settle(made))
        self.model.now += 301_000_000
        self._lease(("last", 1, 1, "any"))


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
        }
        chosen = tuple((k, str(make())) for k, (p, make) in options.items() if rng.random() < p)
        payload = f"payload {rng.randrange(10**6)}"
        return Spec(payload, tuple(named[:cut]), tuple(named[cut:]), chosen)

    def picks(least: int) -> list[tuple[str, int, int]]:
        verbs = ["ACK", "ACK", "ACK", "NACK", "NACK", "REJECT", "RELEASE", "DONE"]
        return [
            (rng.choice(verbs), rng.randrange(LATELY), rng.choice([0, 0, 1, 10, -1]))
            for _ in range(rng.choice([1, 1, 2, 5, 8]) if least else rng.choice([0, 1, 2, 5]))
        ]

    def who() -> str:
        return rng.choice(CONSUMERS)

    def wanted() -> tuple[int, int, str]:
        kind = rng.choice(["any", "any", "any", "keyed", "unkeyed"])
        return rng.choice([1, 1, 2, 4, 30]), rng.choice([1, 5, 20, 1000]), kind

    ways: dict[str, tuple[int, Callable[[], Any]]] = {
        "put": (22, lambda: (who(), [spec() for _ in range(rng.choice([1, 1, 1, 2, 5]))])),
        "lease": (16, lambda: (who(), *wanted())),
        "settle": (22, lambda: (who(), picks(1))),
        "next": (18, lambda: (who(), *wanted(), picks(0))),
        "extend": (5, lambda: (rng.randrange(LATELY), rng.choice([1, 5, 30]))),
        "tick": (20, lambda: rng.choice([1, 1, 3, 9, 25, 1_000_000])),
        "repeat": (4, who),
        "stale": (1, who),
        "read": (4, lambda: rng.randrange(100)),
    }
    names = rng.choices(list(ways), [weight for weight, _ in ways.values()], k=count)
    return [(name, ways[name][1]()) for name in names]


LEFT = {"c", "clock", "x", "xo"} | {f"k:{consumer}" for consumer in (*CONSUMERS, "last")}


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
        got = str(reply) if failed else [part.decode() for part in reply]
        said = f"at {call.now - START}: il1_{call.name} {' '.join(map(repr, call.arguments))}"
        told.append(f"{said} -> {got}")
        same = got == call.expected
        if failed and isinstance(call.expected, str):
            same = str(got).startswith(call.expected)
        if not same:
            tail = "\n  ".join(told[-40:])
            return len(told), f"the model says {call.expected}\nof the last of\n  {tail}"
    found: Any = connection.keys(f"{key}:*")
    more = {name.decode()[len(key) + 1 :] for name in found} - LEFT
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
