"""Golden calls on rows: random commands with a fixed seed, and what a node in Python answers.

``python -m tests.cluster.state.golden_calls`` writes crates/interlock-rows/tests/golden/calls.txt,
by which the Rust form of commands is compared with this one; ``... NUMBER FILE`` writes another
number of calls elsewhere, which the test reads where INTERLOCK_CALLS names the file.

``T TTL SCHEMA; KINDS; AGE`` begins a table, whose rows live TTL ms (0: for ever). Each further line
is a call: the time in ms, 2 or 3 for the protocol, its words, ``=``, the reply, and a hash of all
states. Words and replies are quoted as in a URL; ``%`` alone is an empty one.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from urllib.parse import quote

from interlock import Row
from tests.cluster.naive.commands import Commands
from tests.cluster.naive.stamps import HybridClock
from tests.cluster.naive.state import TableRules
from tests.cluster.state.rows import Merged
from tests.cluster.state.script import Script
from tests.hub.tables.tables import Presence

PLACE = Path(__file__).parents[3] / "crates/interlock-rows/tests/golden/calls.txt"
BASE_MS = 1_700_000_000_000
CALLS = 400


class Calls(Script):
    """Random commands on a table of any columns, at times that are given."""

    def __init__(self, chance: random.Random, row: type[Row]) -> None:
        super().__init__(chance, b"t")
        self.columns = {name.encode(): kind for name, kind in _kinds(row).items()}
        self.now = BASE_MS

    def column(self) -> bytes:
        if self.chance.random() < 0.03:
            return super().column()
        return self.chance.choice(list(self.columns))

    def value(self, column: bytes) -> bytes:
        kind = self.columns.get(column, "")
        if self.chance.random() < 0.06:
            return self.text()
        if kind == "str":
            return super().value(b"token")
        if kind == "bytes":
            return super().value(b"raw")
        if kind in ("F32", "F64"):
            return self.number(0.2)
        return super().value(b"background" if kind == "bool" else b"number")

    def span(self) -> int:
        return self.chance.randrange(1, 3_000_000)

    def time(self, name: bytes) -> bytes:
        if self.chance.random() < 0.1:
            return super().time(name)
        ms = self.span() + (self.now if name.lower().endswith(b"at") else 0)
        return b"%d" % (ms if name.lower().startswith(b"p") else ms // 1000)

    def next(self) -> list[bytes]:
        """Return the next call, some time later."""
        self.now += self.chance.choice([0, 0, 1, 20, 3000, 1_000_000])
        return self.command()


def _kinds(row: type[Row]) -> dict[str, str]:
    return {column.name: column.kind for column in TableRules.of(row).columns}


def calls(seed: int, row: type[Row], ttl_ms: int | None, number: int) -> list[str]:
    """Return the lines of one table."""
    chance = random.Random(seed)
    rules = TableRules.of(row)
    script = Calls(chance, row)
    commands = Commands(rules, table_name="t", key_size=32, default_ttl_ms=ttl_ms)
    clock = HybridClock("east", lambda: script.now)
    clock.begin_term(1)
    states: dict[bytes, bytes] = {}
    lines = [f"T {ttl_ms or 0} {rules.fingerprint}"]
    for _ in range(number):
        words = script.next()
        resp3 = chance.random() < 0.5
        before = clock._last, rules.newest_seen
        reply, changes, _ = commands.run(words, resp3, states.get, clock, script.now)
        if not changes:
            # A call that was refused half way may have taken stamps.
            clock._last, rules.newest_seen = before
        for key, delta in changes:
            states[key] = rules.join(states.get(key), delta)
        parts = [str(script.now), "3" if resp3 else "2", *map(quoted, words), "=", quoted(reply)]
        seen = b"".join(key + b"\0" + states[key] for key in sorted(states))
        lines.append(" ".join([*parts, f"{hash_of(seen):x}"]))
    return lines


def quoted(word: bytes) -> str:
    """Return a word without blanks."""
    return quote(word, safe="$*:+,;_!?=()[]/") if word else "%"


def hash_of(data: bytes) -> int:
    """Return FNV-1a of 64 bits."""
    found = 0xCBF29CE484222325
    for byte in data:
        found = (found ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return found


def all_calls(number: int = CALLS) -> str:
    """Return the text of the file."""
    lines = []
    tables: list[tuple[type[Row], int | None]] = [
        (Presence, None), (Presence, 500_000), (Merged, None), (Merged, 500_000),
    ]  # fmt: skip
    for seed, (row, ttl_ms) in enumerate(tables):
        lines += calls(seed, row, ttl_ms, number)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    number, place = (int(sys.argv[1]), Path(sys.argv[2])) if len(sys.argv) > 2 else (CALLS, PLACE)
    place.parent.mkdir(exist_ok=True)
    place.write_text(all_calls(number))
