"""Random talks of three connections with the hub and with Redis: the same bytes come back.

A seed gives the whole talk; it is printed, and `INTERLOCK_SEED` repeats it as the first.
"""

from __future__ import annotations

import random

import pytest

import interlock
from interlock.hub.resp import command
from tests import seeds
from tests.hub.protocol.wire import Exchange, Step, differences, play
from tests.hub.servers import REDIS_VERSION, needs_hub, version_of

TALKS = 60
STEPS = 25
ALPHABET = [
    "a",
    "b",
    "ab",
    "",
    "*",
    "a*",
    "[ab]",
    "?",
    "\\",
    "[",
    "a\r\nb",
    "ä",
    "0",
    "-1",
    "2",
    "3",
]
# Redis gives what it keeps in a table in the order of that table, which changes with every start
# of it. So a connection has one subscription of a kind at a time, and others of its kinds differ.
ONE_OF_A_KIND = {
    "SUBSCRIBE": "UNSUBSCRIBE",
    "PSUBSCRIBE": "PUNSUBSCRIBE",
    "SSUBSCRIBE": "SUNSUBSCRIBE",
}


def talk(seed: int) -> Exchange:
    """A talk; each step is a command, most of them sensible."""
    chance = random.Random(seed)
    steps: list[Step] = []
    for name in "abc":
        if chance.random() < 0.5:
            steps.append(Step(command("HELLO", 3), name))
    for _ in range(STEPS):
        name = chance.choice("abc")
        word = chance.choice(ALPHABET)
        kind = chance.choice([*ONE_OF_A_KIND, *ONE_OF_A_KIND.values()])
        data = chance.choice(
            [
                command(kind) if kind in ONE_OF_A_KIND.values() else one_of(kind, word),
                command(kind, word) if kind in ONE_OF_A_KIND.values() else one_of(kind, word),
                command("PUBLISH", chance.choice(ALPHABET), str(chance.randrange(100))),
                command("SPUBLISH", chance.choice(ALPHABET), "x"),
                command("PUBSUB", "NUMSUB", *chance.choices(ALPHABET, k=chance.randrange(3))),
                command("PUBSUB", "NUMPAT"),
                command("PING", *chance.choices(ALPHABET, k=chance.randrange(3))),
                command("ECHO", *chance.choices(ALPHABET, k=chance.randrange(3))),
                command("CLIENT", "SETNAME", word),
                command("CLIENT", "GETNAME"),
                command("SELECT", word),
                command("RESET"),
                command(*chance.choices(ALPHABET, k=chance.randrange(1, 5))),
                command("HELLO", chance.choice([2, 3, 4])),
                b"PUBLISH %s %d\r\n" % (chance.choice([b"a", b"b"]), chance.randrange(100)),
            ]
        )
        steps.append(Step(data, name))
    return Exchange(f"seed {seed}", steps, ("version", "id"))


def one_of(kind: str, word: str) -> bytes:
    """Subscribes to one after the end of all before, in one go."""
    return command(ONE_OF_A_KIND[kind]) + command(kind, word) + command(kind, word)


@pytest.mark.watchdog(120)
def test_random_talks_have_the_same_answers(redis_port: int) -> None:
    needs_hub()
    if version_of(redis_port) != REDIS_VERSION:
        pytest.skip(f"Redis is not {REDIS_VERSION}")
    first = seeds.seed()
    with interlock.Hub(port=0, workers=1) as hub:
        for seed in range(first, first + TALKS):
            exchange = talk(seed)
            expected = play(redis_port, exchange)
            size = random.Random(seed).choice([1, 7, 1 << 20])
            found = list(differences(exchange, expected, play(hub.port, exchange, size)))
            asked = "\n".join(f"  {step.on}: {step.data!r}" for step in exchange.steps)
            assert not found, f"seed {seed}, pieces of {size}\n{asked}\n" + "\n".join(found)


@pytest.mark.watchdog(120)
def test_redis_answers_a_random_exchange_the_same_twice(redis_port: int) -> None:
    for seed in range(20):
        exchange = talk(seed)
        assert not list(
            differences(exchange, play(redis_port, exchange), play(redis_port, exchange))
        )
