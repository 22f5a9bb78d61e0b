"""The engine in the process and the library on Redis answer random calls alike, byte for byte.

INTERLOCK_ENGINE_CALLS says how many calls, INTERLOCK_SEED repeats a run. What differs is listed in
`two_servers.MASKED`.
"""

from __future__ import annotations

import os
import random

import pytest
import redis

from tests.engine.timed import timed_library
from tests.engine.two_servers import Argument, Step, compare, random_steps, shrunk

CALLS = int(os.environ.get("INTERLOCK_ENGINE_CALLS", "30000"))
STEPS = 300


@pytest.mark.watchdog(120 + CALLS / 250)
def test_random_calls_get_the_same_of_both_servers(connection: redis.Redis) -> None:
    seed = int(os.environ.get("INTERLOCK_SEED") or random.SystemRandom().randrange(2**32))
    print(f"INTERLOCK_SEED={seed}")
    rng = random.Random(seed)
    timed_library().load(connection)
    made = 0
    while made < CALLS:
        steps = random_steps(rng, STEPS)
        count, wrong = compare(connection, steps)
        made += count
        if wrong:
            fewer = shrunk(connection, steps)
            told = compare(connection, fewer)[1]
            pytest.fail(f"INTERLOCK_SEED={seed}, {len(fewer)} steps: {fewer}\n{told}")


def put(*messages: list[Argument]) -> Step:
    return "put", ("", [part for message in messages for part in message])


def plain(*keys: Argument, shared: int = 0, **options: Argument) -> list[Argument]:
    pairs: list[Argument] = []
    for name, value in options.items():
        pairs += [name, value]
    return ["", len(keys) - shared, shared, len(options), *keys, *pairs]


LEASE: Step = ("lease", ("", [1_024, 20, "any"]))
ACK: Step = ("settle", ("", [("ACK", 1, [])]))
LOOK: list[Step] = [("plain", ("stats", [])), ("plain", ("lease", ["", 0, 0, 1, 900, "any"]))]

LARGE: dict[str, list[Step]] = {
    "delays that end together": [
        *[put(*[plain(DELAY=10) for _ in range(900)]) for _ in range(3)],
        ("tick", 10),
    ],
    "leases that run out together, after which messages are dead": [
        *[put(*[plain(ATTEMPTS=1)] * 900) for _ in range(3)],
        *[LEASE] * 3,
        ("tick", 20),
    ],
    "readers behind a writer": [
        put(plain("a")),
        *[put(*[plain("a", shared=1)] * 900) for _ in range(3)],
        ("lease", ("", [1, 500, "any"])),
        ACK,
    ],
    "what stands behind a barrier": [
        put(plain(BARRIER=1)),
        *[put(*[plain(*[f"k{n % 7}"][: n % 2]) for n in range(900)]) for _ in range(3)],
        ("lease", ("", [1, 500, "any"])),
        ACK,
    ],
    "messages of a key that was paused": [
        *[put(*[plain("a", shared=1)] * 900) for _ in range(3)],
        ("plain", ("pause", ["a"])),
        *[("lease", ("", [1, 500, "any"]))] * 2,
        ("plain", ("resume", ["a"])),
    ],
    "backoffs that end while delays do": [
        *[put(*[plain(FIRST=30, JITTER=0)] * 900) for _ in range(2)],
        *[LEASE] * 2,
        put(*[plain(DELAY=50)] * 900),
        ("tick", 20),
        ("plain", ("lease", ["", 0, 0, 1, 5, "keyed"])),
        ("plain", ("lease", ["", 0, 0, 1, 5, "keyed"])),
        ("tick", 30),
    ],
}


@pytest.mark.parametrize("steps", LARGE.values(), ids=LARGE)
def test_what_one_call_cannot_do_the_next_ones_do_alike(
    connection: redis.Redis, steps: list[Step]
) -> None:
    timed_library().load(connection)
    again = [*LOOK, ("tick", 1), ("plain", ("extend", [5, 6]))] * 5
    _, wrong = compare(connection, [*steps, *again])
    assert wrong is None
