"""Random calls get the same of the naive model, of a hub and of a Redis, reply by reply.

INTERLOCK_ENGINE_CALLS says how many calls, INTERLOCK_SEED repeats a run. What differs between the
servers is listed in `schedules.forms.LISTED`. Millions of calls, with a summary that is kept:
`python -m tests.engine.schedules`.
"""

from __future__ import annotations

import os

import pytest

from tests import seeds
from tests.engine.schedules.compare import run
from tests.engine.schedules.servers import both

CALLS = int(os.environ.get("INTERLOCK_ENGINE_CALLS", "10000"))


@pytest.mark.watchdog(120 + CALLS / 250)
def test_model_hub_and_redis_answer_random_calls_alike(engine_port: int) -> None:
    seed = seeds.seed()
    with both(engine_port) as servers:
        run(servers, seed, CALLS)
