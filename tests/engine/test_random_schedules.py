"""Random calls get from a queue on Redis what the naive model says, reply by reply.

INTERLOCK_ENGINE_CALLS says how many calls, INTERLOCK_SEED repeats a run.
"""

from __future__ import annotations

import os
import random

import pytest
import redis

from interlock.engine.library import Library
from tests.engine.schedule import CLOCK, compare, random_steps, shrunk
from tests.hub.servers import redis_server

CALLS = int(os.environ.get("INTERLOCK_ENGINE_CALLS", "30000"))
STEPS = 300


@pytest.mark.watchdog(120 + CALLS / 250)
def test_random_calls_get_what_the_model_says(tmp_path_factory: pytest.TempPathFactory) -> None:
    seed = int(os.environ.get("INTERLOCK_SEED") or random.SystemRandom().randrange(2**32))
    print(f"INTERLOCK_SEED={seed}")
    rng = random.Random(seed)
    folder = tmp_path_factory.mktemp("random")
    with redis_server(folder) as (_, port), redis.Redis(port=port) as connection:
        # A library of its own: the clock is a key.
        Library(instead={"clock": CLOCK}).load(connection)
        made = 0
        while made < CALLS:
            steps = random_steps(rng, STEPS)
            count, wrong = compare(connection, steps)
            made += count
            if wrong:
                fewer = shrunk(connection, steps)
                told = compare(connection, fewer)[1]
                pytest.fail(f"INTERLOCK_SEED={seed}, {len(fewer)} steps: {fewer}\n{told}")
