"""Small traces for the tests."""

import json
from pathlib import Path
from random import Random

from interlock.replay.trace import Message, Trace

KEPT = [
    {"id": "one", "keys": ["a", "b"]},
    {"id": "two", "keys": "a"},
    {"id": 3, "keys": 7, "shared": ["b", "c"], "time": 1.5, "payload": {"sum": 10}},
    {"id": "four", "keys": []},
]


def written(path: Path, lines: list[object]) -> Path:
    """A trace file with these objects, one a line."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def random_messages(random: Random, count: int, keys: int = 6) -> list[Message]:
    """Messages of no to three keys, some of them shared."""
    messages = []
    for index in range(count):
        named = random.sample(
            [f"key-{number}" for number in range(keys)], random.choice([0, 1, 1, 2, 3])
        )
        cut = random.randint(0, len(named))
        messages.append(Message(f"m{index}", tuple(named[:cut]), tuple(named[cut:])))
    return messages


def random_trace(seed: int, count: int = 200) -> Trace:
    """The same trace for the same seed."""
    return Trace(f"random {seed}", random_messages(Random(seed), count))
