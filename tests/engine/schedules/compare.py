"""Model, hub and Redis must answer alike, reply by reply; steps that show otherwise become few."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path

from tests.engine.schedules.director import Director, directed
from tests.engine.schedules.forms import Replies, same
from tests.engine.schedules.servers import Asked, Servers, servers_in
from tests.engine.schedules.steps import Step, random_steps
from tests.engine.timed import WIRE

STEPS = 300
"""Number of calls of a schedule."""
SHOWN = 40
FOUND = Path(__file__).parents[3] / "target" / "schedules"
"""Differences are kept here, each in a file named after its seed."""
# State that remains when a queue is empty: its counts, its options, the test's clock, kept replies,
# and who waits: they leave when their wait is over, by the server's clock.
LEFT = ("c", "o", "series", "clock", "k:", "ko", "w:", "told:", "wake:", "room", "ev", "workers")


class Differs(AssertionError):
    """Steps after which model, hub and Redis do not say the same."""


def run_alone(seed: int, calls: int) -> Counter[str]:
    """`run`, on servers of its own."""
    with tempfile.TemporaryDirectory() as folder, servers_in(Path(folder)) as servers:
        return run(servers, seed, calls)


def run(servers: Servers, seed: int, calls: int) -> Counter[str]:
    """Random schedules with at least this number of calls; what they were, and what was
    answered."""
    rng = random.Random(seed)
    tally = Counter[str]()
    before: tuple[list[Step], Asked] | None = None
    while before or tally["calls"] < calls:
        steps = random_steps(rng, STEPS) if tally["calls"] < calls else []
        director = directed(steps, servers.now)
        # By now Redis has had the time that it took to make the next schedule.
        if before:
            _must_be_same(servers, seed, *before)
        before = (steps, servers.ask(director.calls)) if steps else None
        tally += tally_of(director) if steps else Counter()
    return tally


def tally_of(director: Director) -> Counter[str]:
    """The counts of the model in a schedule, and how often each function was called."""
    calls = Counter(f"il1_{call.name}" for call in director.calls)
    calls["calls"] = len(director.calls)
    return director.model.counts + director.tally + calls


def _must_be_same(servers: Servers, seed: int, steps: list[Step], asked: Asked) -> None:
    wrong = difference(asked, servers.answered())
    if wrong:
        # Kept before it is shrunk, for that takes long and what is printed may be cut.
        keep(seed, steps, wrong)
        fewer = shrunk(servers, steps)
        again = compare(servers, fewer) or wrong
        kept = f"INTERLOCK_SEED={seed}, kept in {keep(seed, fewer, again)}"
        raise Differs(f"{kept}, {len(fewer)} steps: {fewer}\n{again}")


def keep(seed: int, steps: list[Step], wrong: str) -> Path:
    """Write a difference and the steps that lead to it. Return the path of the file."""
    FOUND.mkdir(parents=True, exist_ok=True)
    path = FOUND / f"{seed}.txt"
    path.write_text(f"seed {seed}, {len(steps)} steps\n{steps}\n{wrong}\n", encoding="utf-8")
    return path


def compare(servers: Servers, steps: list[Step]) -> str | None:
    """The difference at the first call of these steps that does not get the same of all three."""
    asked = servers.ask(directed(steps, servers.now).calls)
    return difference(asked, servers.answered())


def difference(asked: Asked, redis: Replies) -> str | None:
    hub, now, start = asked.hub, 0, asked.calls[0].now
    for number, call in enumerate(asked.calls):
        if call.now != now:
            now = call.now
            assert redis.line() == b"+OK"
        asked_of = [one for one in (hub, redis) if one]
        places = [one.at for one in asked_of]
        if not same(call, hub, redis):
            for one, place in zip(asked_of, places, strict=True):
                one.at = place
            before = asked.calls[max(number - SHOWN, 0) : number]
            past = [f"at {one.now - start}: {one} -> {one.expected}" for one in before]
            return "\n  ".join([
                "the calls before it:",
                *past,
                f"at {now - start}: {call}",
                f"model {call.expected}",
                f"hub   {hub.next() if hub else 'not asked'}",
                f"redis {redis.next().replace(f'il{WIRE}_', 'il1_')}",
            ])  # fmt: skip
    left = {name.removeprefix(f"{asked.key}:") for name in redis.array() or []}
    more = sorted(name for name in left if not name.startswith(LEFT))
    return f"left over on Redis when the queue was empty: {more}" if more else None


def shrunk(servers: Servers, steps: list[Step]) -> list[Step]:
    """Fewer steps that still go wrong: runs of them are left out until none can be."""
    while True:
        before, size = len(steps), len(steps) // 2
        while size:
            at = 0
            while at < len(steps):
                fewer = steps[:at] + steps[at + size :]
                if compare(servers, fewer):
                    steps = fewer
                else:
                    at += size
            size //= 2
        if len(steps) == before:
            return steps
