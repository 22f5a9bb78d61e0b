"""Random schedules for both servers of the wire: the engine in the process, and the library.

A step is told by picks (which of the ids, of the leases known by then), so that it means something
when steps before it are taken away. The engine answers a whole schedule first; then its calls are
sent to Redis in one pipeline, and each reply must be the same, but for what `MASKED` names.
"""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import redis

from interlock._core import Engine, EngineError, ManualClock
from tests.engine.timed import START, WIRE

MASKED = """
il1_configure   the value of DURABILITY: the server's on Redis, none where there is no journal
il1_scan        cursors and order: each tells all messages, in an order of its own
il1_hot         cursors and order
il1_version     not compared: hash and features are each server's own
WAIT            0 in every call: Redis answers at once, and the engine parks
il1_purge       no more than 1,000 messages: which of more go first is each server's own
"""

KEYS = ("a", "b", "c", "d", "e")
CONSUMERS = ("one", "two", "three", "")
LATELY = 14

Step = tuple[str, Any]
Argument = str | bytes | int


@dataclass
class Call:
    name: str
    arguments: list[bytes]
    answer: list[bytes] | str
    now: int

    def __str__(self) -> str:
        return f"at {self.now - START}: il1_{self.name} {' '.join(map(repr, self.arguments))}"


