"""Golden cases of states: random histories with a fixed seed, and what Python makes of them.

``python -m tests.cluster.state.golden`` writes crates/interlock-log/tests/golden/histories.txt, by
which the Rust form of states is compared with this one, byte by byte. A line is a step in one of
three data centres; it ends with a hash of the change's bytes, the state's, and what is seen of it:

``T SCHEMA; KINDS; AGE`` begins a history; ``L CENTRE TERM`` a term there.
``S|P|R|E|D CENTRE STAMP NOW ...`` sets, patches, raises, has expire, deletes.
``J CENTRE DELTA NOW`` joins a change by its number, ``M CENTRE OTHER NOW`` another's whole state.
``F CENTRE NOW`` forgets the state, if that may be.
``=STATE`` (in hex) at the end is the state of the first in full.
"""

from __future__ import annotations

import math
import random
import struct
from pathlib import Path
from typing import Any

import msgspec

from tests.cluster.naive.merge import ClusterColumn
from tests.cluster.naive.rules import rules_by
from tests.cluster.naive.stamps import HybridClock
from tests.cluster.naive.state import TableRules

PLACE = Path(__file__).parents[3] / "crates/interlock-log/tests/golden/histories.txt"
BASE_MS = 1_700_000_000_000
TABLES = [
    "a: U8; last; 1000 ms",
    "n: I8; sum; 4000 ms",
    "n: U64, m: I64, f: F64, g: F32; sum, sum, sum, sum; 604800000 ms",
    "a: F64, b: F32, c: U64, d: I32, e: bool; max, max, max, max, max; 4000 ms",
    "a: U8, b: U16, c: U32, d: U64; flags, flags, flags, flags; 4000 ms",
    "t: str[40], x: bytes[300], b: bool, f: F32, d: F64, i: I16; "
    "last, last, last, last, last, last; 4000 ms",
    "name: str[8], state: U8, unread: U32, balance: I8, score: F64, seen: U64, peak: F32, "
    "devices: U16; last, last, sum, sum, sum, max, max, flags; 4000 ms",
]
HISTORIES, STEPS = 84, 36
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Centre:
    def __init__(self, rules: TableRules, dc: str, history: History) -> None:
        self.rules, self.history = rules, history
        self.clock = HybridClock(dc, lambda: history.now)
        self.state: bytes | None = None


