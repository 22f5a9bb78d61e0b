"""Random calls get the same of the naive model, of a hub and of a Redis, reply by reply.

INTERLOCK_ENGINE_CALLS says how many calls, INTERLOCK_SEED repeats a run. What differs between the
servers is listed in `schedules.forms.LISTED`. Millions of calls, with a summary that is kept:
`python -m tests.engine.schedules`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import seeds
from tests.engine.schedules import compare
from tests.engine.schedules.compare import Differs, run
from tests.engine.schedules.director import Call
from tests.engine.schedules.forms import LONG, Replies, same, spoken
from tests.engine.schedules.servers import both

CALLS = int(os.environ.get("INTERLOCK_ENGINE_CALLS", "10000"))


@pytest.mark.watchdog(120 + CALLS / 250)
def test_model_hub_and_redis_answer_random_calls_alike(engine_port: int) -> None:
    seed = seeds.seed()
    with both(engine_port) as servers:
        run(servers, seed, CALLS)


def test_a_difference_is_kept_in_a_file_with_its_seed_and_the_fewest_steps(
    engine_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "FOUND", tmp_path)
    # Even no step at all is wrong.
    monkeypatch.setattr(compare, "difference", lambda asked, redis: "they differ")
    with both(engine_port) as servers, pytest.raises(Differs, match=r"7\.txt"):
        run(servers, 7, 1)
    assert (tmp_path / "7.txt").read_text("utf-8") == "seed 7, 0 steps\n[]\nthey differ\n"


@pytest.mark.parametrize(
    ("tail", "is_same"),
    [
        (["b", "69", "1", "held"], True),
        (["b", "21", "0", "held"], True),
        (["b", "70", "0", "held"], False),
        (["b", "21", "1", "held"], False),
        (["b", "21", "0", "leased"], False),
        (["0", "69", "1", "held"], False),
    ],
)
@pytest.mark.parametrize("length", [0, LONG])
def test_only_a_long_explanation_may_count_fewer_ahead_and_must_say_so(
    tail: list[str], is_same: bool, length: int
) -> None:
    rest = ["x"] * length
    call = Call("explain", ["id", "1", "1000"], [*rest, "b", "69", "1", "held"], 0)
    reply = [*rest, *tail]
    told = Replies(f"*{len(reply)}\r\n{spoken(reply)}".encode())
    assert same(call, None, told) is (is_same and (length > 0 or tail == call.expected))
