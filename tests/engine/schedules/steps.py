"""Random steps: what happens to a queue, told so that it means something when others are left out.

A step names messages and leases by picks, numbers that the director takes among what there is then.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tests.engine.naive.model import WIRE, Spec

NAMES: tuple[str, ...] = ("bank", "host:a", "host:b", "free")
"""Of limits."""
GROUPS: tuple[str, ...] = ("acme", "big", "bit", "c\xff")
NAMING = ("COALESCE", "DEBOUNCE", "WITHIN")
KEYS: tuple[str, ...] = ("a", "b", "c", "d", "e", "f")
LONG = "long" * 64
ODD = ("bank", "bank*", "a=b", "host:*", "\x00", "a", LONG, "\xed\xa0\x80")
"""Names of everything at once: with the marks of declarations, of 256 bytes, a lone surrogate."""
COALESCED = {
    "p": ((), (), ()),
    "q": (("a",), ("b",), (("PRIORITY", "1"),)),
    "a": ((), ("c",), (("LIMIT", "bank"),)),
}
"""Coalescing names, each with the other keys and the options of most messages that have it."""
CONSUMERS = ("one", "two", "three", "")
"""The last has no name: its calls carry no number, and no reply of theirs is kept."""
PICKS = 1_000
DAYS = 31 * 86_400_000_000
"""µs; longer than dead letters are kept by default."""
WAIT = "5"
"""µs for which some calls wait, where the server has nothing to say at once."""

Step = tuple[str, Any]
Pick = tuple[str, int, list[str]]
"""A settlement: verb, which lease, and what follows the id."""
Makes = dict[str, tuple[float, Callable[[], object]]]
"""Frequency of each option, and its values."""

WRONG: list[tuple[str, str, list[str]]] = [
    ("BADARG", "put", ["one", "1000000000", "0", "p", "1", "0", "0", ""]),
    ("BADARG", "put", ["one", "x", "0"]),
    ("BADARG", "put", ["one", "1000000000", "0", "p", "0", "0", "1", "COLOR", "1"]),
    ("BADARG", "put", ["", "0", "0", "p", "0", "0", "2", "DELAY", "1", "DELAY", "1"]),
    ("BADARG", "put", ["", "0", "0", "p", "1", "0", "1", "a", "BARRIER", "1"]),
    ("BADARG", "put", ["", "0", "0", "p", "0", "0", "1", "THEN", "later"]),
    ("BADARG", "put", ["", "0", "0", "p", "0", "0", "1", "FACTOR", "999"]),
    ("BADARG", "put", ["", "0", "0", "p", "0", "0", "1", "BEHIND", "later"]),
    ("BADARG", "put", ["", "0", "0", "p", "0", "0", "1", "LIMIT", ""]),
    ("BADARG", "put", ["", "0", "0", "p", "0", "0", "1", "LIMIT", "a\x1f"]),
    ("BADARG", "put", ["", "0", "0", "p", "0", "0", "1", "LIMIT", "\x1f".join("a" * 9)]),
    ("BADARG", "put", ["", "0", "0", "p", "0", "0", "1", "LIMIT", "x" * 1_025]),
    ("BADARG", "put", ["", "0", "0", "p", "0", "0", "1", "COALESCE", ""]),
    ("BADARG", "put", ["", "0", "0", "p", "0", "0", "1", "COALESCE", "x" * 1_025]),
    ("BADARG", "put", ["", "0", "0", "p", "0", "0", "2", "COALESCE", "a", "BARRIER", "1"]),
    ("BADARG", "put", ["", "0", "0", "p", "0", "0", "2", "DEDUP", "x", "COALESCE", "a"]),
    ("BADARG", "put", ["", "0", "0", "p", "0", "0", "2", "COALESCE", "a", "DEBOUNCE", "0"]),
    ("BADARG", "put", ["", "0", "0", "p", "0", "0", "1", "DEBOUNCE", "1"]),
    ("BADARG", "put", ["", "0", "0", "p", "0", "0", "2", "WITHIN", "1", "COALESCE", "a"]),
    ("BADARG", "put", ["", "0", "0", "p", "0", "0", "2", "REVISION", "1", "COALESCE", "a"]),
    (
        "BADARG",
        "put",
        ["", "0", "0", "p", "0", "0", "3", "DELAY", "1", "DEBOUNCE", "1", "COALESCE", "a"],
    ),
    ("BADARG", "put", ["", "0", "0", "p", "1", "0", "1", "k", "RUN", "1:a"]),
    ("BADARG", "put", ["", "0", "0", "p", "1", "0", "1", "k", "RUN", "1025:a"]),
    ("BADARG", "put", ["", "0", "0", "p", "1", "0", "1", "k", "RUN", "3"]),
    ("BADARG", "put", ["", "0", "0", "p", "1", "0", "1", "k", "RUN", "+3:a"]),
    ("BADARG", "put", ["", "0", "0", "p", "1", "0", "1", "k", "RUN", "2:" + "x" * 260]),
    ("BADARG", "lease", ["", "0", "0", "1", "1", "unkeyed+"]),
    ("BADARG", "configure", ["LIMITS", "bank"]),
    ("BADARG", "configure", ["LIMITS", "bank=0"]),
    ("BADARG", "configure", ["LIMITS", "=1"]),
    ("BADARG", "configure", ["LIMITS", "a=1\x1fa=2"]),
    ("BADARG", "configure", ["LIMITS", "a=1\x1f"]),
    ("BADARG", "configure", ["LIMITS", "a=1000000001"]),
    ("BADARG", "configure", ["LIMITS", "a=1" + "0" * 16_384]),
    ("BADARG", "configure", ["LIMITS", "a=1/1"]),
    ("BADARG", "configure", ["LIMITS", "a=/1:1"]),
    ("BADARG", "configure", ["LIMITS", "a=0/1:1"]),
    ("BADARG", "configure", ["LIMITS", "a=1/1:0"]),
    ("BADARG", "configure", ["LIMITS", "a=2/1:1"]),
    ("BADARG", "configure", ["LIMITS", "a=1/1:1:1"]),
    ("BADARG", "configure", ["LIMITS", "a=1/1000000000000001:1"]),
    ("BADARG", "configure", ["LIMITS", "a=1/1000000000001:1000"]),
    ("BADARG", "configure", ["LIMITS", "a=1/5:1\x1fa=1"]),
    ("BADARG", "put", ["", "0", "0", "p", "0", "0", "1", "GROUP", ""]),
    ("BADARG", "put", ["", "0", "0", "p", "0", "0", "1", "GROUP", "a\x1fb"]),
    ("BADARG", "put", ["", "0", "0", "p", "0", "0", "1", "GROUP", "x" * 1_025]),
    ("BADARG", "configure", ["WEIGHTS", "acme"]),
    ("BADARG", "configure", ["WEIGHTS", "acme=0"]),
    ("BADARG", "configure", ["WEIGHTS", "acme=1001"]),
    ("BADARG", "configure", ["WEIGHTS", "acme=1/5:1"]),
    ("BADARG", "configure", ["WEIGHTS", "=1"]),
    ("BADARG", "configure", ["WEIGHTS", "a=1\x1fa=2"]),
    ("BADARG", "configure", ["WEIGHTS", "a=1\x1f"]),
    ("BADARG", "configure", ["WEIGHTS", "a=1" + "0" * 16_384]),
    ("BADARG", "lease", ["", "1", "0", "1", "9", "any"]),
    ("BADARG", "lease", ["one", "1000000000", "-1", "1", "9", "any"]),
    ("BADARG", "lease", ["one", "1000000000", "0", "1025", "9", "any"]),
    ("BADARG", "lease", ["one", "1000000000", "0", "1", "9", "all"]),
    ("BADARG", "settle", ["one", "1000000000"]),
    ("BADARG", "settle", ["one", "1000000000", "NACK", "5", "6", "-1", ""]),
    ("BADARG", "settle", ["one", "1000000000", "ACK", "5"]),
    ("BADARG", "settle", ["one", "1000000000", "DROP", "5", "6"]),
    ("BADARG", "next", ["one", "1000000000", "0", "1", "9", "any", "LOSE", "5", "6"]),
    ("BADARG", "extend", ["5", "0"]),
    ("BADARG", "extend", ["5", "9", "later"]),
    ("BADARG", "extend", ["5", "9", "waiting", "x"]),
    ("BADARG", "configure", ["COLOR", "1"]),
    ("BADARG", "configure", ["MAXSIZE", "1", "MAXSIZE", "1"]),
    ("BADARG", "configure", ["THEN", "later"]),
    ("BADARG", "configure", ["BEHIND", ""]),
    ("BADARG", "revoke", ["5", "later"]),
    ("BADARG", "revoke", ["5", "retry", "x"]),
    ("BADARG", "revoke", ["5", "retry", "6", "7"]),
    ("BADARG", "purge", ["all"]),
    ("BADARG", "drop", ["force"]),
    ("BADARG", "restore", ["5"]),
    ("BADARG", "restore", ["5", "", "waiting", "1", "0", "", "p", "0", "0", "0"]),
    ("BADARG", "restore", ["0", "w", "waiting", "1", "0", "", "p", "0", "0", "0"]),
    ("BADARG", "restore", ["5", "w", "leased", "1", "0", "", "p", "0", "0", "0"]),
    ("BADARG", "restore", ["5", "w", "held", "0", "0", "", "p", "0", "0", "0"]),
    ("BADARG", "restore", ["5", "w", "held", "1", "0", "", "p", "0", "0", "1", "DEDUP", "w"]),
    ("BADARG", "scan", ["0", "5", "all"]),
    ("BADARG", "scan", ["0", "5", "key"]),
    ("BADARG", "scan", ["0", "5", "key", ""]),
    ("BADARG", "scan", ["0", "5", "key", "a", "b"]),
    ("BADARG", "scan", ["0", "5", "delayed"]),
    ("BADARG", "scan", ["0", "5", "dead", "a"]),
    ("BADARG", "scan", ["0", "5", "ids"]),
    ("BADARG", "scan", ["0", "5", "ids", "7", "0"]),
    ("BADARG", "scan", ["0", "5", "larger"]),
    ("BADARG", "scan", ["0", "5", "larger", "-1"]),
    ("BADARG", "scan", ["0", "5", "larger", "1", "dead"]),
    ("BADARG", "scan", ["0", "5", "larger", "1", "held", "a"]),
    ("BADARG", "scan", ["0", "5", "front"]),
    ("BADARG", "scan", ["0", "5", "front", "1", "dead"]),
    ("BADARG", "paused", []),
    ("BADARG", "pause", ["", "a"]),
    ("BADARG", "scan", ["x", "1"]),
    ("BADARG", "explain", ["lane", "a", "1"]),
    ("BADARG", "explain", ["key", "", "1"]),
    ("BADARG", "explain", ["id", "5", "1001"]),
    ("BADARG", "dead_letters", ["1", "x"]),
    ("BADARG", "dead_letters", ["1", "", "a", "b"]),
    ("BADARG", "result", ["5"]),
    ("BADARG", "join", []),
    ("BADARG", "join", ["0", "x"]),
    ("BADARG", "join", ["-1", "5"]),
    ("BADARG", "join", ["0", "5", "6"]),
    ("BADARG", "seal", ["x"]),
    ("BADARG", "settle", ["one", "1000000000", "DEFER", "5", "6", "x"]),
    ("BADARG", "settle", ["one", "1000000000", "DEFER", "5", "6"]),
    ("BADARG", "settle", ["one", "1000000000", "CLOSE", "5", "6", "", "", "a", "1"]),
    ("BADARG", "settle", ["one", "1000000000", "CLOSE", "5", "6", "1", "x" * 4_097, "a", "1"]),
    ("BADARG", "settle", ["one", "1000000000", "CLOSE", "5", "6", "1", "", "", "1"]),
    ("BADARG", "settle", ["one", "1000000000", "CLOSE", "5", "6", "1", "", "a\x1fb", "1"]),
    ("BADARG", "settle", ["one", "1000000000", "CLOSE", "5", "6", "1", "", "x" * 1_025, "1"]),
    ("BADARG", "settle", ["one", "1000000000", "CLOSE", "5", "6", "1", "", "a", "2"]),
    ("BADARG", "settle", ["one", "1000000000", "CLOSE", "5", "6", "1", "", "a"]),
    ("BADARG", "settle", ["one", "1000000000", "NACK", "5", "6", "", "x" * 4_097]),
    ("BADARG", "restore", ["5", "w", "held", "1", "0", "x" * 16_385, "p", "0", "0", "0"]),
    ("BADARG", "restore", ["5", "w", "delayed", "1", "0", "", "p", "0", "0", "1", "REVISION", "1"]),
    (
        "BADARG",
        "restore",
        ["5", "w", "delayed", "1", "0", "", "p", "0", "0", "2", "COALESCE", "a", "DEBOUNCE", "1"],
    ),
    ("BADARG", "requeue", ["5", "p", "0", "0", "a"]),
    ("BADARG", "requeue", ["5", "p", "0", "0", "a", "b"]),
    ("BADARG", "requeue", ["5", "p", "0", "0", "a", "b", "2:c", "d"]),
    ("BADARG", "requeue", ["5", "p", "0", "0", "a\x1f", "", ""]),
    ("BADARG", "requeue", ["5", "p", "0", "0", "", "a\x1fb", ""]),
    ("BADARG", "requeue", ["5", "p", "0", "0", "", "", "1:a"]),
    ("BADARG", "forget", ["x"]),
    ("BADARG", "forget", ["5", "6"]),
    ("BADARG", "roots", ["-1", "5"]),
    ("BADARG", "roots", ["0", "0"]),
    ("BADARG", "roots", ["0", "5", "6"]),
    ("BADARG", "blocked", ["5"]),
    ("BADARG", "blocked", ["0", "id", "5"]),
    ("BADARG", "blocked", ["10001", "id", "5"]),
    ("BADARG", "blocked", ["5", "lane", "a"]),
    ("BADARG", "blocked", ["5", "id", "x"]),
    ("BADARG", "blocked", ["5", "id", "5", "key"]),
    ("BADARG", "events", []),
    ("BADARG", "events", ["x", "1", "1"]),
    ("BADARG", "events", ["", "0", "1"]),
    ("BADARG", "events", ["", "1025", "1"]),
    ("BADARG", "events", ["", "1", "0"]),
    ("BADARG", "events", ["1", "1", "60000001"]),
    ("BADARG", "announce", ["", "1", ""]),
    ("BADARG", "announce", ["w" * 513, "1", ""]),
    ("BADARG", "announce", ["w", "-1", ""]),
    ("BADARG", "announce", ["w", "1", "x" * 65_537]),
    ("BADARG", "announce", ["w", "1"]),
    ("BADARG", "workers", ["", "0"]),
    ("BADARG", "workers", ["w" * 513, "1"]),
    ("BADARG", "ask", ["w", "x" * 4_097]),
    ("BADARG", "ask", ["", "x"]),
    ("BADARG", "ask", ["w"]),
]
"""Calls that are refused whatever the queue holds, and the code of the refusal."""


def random_steps(rng: random.Random, count: int) -> list[Step]:
    chance = rng.random
    choice = rng.choice

    def pick() -> int:
        return int(chance() * PICKS)

    # In some schedules limits, groups, updates and keys have the same names, and odd ones.
    limits_of, groups, known, updated = NAMES, GROUPS, KEYS, COALESCED
    if chance() < 0.25:
        limits_of = groups = known = tuple(rng.sample(ODD, len(ODD)))
        updated = {name: COALESCED[like] for name, like in zip(known, COALESCED, strict=False)}

    # In few schedules the clock is set, and in most of those back too: mostly to where it was.
    set_ways = choice([["ahead"], ["ahead", "back", "right"], ["ahead", "right"]])
    set_ways = set_ways if chance() < 0.15 else []

    # In half of the schedules nobody knows of limits.
    limited = choice([0, 0, 0.3, 0.8])
    # A clock that goes back gives a rate nothing; when its messages come up again, no clause says.
    rated = choice([0, 0.3, 0.7]) if limited and not set_ways[1:] else 0

    # In two thirds nobody asks what happens to messages behind a failure.
    behind = choice([0, 0, 0.8])

    def value() -> str:
        return choice(["park", "park", "park", "bury", "cancel", "wait"])

    coalesced = choice([0, 0.2, 0.5])
    # Where there are runs, many messages have the same few keys.
    running = choice([0, 0.5, 0.9])

    def limits() -> str:
        tried = {"bank": "1124", "host:*": "123", "host:b": "1", "*": "125", "free": "2"}
        if limits_of is not NAMES:
            tried |= {"b*": "12", "bank*": "23", "a=b": "1", LONG: "2", LONG[:9] + "*": "3"}
        rates = ["1/5:1", "3/10:1", "1/20:2", "1/100:1", "2/50:5", "3/1000:4"]
        values = {
            name: choice(rates if chance() < rated else numbers) for name, numbers in tried.items()
        }
        chosen = [f"{name}={value}" for name, value in values.items() if chance() < 0.6]
        return "\x1f".join(rng.sample(chosen, len(chosen)))

    # In half of the schedules nobody knows of groups, and in some all messages have one.
    grouped = choice([0, 0, 0.3, 0.7, 1])

    def weights() -> str:
        tried = {"acme": "13", "b*": "12", "big": "25", "*": "12"}
        if groups is not GROUPS:
            tried |= {"bank": "2", "bank*": "13", LONG: "2"}
        chosen = [f"{name}={choice(some)}" for name, some in tried.items() if chance() < 0.5]
        return "\x1f".join(rng.sample(chosen, len(chosen)))

    policy: Makes = {
        "ATTEMPTS": (0.3, lambda: choice([0, 1, 2, 3])),
        "FIRST": (0.2, lambda: choice([0, 1, 7, 100, 1_000])),
        "FACTOR": (0.1, lambda: choice([1_000, 1_500, 3_333])),
        "LONGEST": (0.1, lambda: choice([0, 5, 100, 10**15])),
        "JITTER": (0.1, lambda: choice([0, 1])),
        "THEN": (
            0.1 if running > 0.5 else 0.8 if behind else 0.2,
            lambda: choice(["dead", "hold", "hold"]),
        ),
    }
    own: Makes = {
        "PRIORITY": (0.25, lambda: choice([1, -1, 100, -100, 0])),
        "DELAY": (0.12, lambda: choice([0, 1, 10, 40])),
        "DEDUP": (0.35, lambda: choice("xyz")),
        "AFTER": (0.05, lambda: choice("xyz")),
        "WINDOW": (0.6, lambda: choice([0, 1, 3, 9])),
        "RESULT": (0.25, lambda: choice([0, 5, 50, 10_000])),
        "BARRIER": (0.02 if limited > 0.5 or grouped > 0.5 else 0.12, lambda: choice([0, 1, 1])),
        "QUIET": (0.12, lambda: choice([0, 1, 1])),
        "RUN": (running, lambda: choice(["3:a", "3:a", "03:a", "3:b", "100:a", "2:"])),
        "LIMIT": (limited, lambda: "\x1f".join(rng.choices(limits_of, k=choice([1, 1, 2, 3])))),
        "GROUP": (grouped, lambda: choice(groups)),
        "BEHIND": (behind / 2, value),
        **policy,
    }
    if set_ways[1:]:
        # When a string is forgotten whose window is over, no clause says: with the next such put.
        del own["DEDUP"], own["AFTER"]
    tried = {one.name: one.tried for one in WIRE.queue if one.tried}
    declared_options: Makes = {
        "LIMITS": (limited, limits),
        "WEIGHTS": (grouped, weights),
        "BEHIND": (behind, value),
        **{name: (0.3, partial(choice, values)) for name, values in tried.items()},
        **policy,
    }

    def chosen(makes: Makes) -> tuple[tuple[str, str], ...]:
        return tuple(
            (name, str(make())) for name, (often, make) in makes.items() if chance() < often
        )

    def payload() -> str:
        # Redis stores one of more than 1,024 bytes apart.
        large = ["payload" * 147] if chance() < 0.2 else []
        return choice(["", "pay", "payload", "\xff\x00 \r\n", "payload" * 10, *large])

    def spec() -> Spec:
        # Many are as plain as most are in life: the servers have a way of their own for those.
        # Where limits decide, few messages wait for others.
        plain = chance() < (0.1 if limited > 0.5 or grouped == 1 else 0.4)
        options = () if plain else chosen(own)
        counts = [0, 0, 0, 1, 2] if limited > 0.5 or grouped > 0.5 else [0, 1, 1, 2, 3, 5]
        named = rng.choices(known[: choice([2, 6])], k=choice(counts))
        if chance() < running:
            plain, named = False, choice([["a"], ["c"], ["a", "b"], ["b", "a"], ["b"], ["d"]])
            options = chosen({**own, "BARRIER": (0, list), "PRIORITY": (0.05, lambda: 1)})
        if ("BARRIER", "1") in options:
            named = []
        cut = len(named) if plain or chance() < running else rng.randint(0, len(named))
        made = Spec(payload(), tuple(named[:cut]), tuple(named[cut:]), options)
        return coalescing(made) if chance() < coalesced else made

    def coalescing(made: Spec) -> Spec:
        """A message with a name; in few, what may not change is another's."""
        name = choice(list(updated))
        exclusive, shared, fixed = updated[name]
        replaced = {"COALESCE", "DEDUP", "WINDOW", "BARRIER"}
        if chance() < 0.9:
            replaced |= {"PRIORITY", "LIMIT", "GROUP"}
            made = Spec(made.payload, exclusive, shared, made.options)
        else:
            fixed = ()
        own = [("COALESCE", name), *fixed]
        if chance() < 0.3:
            replaced.add("DELAY")
            own.append(("DEBOUNCE", choice("1357") + choice(["", "0"])))
            if chance() < 0.6:
                own.append(("WITHIN", choice("1258") + choice(["", "0"])))
        kept = [pair for pair in made.options if pair[0] not in replaced]
        options = rng.sample([*kept, *own], len(kept) + len(own))
        return Spec(made.payload, made.keys, made.shared, tuple(options))

    def error() -> str:
        if chance() < 0.1:
            # Some of these, and a history is as long as it may be.
            return choice("xyz") * choice([1_023, 1_025, 4_096])
        return choice(["broken", "broken", "", "\xff\x00", "a\x1eb\x1fc\nd"])

    def picks(least: int) -> list[Pick]:
        rest: dict[str, Callable[[], list[str]]] = {
            "ACK": list,
            "DONE": lambda: ["r" * choice([0, 1, 4, 30])],
            "NACK": lambda: [choice(["0", "0", "1", "10", ""]), error()],
            "REJECT": lambda: [choice(["bad", error()])],
            "EXHAUST": lambda: ["useless"],
            "DROP": lambda: [choice(["expired: late", error()])],
            "RELEASE": list,
            "DEFER": lambda: [choice(["0", "1", "10", "1000"])],
            "CLOSE": lambda: [
                choice(["0", "1", "10", "200"]),
                error(),
                choice(limits_of),
                choice("01"),
            ],
        }
        weights = [5, 3, 4, 2, 2, 2, 2, 2, 2 if rated else 0]
        verbs = rng.choices(list(rest), weights, k=choice([least, 1, 1, 2, 5]))
        return [(verb, pick(), rest[verb]()) for verb in verbs]

    def who() -> str:
        return choice(CONSUMERS)

    def wait() -> str:
        return choice(["0"] * 9 + [WAIT])

    def keys() -> list[str]:
        return rng.choices(known, k=choice([0, 1, 1, 2]))

    def declared() -> list[str]:
        first: list[str] = choice([["REPLACE"], ["CHANGE"], ["CHANGE"], []])
        return first + [part for pair in chosen(declared_options) for part in pair]

    def wanted() -> list[str]:
        kind = choice(["any", "any", "any", "keyed", "unkeyed"])
        if kind != "unkeyed" and running and chance() < 0.7:
            kind += "+"
        return [
            wait(),
            choice("1124") if chance() < 0.8 else "30",
            choice(["1", "20", "1000", "5000000"] if chance() >= running else ["20", "5000000"]),
            kind,
        ]

    def run() -> tuple[str, int, int, list[Pick]]:
        return who(), pick(), choice([0, 1, 2, 9, 9]), picks(0)

    def put() -> tuple[str, str, list[Spec]]:
        made = [spec() for _ in range(choice([1, 1, 1, 2, 5]))]
        if chance() < running:
            # One of them may have what ends a run.
            left = {"DEDUP", "BARRIER", "RUN", "DELAY", "PRIORITY", *NAMING}
            options = tuple(pair for pair in made[-1].options if pair[0] not in left)
            options = options if chance() < 0.2 else ()
            keys = choice([("a",), ("b",), ("c",), ("d",), ("a", "b"), ("b", "a")])
            shared = choice([(), (), ("e",)])
            alike = Spec("", keys, shared, (*options, ("RUN", choice(["4:a", "100:a"]))))
            made += [replace(alike, payload=payload()) for _ in range(choice([2, 4, 7]))]
        return who(), wait(), made

    def together() -> tuple[str, list[Spec], int, bool]:
        # Some of them alone are refused: one with a barrier and a key, for instance.
        return who(), [spec() for _ in range(choice([2, 3, 8]))], pick(), chance() < 0.3

    def new_keys() -> list[str]:
        if chance() < 0.5:
            return []
        exclusive, shared = keys(), keys()
        return [str(len(exclusive)), str(len(shared)), *exclusive, *shared, *new_names()]

    def new_names() -> list[str]:
        if chance() < 0.3:
            return []
        named = (own[name] for name in ("LIMIT", "GROUP", "RUN"))
        return [str(make()) if chance() < often else "" for often, make in named]

    on_message: dict[str, Callable[[], list[str]]] = {
        "cancel": list,
        "revoke": lambda: [choice(["retry", "hold", "dead", "skip"])],
        "retry": list,
        "skip": list,
        "bury": list,
        "requeue": lambda: [] if chance() < 0.5 else [payload(), *new_keys()],
        "discard": list,
        "forget": list,
    }
    on_queue: dict[str, Callable[[], list[str]]] = {
        "pause": keys,
        "resume": lambda: choice([keys(), keys(), [], list(known)]),
        "reopen": list,
    }
    if limited or grouped or behind:
        changes: Makes = {
            "LIMITS": (limited and 1, limits),
            "WEIGHTS": (grouped and 1, weights),
            "BEHIND": (behind and 1, value),
        }
        named = [name for name, (often, _) in changes.items() if often]

        def change() -> list[str]:
            name = choice(named)
            return ["CHANGE", name, str(changes[name][1]())]

        on_queue["configure"] = change
    # In few schedules, for the rest of one is short of messages then.
    if chance() < 0.3:
        on_queue["seal"] = list
        on_queue["configure"] = declared
        on_queue["drop"] = lambda: choice([[], ["FORCE"]])
        on_queue["purge"] = lambda: [choice(["pending", "dead"])]

    def restored() -> tuple[str, list[tuple[list[str], int, Spec]]]:
        states = ["waiting", "waiting", "delayed", "backing_off", "held", "dead"]
        states += ["parked"] if behind else []

        def item() -> tuple[list[str], int, Spec]:
            found = spec()
            timed = ("DELAY", "DEBOUNCE", "WITHIN")
            options = tuple(one for one in found.options if one[0] not in timed)
            if found.option("COALESCE") and chance() < 0.5:
                options += (("REVISION", choice("0129")),)
            mark = choice(["m", "n", str(rng.randrange(99))])
            errors = ["", "broken", "\xff\x00", "new\x1f2\x1f7\x1eold", "x" * 16_384]
            stood = [mark, choice(states), choice("1123"), choice(errors)]
            return (
                stood,
                choice([-5, 0, 7, 90]),
                Spec(found.payload, found.keys, found.shared, options),
            )

        return choice(["1", "20", "1000000"]), [item() for _ in range(choice([1, 1, 2, 5]))]

    # In some, an operator mostly cancels: lists on Redis then have many entries to skip.
    cancelled = choice([0, 0, 0, 0.7])

    def operate() -> tuple[str, int, list[str]]:
        name = "cancel" if chance() < cancelled else choice(list(on_message))
        return name, pick(), on_message[name]()

    def direct() -> tuple[str, list[str]]:
        name = choice(list(on_queue))
        return name, on_queue[name]()

    # In some nobody watches, in some all the time.
    watch = choice([[], ["1", "20", "1000"], ["1000", "60000000"]])

    def events() -> tuple[int, int, str]:
        return pick(), choice([1, 2, 30, 1_024]), choice(watch)

    def clock() -> tuple[str, int]:
        return choice(set_ways), choice([1, 9, 1_000, 599_999_999, 600_000_000, DAYS, DAYS])

    def workers() -> tuple[str, list[str]]:
        worker = choice(["w", "ww", "v\xff", "\x00", "W"])
        name = choice(["announce", "announce", "workers", "ask", "ask"])
        rest: dict[str, Callable[[], list[str]]] = {
            "announce": lambda: [worker, choice(["0", "1", "50", "10000000"]), choice(["", "{}"])],
            "workers": lambda: [choice(["", "", worker]), choice(["1", "2", "1024"])],
            "ask": lambda: [worker, choice(["", "stacks", "x" * 4_096])],
        }
        return name, rest[name]()

    ways: dict[str, tuple[int, Callable[[], Any]]] = {
        "put": (24, put),
        "together": (4, together),
        "lease": (16, lambda: (who(), wanted())),
        "settle": (14, lambda: (who(), picks(1))),
        "run": (50 if running > 0.5 else 16 if running else 0, run),
        "next": (18, lambda: (who(), wanted(), picks(0))),
        "extend": (8, lambda: (pick(), choice(["1", "5", "30"]), choice([[], ["waiting"]]))),
        "tick": (14, lambda: choice([1, 1, 3, 9, 25, 200, 1_000_000])),
        "revoke": (2, lambda: (pick(), choice(["retry", "hold", "dead", "skip"]))),
        "due": (6, lambda: (pick(), choice([0, 0, 0, 1]))),
        "window": (2, lambda: (pick(), choice([0, 1]))),
        "again": (4, who),
        "stale": (1, who),
        # A held message, or a pause, stops the few keys of runs.
        "operate": (3 if running > 0.5 else 11, operate),
        "direct": (2 if running > 0.5 else 8, direct),
        "clock": (12 if set_ways else 0, clock),
        "restore": (0 if set_ways[1:] else 2, restored),
        "events": (8 if watch else 0, events),
        "workers": (3, workers),
        "wrong": (1, lambda: choice(WRONG)),
        "read": (3, lambda: (pick(), choice([1, 2, 5, 50]), choice(known))),
    }
    names = rng.choices(list(ways), [weight for weight, _ in ways.values()], k=count)
    steps: list[Step] = [(name, ways[name][1]()) for name in names]
    if limited or grouped or chance() < 0.4:
        steps[0] = "direct", ("configure", declared())
    return steps
