"""Random calls get from a queue on Redis what the naive model says, reply by reply.

INTERLOCK_ENGINE_CALLS says how many calls, INTERLOCK_SEED repeats a run.
"""

from __future__ import annotations

import os
import random

import pytest
import redis

from tests.engine.schedule import compare, random_steps, shrunk
from tests.engine.timed import timed_library

CALLS = int(os.environ.get("INTERLOCK_ENGINE_CALLS", "30000"))
STEPS = 300


@pytest.mark.watchdog(120 + CALLS / 250)
def test_random_calls_get_what_the_model_says(connection: redis.Redis) -> None:
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