class History:
    """One row in three data centres."""

    def __init__(self, chance: random.Random, table: str) -> None:
        self.chance = chance
        self.rules = rules_by(table)
        self.lines = [f"T {table}"]
        self.now = BASE_MS
        self.deltas: list[bytes] = []
        self.centres = [Centre(self.rules, dc, self) for dc in ("east", "west-2", "e")]
        # Most histories have few deletes, or no sum would grow old.
        self.deletes = chance.choice([0.0, 0.02, 0.1])
        self.calm = chance.choice([0.05, 0.5])

    def step(self) -> None:
        chance = self.chance
        at = chance.randrange(3)
        centre = self.centres[at]
        self.now += chance.choice([0, 0, 1, 30, 400, 3000 if chance.random() < 0.2 else 1])
        now = self.now - BASE_MS
        what = chance.random()
        if what < 0.12:
            token = chance.randrange(1, 40) if chance.random() < 0.1 else self.now - BASE_MS + 40
            centre.clock.begin_term(token)
            self.lines.append(f"L {at} {token}")
        elif what < 0.3 and self.deltas:
            number = chance.randrange(len(self.deltas))
            self.join(centre, self.deltas[number])
            self.note(centre, f"J {at} {number} {now}")
        elif what < 0.4:
            other = chance.randrange(3)
            state = self.centres[other].state
            if state is not None:
                self.join(centre, bytes(bytearray(state)))
                self.note(centre, f"M {at} {other} {now}")
        elif what < 0.45:
            state = centre.state
            if state is not None and 0 < self.rules.forgettable_at(state) <= self.now:
                centre.state = None
            self.note(centre, f"F {at} {now}")
        else:
            self.write(at, centre, now)

    def join(self, centre: Centre, theirs: bytes) -> None:
        centre.state = self.rules.join(centre.state, theirs)
        centre.clock.saw(self.rules.newest(theirs))

    def write(self, at: int, centre: Centre, now: int) -> None:
        chance, rules = self.chance, self.rules
        state = centre.state
        cells = None if state is None else rules.cells(state)
        alive = cells is not None and rules.is_alive(cells, self.now)
        stamp = centre.clock.next(self.now)
        head = f"{at} {(stamp[0] >> 16) - BASE_MS}.{stamp[0] & 0xFFFF} {now}"
        raisable = [c for c in rules.columns if c.kind not in ("str", "bytes", "bool")]
        what = chance.random()
        if what < self.deletes and alive:
            line, delta = f"D {head}", rules.deleted(stamp)
        elif what < 0.1 and alive:
            expires = self.expiry()
            assert cells is not None
            line = f"E {head} {expires - BASE_MS if expires else '-'}"
            delta = rules.expiring(cells, stamp, expires)
        elif what < 0.1 + self.calm * 0.4 or not (alive or raisable):
            given, text = self.values()
            expires = self.expiry()
            line = f"S {head} {expires - BASE_MS if expires else '-'} {text}"
            if alive and cells is not None:
                delta = rules.replaced(cells, given, stamp, expires)
            else:
                delta = rules.created(cells, given, stamp, self.now, expires)
        elif (what < 0.4 or not raisable) and alive:
            given, text = self.values()
            assert cells is not None
            line, delta = f"P {head} {text}", rules.patched(cells, given, stamp)
        elif raisable:
            column = chance.choice(raisable)
            to = self.value(column)
            expires = 0 if alive else self.expiry()
            text = f"{column.number}={shown(to)}"
            line = f"R {head} {expires - BASE_MS if expires else '-'} {text}"
            if alive and cells is not None:
                delta = rules.raised(cells, column, to, stamp)
            else:
                delta = rules.created_by(cells, column, to, stamp, self.now, expires)
        else:
            return
        self.deltas.append(delta)
        self.join(centre, delta)
        self.note(centre, line, delta)

    def expiry(self) -> int:
        chance = self.chance
        return self.now + chance.choice([0, 5, 500, 5000, 10**6]) if chance.random() < 0.2 else 0

    def values(self) -> tuple[list[tuple[ClusterColumn, Any]], str]:
        chance, columns = self.chance, self.rules.columns
        chosen = chance.sample(columns, chance.randint(1, len(columns)))
        given = [(column, self.value(column)) for column in chosen]
        return given, ",".join(f"{column.number}={shown(value)}" for column, value in given)

    def value(self, column: ClusterColumn) -> Any:
        chance = self.chance
        if column.kind == "bool":
            return chance.random() < 0.5
        if column.kind == "str":
            text = "".join(chance.choices("abcä漢", k=chance.choice([0, 1, 5, 36])))
            return text.encode()[: column.size].decode(errors="ignore")
        if column.kind == "bytes":
            return chance.randbytes(chance.choice([0, 1, 9, 280 if chance.random() < 0.1 else 9]))
        if column.range is not None:
            least, most = column.range
            return chance.choice([
                0, 1, least, most, least, most, chance.randint(least, most),
                min(chance.randrange(100), most), max(-chance.randrange(100), least),
            ])  # fmt: skip
        # For a maximum, both zeros are equal in Python, and the first one remains.
        zero = -1.5 if column.merge == "max" else -0.0
        value = chance.choice([
            math.nan, math.inf, -math.inf, zero, 0.1, -2.5, 1e16, 1e16 + 2, 3e38,
            chance.uniform(-9, 9), 1e308 if column.kind == "F64" else 1e38,
        ])  # fmt: skip
        return value if column.kind == "F64" else struct.unpack("<f", struct.pack("<f", value))[0]

    def note(self, centre: Centre, line: str, delta: bytes = b"") -> None:
        state = centre.state
        seen: list[Any] = []
        if state is not None:
            newest = self.rules.newest(state)
            values = self.rules.values(state, self.now)
            expires = 0 if values is None else self.rules.expires_at(state)
            seen = [list(newest), values, expires, self.rules.forgettable_at(state)]
            seen.append(self.rules.is_tombstone(state))
            self.rules.check(state)
        parts = [delta, state or b"", msgspec.msgpack.encode(seen)]
        self.lines.append(f"{line} {hashed(parts):08x}")


def shown(value: Any) -> str:
    """A value as a word: a letter for its type, and hex of values that are not numbers."""
    if isinstance(value, bool):
        return f"b{value:d}"
    if isinstance(value, int):
        return f"i{value}"
    if isinstance(value, float):
        return f"f{struct.pack('>d', value).hex()}"
    return f"s{value.encode().hex()}" if isinstance(value, str) else f"x{value.hex()}"


def hashed(parts: list[bytes]) -> int:
    """FNV-1a of the parts, 64 bits, of which the upper 32 are put on the lower."""
    found = 0xCBF29CE484222325
    for part in parts:
        # Which nan it is depends on the machine; all nodes must have the same.
        for byte in part.replace(OTHER_NAN, NAN) + b"\xff":
            found = (found ^ byte) * 0x100000001B3 % 2**64
    return (found >> 32) ^ (found & 0xFFFFFFFF)


def histories() -> str:
    """All histories, as text."""
    lines: list[str] = []
    for number in range(HISTORIES):
        chance = random.Random(number)
        history = History(chance, TABLES[number % len(TABLES)])
        for _ in range(STEPS):
            history.step()
        state = (history.centres[0].state or b"").replace(OTHER_NAN, NAN)
        lines += [*history.lines, f"={state.hex()}"]
    return "\n".join(lines) + "\n"


NAN = msgspec.msgpack.encode(math.nan)
OTHER_NAN = msgspec.msgpack.encode(-math.nan)

if __name__ == "__main__":
    PLACE.parent.mkdir(parents=True, exist_ok=True)
    PLACE.write_text(histories())