@dataclass
class Director:
    """Turns steps into calls, and asks the engine."""

    clock: ManualClock = field(default_factory=lambda: ManualClock(START // 1_000_000))
    now: int = START
    calls: list[Call] = field(default_factory=list)
    ids: list[bytes] = field(default_factory=lambda: [b"7"])
    leased: list[tuple[bytes, bytes]] = field(default_factory=lambda: [(b"5", b"7")])
    old: list[tuple[bytes, bytes]] = field(default_factory=lambda: [(b"5", b"7")])
    """What was settled, or is lost."""
    numbers: dict[str, int] = field(default_factory=dict)
    last: dict[str, Call] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine = Engine(self.clock)

    def take(self, step: Step) -> None:
        getattr(self, "_" + step[0])(step[1])

    def ask(self, name: str, *arguments: Argument) -> list[bytes]:
        given = [a if isinstance(a, bytes) else str(a).encode() for a in arguments]
        answer: list[bytes] | str
        try:
            answer = self.engine.call(f"il1_{name}", b"il:{q}", given)
        except EngineError as refused:
            answer = str(refused)
        self.calls.append(Call(name, given, answer, self.now))
        return [] if isinstance(answer, str) else answer

    def numbered(self, name: str, consumer: str, *rest: Argument) -> list[bytes]:
        number = self.numbers.get(consumer, 0) + 1 if consumer else 0
        answer = self.ask(name, consumer, number, *rest)
        if consumer and not isinstance(self.calls[-1].answer, str):
            self.numbers[consumer] = number
            self.last[consumer] = self.calls[-1]
        return answer

    def _tick(self, span: int) -> None:
        self.now += span
        self.clock.advance(dt.timedelta(microseconds=span))

    def _put(self, step: tuple[str, list[Argument]]) -> None:
        consumer, rest = step
        self.ids += self.numbered("put", consumer, 0, *rest)[::2]

    def _note(self, reply: list[bytes]) -> None:
        """Of what a lease answers."""
        if reply and reply[0]:
            token, at = reply[0], 4
            for _ in range(int(reply[3])):
                self.leased.append((token, reply[at]))
                at += 6 + int(reply[at + 4]) + int(reply[at + 5])

    def _lease(self, step: tuple[str, list[Argument]]) -> None:
        consumer, wanted = step
        self._note(self.numbered("lease", consumer, 0, *wanted))

    def _settlements(self, picks: list[tuple[str, int, list[Argument]]]) -> list[Argument]:
        made: list[Argument] = []
        for verb, pick, rest in picks:
            lately = (self.old if pick % 9 == 0 else self.leased)[-LATELY:] or self.old
            made += [verb, *lately[pick % len(lately)], *rest]
        return made

    def _over(self) -> None:
        """What is no longer leased, if it ever was, is old."""
        peeked = [self.engine.call("il1_peek", b"il:{q}", [id]) for _, id in self.leased]
        for lease, seen in zip(self.leased, peeked, strict=True):
            if not seen or seen[1] != lease[0]:
                self.old.append(lease)
        self.leased = [one for one in self.leased if one not in self.old[-2 * LATELY :]]

    def _settle(self, step: tuple[str, Any]) -> None:
        consumer, picks = step
        self.numbered("settle", consumer, *self._settlements(picks))
        self._over()

    def _next(self, step: tuple[str, list[Argument], Any]) -> None:
        consumer, wanted, picks = step
        reply = self.numbered("next", consumer, 0, *wanted, *self._settlements(picks))
        if reply:
            self._note(reply[1 + int(reply[0]) :])
        self._over()

    def _extend(self, step: tuple[int, int]) -> None:
        pick, duration = step
        some = self.leased or self.old
        self.ask("extend", some[-1 - pick % len(some)][0], duration)

    def _again(self, consumer: str) -> None:
        if before := self.last.get(consumer):
            self.ask(before.name, *before.arguments)

    def _stale(self, consumer: str) -> None:
        if (number := self.numbers.get(consumer, 0)) > 1:
            self.ask("lease", consumer, number - 1, 0, 1, 9, "any")
            self.ask("extend" if number % 2 else "settle", consumer, number, "ACK", 5, 6)

    def _on(self, step: tuple[str, int, list[Argument]]) -> None:
        name, pick, rest = step
        lately = (pick % 4 and self._fit_for(name)) or self.ids[-2 * LATELY :]
        reply = self.ask(name, lately[pick % len(lately)], *rest)
        if name == "requeue":
            self.ids += reply

    def _fit_for(self, name: str) -> list[bytes]:
        """Ids of which this call would change something."""
        if name == "requeue":
            dead = self.engine.call("il1_dead_letters", b"il:{q}", [1024, ""])
            return [id for id in self.ids if id in dead]
        states = {"cancel": b"ready waiting held delayed", "revoke": b"leased"}
        peeked = [(id, self.engine.call("il1_peek", b"il:{q}", [id])) for id in self.ids[-40:]]
        fit = states.get(name, b"held backing_off").split()
        return [id for id, seen in peeked if seen and seen[0] in fit]

    def _revoke(self, step: tuple[int, str]) -> None:
        """By a token: of a lease, of one that is over, or of another message's."""
        pick, then = step
        lately = (self.old if pick % 3 == 0 else self.leased)[-LATELY:] or self.old
        token, id = lately[pick % len(lately)]
        self.ask("revoke", lately[-1][1] if pick % 5 == 0 else id, then, token)

    def _plain(self, step: tuple[str, list[Argument]]) -> None:
        self.ask(step[0], *step[1])

    def _read(self, pick: int) -> None:
        lately = self.ids[-2 * LATELY :]
        id = lately[pick % len(lately)]
        self.ask("stats")
        self.ask("peek", id)
        self.ask("result", id, 0)
        self.ask("join", 0, *([id] if pick % 3 else []))
        self.ask("explain", "id", id, 1 + pick % 12)
        self.ask("explain", "key", KEYS[pick % len(KEYS)], 1 + pick % 12)
        dead = self.ask("dead_letters", 1 + pick % 4, "")
        if dead:
            self.ask("dead_letters", 9, dead[0], *([KEYS[pick % len(KEYS)]] if pick % 2 else []))
        self.ask("dead_letters", 9, id)
        self.ask("scan", 0, 1024)
        self.ask("hot", 0)


def same(call: Call, told: object) -> bool:
    """Whether Redis told what the engine did."""
    if isinstance(told, Exception):
        return str(told).replace(f"il{WIRE}_", "il1_") == call.answer
    if isinstance(call.answer, str) or not isinstance(told, list):
        return False
    if call.name == "configure":
        return bool(told[:-1] == call.answer[:-1])
    if call.name == "scan":
        return sorted(messages(told[1:])) == sorted(messages(call.answer[1:]))
    if call.name == "hot":
        pairs = [sorted(zip(one[1::2], one[2::2], strict=True)) for one in (told, call.answer)]
        return pairs[0] == pairs[1]
    return bool(told == call.answer)


def messages(reply: list[bytes]) -> list[list[bytes]]:
    """What `il1_scan` tells, message by message."""
    found, at = [], 0
    while at < len(reply):
        exclusive, shared, options = (int(count) for count in reply[at + 4 : at + 7])
        end = at + 7 + exclusive + shared + 2 * options + 3
        found.append(reply[at:end])
        at = end
    return found


def compare(connection: redis.Redis, steps: list[Step]) -> tuple[int, str | None]:
    """How many calls were made, and what was wrong with the first that was."""
    director = Director()
    for step in steps:
        director.take(step)
    if not director.calls:
        return 0, None
    key = f"il:{{{uuid.uuid4().hex}}}"
    pipeline = connection.pipeline(transaction=False)
    for call in director.calls:
        pipeline.set(f"{key}:clock", call.now)
        pipeline.fcall(f"il{WIRE}_{call.name}", 1, key, *call.arguments)
    replies = pipeline.execute(raise_on_error=False)[1::2]
    found: Any = connection.keys(f"{key}:*")
    connection.delete(*found)
    told = []
    for call, reply in zip(director.calls, replies, strict=True):
        told.append(f"{call} -> {reply}")
        if not same(call, reply):
            tail = "\n  ".join(told[-30:])
            return len(told), f"the engine says {call.answer}\nof the last on Redis of\n  {tail}"
    return len(told), None


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


def random_steps(rng: random.Random, count: int) -> list[Step]:
    policy: dict[str, Callable[[], Argument]] = {
        "ATTEMPTS": lambda: rng.choice([0, 1, 2, 3]),
        "FIRST": lambda: rng.choice([0, 1, 7, 100]),
        "FACTOR": lambda: rng.choice([1000, 1500, 3333]),
        "LONGEST": lambda: rng.choice([0, 5, 40, 10**15]),
        "JITTER": lambda: rng.choice([0, 1]),
        "THEN": lambda: rng.choice(["dead", "hold"]),
    }
    own: dict[str, tuple[float, Callable[[], Argument]]] = {
        "PRIORITY": (0.3, lambda: rng.choice([1, -1, 100, -100, 0])),
        "DELAY": (0.15, lambda: rng.choice([0, 1, 10, 40])),
        "DEDUP": (0.2, lambda: rng.choice("xyz")),
        "WINDOW": (0.2, lambda: rng.choice([0, 1, 30])),
        "RESULT": (0.6, lambda: rng.choice([0, 5, 60, 900])),
        **{name: (0.12, make) for name, make in policy.items()},
    }

    def message() -> list[Argument]:
        named = rng.choices(KEYS[: rng.choice([2, 5])], k=rng.choice([0, 1, 1, 2, 3, 5]))
        cut = rng.randint(0, len(named))
        pairs: list[Argument] = []
        for name, (share, make) in own.items():
            if rng.random() < share * 0.6:
                pairs += [name, make()]
        if rng.random() < 0.06:
            named, pairs, cut = [], ["BARRIER", 1, *pairs], 0
        payload = "p" * rng.choice([0, 3, 9])
        counts: list[Argument] = [payload, cut, len(named) - cut, len(pairs) // 2]
        return [*counts, *named, *pairs]

    def error() -> Argument:
        return rng.choice(["broken", "worse"]) if rng.random() < 0.8 else b"\xff\x00"

    def delay() -> Argument:
        return "" if rng.random() < 0.25 else rng.choice([0, 1, 10])

    def settlements(least: int) -> list[tuple[str, int, list[Argument]]]:
        rest: dict[str, Callable[[], list[Argument]]] = {
            "ACK": list,
            "DONE": lambda: ["r" * rng.choice([0, 4, 30])],
            "NACK": lambda: [delay(), error()],
            "REJECT": lambda: ["bad"],
            "RELEASE": list,
        }
        verbs = rng.choices(list(rest), [4, 3, 5, 2, 2], k=rng.choice([least, 1, 2, 5, 8]))
        return [(verb, rng.randrange(LATELY), rest[verb]()) for verb in verbs]

    def wanted() -> list[Argument]:
        kind = rng.choice(["any", "any", "any", "keyed", "unkeyed"])
        return [rng.choice([1, 1, 2, 4, 30]), rng.choice([1, 20, 300, 3000]), kind]

    def declared() -> list[Argument]:
        options: list[Argument] = ["REPLACE"] if rng.random() < 0.7 else []
        makes: dict[str, Callable[[], Argument]] = {
            "MAXSIZE": lambda: rng.choice([0, 0, 9, 20]),
            "MAXBYTES": lambda: rng.choice([0, 0, 60, 200]),
            "MAXDEAD": lambda: rng.choice([0, 2, 100]),
            "WINDOW": lambda: rng.choice([0, 20]),
            "RESULTS": lambda: rng.choice([0, 40]),
            **policy,
        }
        for name, make in makes.items():
            if rng.random() < 0.25:
                options += [name, make()]
        return options

    def who() -> str:
        return rng.choice(CONSUMERS)

    def on(name: str) -> tuple[int, Callable[[], Any]]:
        then: list[Argument] = ["retry", "hold", "dead", "skip"]
        return 2, lambda: (
            name,
            rng.randrange(2 * LATELY),
            [rng.choice(then)] if name == "revoke" else [],
        )

    def paused() -> list[Argument]:
        return list(rng.choices(KEYS, k=rng.choice([0, 1, 2])))

    def resumed() -> list[Argument]:
        return rng.choice([[], list(KEYS), paused()])

    wrong: list[tuple[str, list[Argument]]] = [
        ("put", ["one", 10**9, 0, "p", 1, 0, 0, ""]),
        ("put", ["one", "x", 0]),
        ("put", ["one", 10**9, 0, "p", 0, 0, 1, "COLOR", 1]),
        ("put", ["one", 10**9, 0, "p", 0, 0, 2, "DELAY", 1, "DELAY", 1]),
        ("put", ["one", 10**9, 0, "p", 1, 0, 1, "a", "BARRIER", 1]),
        ("put", ["one", 10**9, 0, "p", 0, 0, 1, "THEN", "later"]),
        ("put", ["one", 10**9, 0, "p", 0, 0, 1, "FACTOR", 999]),
        ("lease", ["", 1, 0, 1, 9, "any"]),
        ("lease", ["one", 10**9, -1, 1, 9, "any"]),
        ("lease", ["one", 10**9, 0, 1025, 9, "any"]),
        ("lease", ["one", 10**9, 0, 1, 9, "all"]),
        ("settle", ["one", 10**9]),
        ("settle", ["one", 10**9, "NACK", 5, 6, -1, ""]),
        ("settle", ["one", 10**9, "ACK", 5]),
        ("next", ["one", 10**9, 0, 1, 9, "any", "LOSE", 5, 6]),
        ("extend", [5, 0]),
        ("configure", ["COLOR", 1]),
        ("configure", ["MAXSIZE", 1, "MAXSIZE", 1]),
        ("configure", ["THEN", "later"]),
        ("revoke", [5, "later"]),
        ("revoke", [5, "retry", "x"]),
        ("revoke", [5, "retry", 6, 7]),
        ("purge", ["all"]),
        ("pause", ["", "a"]),
        ("scan", ["x", 1]),
        ("explain", ["lane", "a", 1]),
        ("explain", ["key", "", 1]),
        ("explain", ["id", 5, 1001]),
        ("dead_letters", [1, "x"]),
        ("dead_letters", [1, "", "a", "b"]),
        ("result", [5]),
        ("join", []),
        ("join", [0, "x"]),
        ("join", [-1, 5]),
        ("join", [0, 5, 6]),
        ("seal", ["x"]),
    ]
    ways: dict[str, tuple[int, Callable[[], Any]]] = {
        "put": (
            22,
            lambda: (who(), [part for _ in range(rng.choice([1, 1, 2, 5])) for part in message()]),
        ),
        "lease": (16, lambda: (who(), wanted())),
        "settle": (20, lambda: (who(), settlements(1))),
        "next": (18, lambda: (who(), wanted(), settlements(0))),
        "extend": (4, lambda: (rng.randrange(LATELY), rng.choice([1, 5, 30]))),
        "revoke": (2, lambda: (rng.randrange(1000), rng.choice(["retry", "hold", "dead", "skip"]))),
        "tick": (18, lambda: rng.choice([1, 1, 3, 9, 25, 200])),
        "again": (4, who),
        "stale": (1, who),
        "read": (5, lambda: rng.randrange(1000)),
    }
    plain: dict[str, tuple[int, Callable[[], list[Argument]]]] = {
        "configure": (2, declared),
        "pause": (1, paused),
        "resume": (5, resumed),
        "seal": (1, list),
        "reopen": (5, list),
        "purge": (1, lambda: [rng.choice(["pending", "dead"])]),
    }
    steps: list[Step] = []
    operated = {name: on(name) for name in ("cancel", "revoke", "retry", "skip", "bury", "requeue")}
    every = [
        *[(weight, name, make, "") for name, (weight, make) in ways.items()],
        *[(weight, "on", make, "") for weight, make in operated.values()],
        *[(weight, "plain", make, name) for name, (weight, make) in plain.items()],
        (2, "plain", lambda: rng.choice(wrong), ""),
    ]
    for _, way, make, name in rng.choices(every, [one[0] for one in every], k=count):
        steps.append((way, (name, make()) if name else make()))
    return steps
