"""Commands on states: the replies and rows of a hub's own table, byte for byte."""

from __future__ import annotations

import random
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

import interlock
from interlock import SharedTable
from interlock.cluster.stamps import HybridClock
from interlock.cluster.texts import bulk, shown
from interlock.hub.resp import command
from tests import seeds
from tests.cluster.rows import OPERATIONS, Kept, Merged, Time
from tests.hub.servers import needs_hub
from tests.hub.tables import Presence, entry, new_name

COMMANDS = 2000 * OPERATIONS
NOW = 1_700_000_000_000
SLACK = 60.0
"""Seconds; times to live are set so far apart that a slow machine does not confuse them."""


class Wire:
    """A connection to a hub, of which replies are read as they are."""

    def __init__(self, port: int, *, resp3: bool) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.file = self.socket.makefile("rb")
        self.resp3 = resp3
        if resp3:
            self.ask(b"HELLO", b"3")

    def ask(self, *words: bytes) -> bytes:
        self.socket.sendall(command(*words))
        return self.reply()

    def reply(self) -> bytes:
        line = self.file.readline()
        kind, count = line[:1], line[1:-2]
        if kind == b"$" and int(count) >= 0:
            return line + self.file.read(int(count) + 2)
        parts = {b"*": 1, b"~": 1, b"%": 2}.get(kind, 0) * int(count) if kind in b"*~%" else 0
        return line + b"".join(self.reply() for _ in range(parts))

    def close(self) -> None:
        self.file.close()
        self.socket.close()


@pytest.fixture(scope="module")
def names() -> Iterator[list[str]]:
    chosen = [new_name() for _ in range(3)]
    yield chosen
    for name in chosen:
        SharedTable.remove(name)


@pytest.fixture(scope="module")
def hub(names: list[str]) -> Iterator[interlock.Hub]:
    needs_hub()
    tables = [entry(names[0]), entry(names[1], ttl=5000.0)]
    with interlock.Hub(port=0, workers=1, table=tables) as running:
        yield running


@pytest.mark.parametrize("resp3", [False, True], ids=["RESP2", "RESP3"])
@pytest.mark.parametrize("default_ttl", [None, 5_000_000], ids=["for ever", "ttl"])
def test_replies_and_rows_are_those_of_a_hubs_table(
    hub: interlock.Hub, names: list[str], resp3: bool, default_ttl: int | None
) -> None:
    name = names[1 if default_ttl else 0]
    theirs: SharedTable[Presence] = SharedTable.attach(name, Presence)
    theirs.clear()
    ours = SharedTable.open(names[2], Presence, capacity=1000, on_full="raise")
    ours.clear()
    clock = Time(0).clock("east")
    kept = Kept(ours, name=name, clock=clock, default_ttl_ms=default_ttl)
    wire = Wire(hub.port, resp3=resp3)
    seed = seeds.seed()
    script = Script(random.Random(seed), name.encode())
    replies: set[bytes] = set()
    try:
        for number in range(COMMANDS):
            words = script.command()
            before = dict(kept.states)
            reply = wire.ask(*words)
            own = kept.run(*words, now_ms=time.time_ns() // 1_000_000, resp3=resp3)
            assert own == reply, (number, words)
            if reply[:1] == b"-":
                assert kept.states == before, "an error changes nothing"
                if words[0].lower() in (b"del", b"unlink") or words[1:2] == [b"mset"]:
                    # Of several rows a hub does those before the bad one.
                    theirs.clear()
                    ours.clear()
                    kept.states.clear()
            replies.add(reply[:40])
            assert ours.to_numpy(keys="bytes").size == len(theirs), (number, words)
            for key in script.keys[:-1]:
                assert ours.get_bytes(key) == theirs.get_bytes(key), (number, words, key)
                assert_same_time(ours, theirs, key)
    finally:
        wire.close()
    assert len(replies) > 100, "the calls say little"


def assert_same_time(ours: SharedTable[Any], theirs: SharedTable[Any], key: bytes) -> None:
    if key not in ours:
        return
    times = [table.ttl(key) for table in (ours, theirs)]
    if None in times:
        assert times == [None, None], key
    else:
        assert times[0] == pytest.approx(times[1], abs=SLACK)


def test_an_error_changes_nothing_where_a_table_does_half_of_it() -> None:
    kept = alone()
    for key in "abc":
        kept.run("HSET", f"t:{key}", "unread", 1, now_ms=NOW)
    before = dict(kept.states)
    too_long = b"-ERR a key of 33 bytes; the table takes up to 32 (key_size)\r\n"
    assert kept.run("DEL", "t:a", "t:b", "t:" + "k" * 33, now_ms=NOW) == too_long
    wrong = kept.run("TABLE", "MSET", "t", 1, "unread", "a", 2, "k" * 33, 3, now_ms=NOW)
    assert wrong == too_long
    assert kept.run("DEL", "t:a", "t:", now_ms=NOW)[:4] == b"-ERR"
    assert kept.states == before
    assert kept.run("DEL", "t:a", "t:b", "t:a", now_ms=NOW) == b":2\r\n"
    # What comes later in a command sees what was before.
    assert kept.run("TABLE", "MSET", "t", 1, "unread", "c", 5, "c", 7, now_ms=NOW) == b":2\r\n"
    assert kept.run("HINCRBY", "t:c", "unread", 1, now_ms=NOW) == b":8\r\n"


def test_more_rows_than_a_call_may_name_are_refused() -> None:
    kept = alone()
    rows = [word for number in range(1001) for word in (number, 1)]
    refused = kept.run("TABLE", "MSET", "t", 1, "unread", *rows, now_ms=NOW)
    assert refused == b"-ERR more than 1000 rows in one call\r\n"
    assert kept.run("TABLE", "MSET", "t", 1, "unread", *rows[:2000], now_ms=NOW) == b":1000\r\n"


@pytest.mark.parametrize(
    ("words", "reply"),
    [
        ((), b"-ERR unknown command ''\r\n"),
        (("GET", "t:a"), b"-ERR unknown command 'get'\r\n"),
        (("TABLE",), b"-ERR unknown command 'table'\r\n"),
        (("HSET", "t:a", "unread"), b"-ERR wrong number of arguments for 'hset' command\r\n"),
        (("TABLE", "CAS", "t:a"), b"-ERR wrong number of arguments for 'table|cas' command\r\n"),
    ],
)
def test_a_call_that_a_hub_would_not_pass_on_is_an_error(
    words: tuple[str, ...], reply: bytes
) -> None:
    assert alone().run(*words, now_ms=NOW) == reply


def test_replies_for_columns_that_merge_are_what_they_show() -> None:
    kept = alone(Merged)
    for words, reply in (
        (("HSET", "t:k", "unread", 5, "seen", 100, "devices", 3), b":3\r\n"),
        (("HINCRBY", "t:k", "unread", 2), b":7\r\n"),
        (("HINCRBY", "t:k", "unread", -8), b"-ERR increment or decrement would overflow\r\n"),
        (("TABLE", "INCR", "t:k", "unread", -8, "SATURATE"), b":0\r\n"),
        (("TABLE", "INCR", "t:k", "unread", -1, "WRAP"), b":4294967295\r\n"),
        (("HINCRBYFLOAT", "t:k", "score", 0.5), b"$3\r\n0.5\r\n"),
        (("HINCRBYFLOAT", "t:k", "score", 0.25), b"$4\r\n0.75\r\n"),
        # A maximum never falls.
        (("HSET", "t:k", "seen", 50), b":0\r\n"),
        (("HINCRBY", "t:k", "seen", 1), b":101\r\n"),
        (("HINCRBY", "t:k", "seen", -50), b":101\r\n"),
        (("TABLE", "CAS", "t:k", "seen", 101, 7), b":1\r\n"),
        (("TABLE", "CAS", "t:k", "seen", 7, 8), b":0\r\n"),
        (("HINCRBY", "t:k", "devices", 8), b":11\r\n"),
        (("HSET", "t:k", "devices", 6), b":0\r\n"),
        (("HINCRBY", "t:k", "devices", -2), b":4\r\n"),
        (("TABLE", "POP", "t:k"), None),
        (("HINCRBY", "t:k", "seen", 3), b":3\r\n"),
        (("HINCRBY", "t:k", "unread", 3), b":3\r\n"),
    ):
        found = kept.run(*words, now_ms=NOW)
        assert reply is None or found == reply, words
    assert kept.table["k"] == Merged(unread=3, seen=3)


def test_a_clock_that_is_behind_writes_all_the_same() -> None:
    """A join moves it on; else a write would be answered, and change nothing."""
    kept, other = alone(), HybridClock("west", lambda: NOW + 60_000)
    column = kept.rules.columns[2]
    made = kept.rules.created(None, [(column, 9)], other.next(), NOW, 0)
    kept.states[b"k"] = kept.rules.join(None, made)
    assert kept.run("HINCRBY", "t:k", "unread", 1, now_ms=NOW) == b":10\r\n"
    assert kept.table["k"].unread == 10
    assert kept.run("DEL", "t:k", now_ms=NOW) == b":1\r\n"
    assert kept.run("HINCRBY", "t:k", "unread", 1, now_ms=NOW) == b":1\r\n"


def alone(row: type[Any] = Presence) -> Kept:
    """A table that ends with its handle."""
    name = new_name()
    table = SharedTable.open(name, row, capacity=2000, on_full="raise")
    SharedTable.remove(name)
    return Kept(table, name="t", clock=Time(NOW).clock("east"))


def test_floats_are_shown_as_a_table_shows_them(hub: interlock.Hub, names: list[str]) -> None:
    """Also those that have two texts which are as short, and as near."""
    chance = random.Random(seeds.seed())
    numbers = [0.0, -0.0, 1e16, 1e15, 1e-5, 1e-4, 5e-324, 1.7976931348623157e308, 1e22, 2.0**70]
    for _ in range(2000 * OPERATIONS):
        numbers.append(struct.unpack("<d", chance.randbytes(8))[0])
        # Quarters between 2**49 and 2**51, and large whole numbers, are often ties.
        numbers.append(chance.randrange(2**51, 2**53) / 4)
        numbers.append(-chance.randrange(2**53, 2**54) * 2.0 ** chance.randrange(12))
    wire = Wire(hub.port, resp3=False)
    key = f"{names[0]}:float".encode()
    for number in numbers:
        assert wire.ask(b"HSET", key, b"score", repr(number).encode())[:1] == b":"
        assert wire.ask(b"HGET", key, b"score") == bulk(shown(number)), number.hex()
    wire.close()


class Script:
    """Random commands on a few rows, most of them sensible, some as bad as can be."""

    def __init__(self, chance: random.Random, table: bytes) -> None:
        self.chance = chance
        self.table = table
        self.keys = [b"a", b"b", b"\xff\0:", b"k" * 32, b"7", b""]
        self.spans = 0

    def command(self) -> list[bytes]:
        chance = self.chance
        words = self.sensible()
        if chance.random() < 0.04:
            words = chance.choice([words[:-1], [*words, self.text()], []])
        if len(words) > 1 and chance.random() < 0.04:
            words[chance.randrange(1, len(words))] = self.text()
        # Without its name, or with that of a command that is not for a table, it is no such call;
        # and a time to live that is soon over would be over here or there first.
        soon = any(word.isdigit() and 0 < int(word[:20]) < 10**5 for word in words[2:5])
        expires = words and (words[0].lower().endswith((b"expire", b"at")) or b"set" in words[1:2])
        return words if self.is_ours(words) and not (soon and expires) else [b"HSET", b"x"]

    def is_ours(self, words: list[bytes]) -> bool:
        if not words or words[0].lower() not in NAMES:
            return False
        return words[0].lower() != b"table" or (len(words) > 1 and words[1].lower() in OF_TABLE)

    def sensible(self) -> list[bytes]:
        chance, key = self.chance, self.key()
        name = chance.choice(sorted(NAMES - {b"table"}) + [b"table"] * 8)
        if chance.random() < 0.2:
            name = name.upper()
        match name.lower():
            case b"hset" | b"hmset":
                return [name, key, *self.pairs()]
            case b"hsetnx":
                return [name, key, *self.pair()]
            case b"hincrby" | b"hincrbyfloat":
                return [name, key, self.column(), self.number()]
            case b"hdel":
                return [name, key, self.column(), *self.some(self.column)]
            case b"del" | b"unlink":
                return [name, *self.some(self.key), key]
            case b"persist":
                return [name, key]
            case b"table":
                return [name, *self.of_table(key)]
            case expiring:
                return [name, key, self.time(expiring), *self.some(self.condition)]

    def of_table(self, key: bytes) -> list[bytes]:
        chance = self.chance
        match name := chance.choice(sorted(OF_TABLE)):
            case b"set":
                only = chance.choice([b"ANY", b"any", b"NX", b"XX"])
                ttl = chance.choice([b"DEFAULT", b"never", b"0", b"-1", b"%d" % self.span()])
                return [name, key, only, ttl, *(self.pairs() if chance.random() < 0.9 else [])]
            case b"mset":
                columns = [self.column() for _ in range(chance.randrange(1, 4))]
                rows = [
                    word
                    for _ in range(chance.randrange(1, 4))
                    for word in [self.short_key(0.02), *(self.value(column) for column in columns)]
                ]
                return [name, self.table, b"%d" % len(columns), *columns, *rows]
            case b"patch":
                return [name, key, *self.pairs()]
            case b"incr":
                how = self.some(lambda: chance.choice([b"WRAP", b"saturate", b"wrap", b"", b"x"]))
                return [name, key, self.column(), self.number(), *how]
            case b"cas":
                column = self.column()
                return [name, key, column, self.value(column), self.value(column)]
        return [name, key]

    def some(self, make: Any) -> list[bytes]:
        return [make() for _ in range(self.chance.choice([0, 0, 0, 1, 1, 2]))]

    def key(self) -> bytes:
        return self.table + b":" + self.short_key(0.02)

    def short_key(self, bad: float = 0.0) -> bytes:
        if self.chance.random() < bad:
            return self.chance.choice([b"", b"k" * 33])
        return self.chance.choice(self.keys[:-1])

    def column(self) -> bytes:
        if self.chance.random() < 0.03:
            return self.chance.choice([b"nope", b"", b"\xff\r\n", b"UNREAD"])
        return self.chance.choice(COLUMNS)

    def pair(self) -> list[bytes]:
        column = self.column()
        return [column, self.value(column)]

    def pairs(self) -> list[bytes]:
        return [word for _ in range(self.chance.choice([1, 1, 2, 3, 9])) for word in self.pair()]

    def value(self, column: bytes) -> bytes:
        if self.chance.random() < 0.06:
            return self.text()
        match column:
            case b"token":
                return self.chance.choice([b"", b"abc", "tök".encode(), b"12345678", b"a\0b"])
            case b"raw":
                return self.chance.choice([b"", b"\0\xff:", b"abcd", b"\r\n"])
            case b"background":
                return self.chance.choice([b"0", b"1"])
            case b"score" | b"narrow":
                return self.number(0.2)
        return b"%d" % self.chance.choice([0, 1, 7, 100, 127, self.chance.randrange(2**7)])

    def number(self, whole: float = 0.7) -> bytes:
        chance = self.chance
        if chance.random() < whole:
            small = chance.randrange(-9, 10)
            return b"%d" % chance.choice(
                [small, small, 2**31, 2**63 - 1, -(2**63), 2**64, -(2**70)]
            )
        exponent = chance.choice([0, 0, 0, 5, 15, 17, 38, 39, 300, 308, -4, -5, -7, -40, -320])
        number = chance.uniform(-10, 10) * 10.0**exponent
        return chance.choice([
            repr(number).encode(), b"%.17g" % number, b"%.3f" % chance.uniform(-5, 5),
            b"nan", b"inf", b"-inf", b"Infinity", b"-0", b"-0.0", b"1e400", b".5", b"5.", b"1E+3",
        ])  # fmt: skip

    def text(self) -> bytes:
        return self.chance.choice([
            b"", b" ", b"x", b"-", b"+1", b"01", b"-0", b"1 ", b"1_0", b"0x1", b"\xff", b"\r\n",
            b".", b"e5", b"1e", b"+.5", b"true", b"9" * 50, b"-" + b"9" * 50,
            b"1" + b"0" * 20, b"x" * 40,
            b"nan", b"+inf", b"2", b"1.0", b"123456789", b"18446744073709551615", b"-129", b"256",
            "\uff11".encode(), b"k", b"none:k", b":", self.table, self.table + b":",
            self.table + b"x:k", b"y" * 300 + b":k",
        ])  # fmt: skip

    def condition(self) -> bytes:
        return self.chance.choice([b"NX", b"xx", b"GT", b"lt", b"LT", b"YY\n"])

    def span(self) -> int:
        """ms to live: none twice, none near another or near now."""
        self.spans += 1
        return (self.spans * 7919 % 100_003 + 1) * 1_000_000

    def time(self, name: bytes) -> bytes:
        if self.chance.random() < 0.1:
            return self.chance.choice([b"x", b"-1", b"0", b"%d" % 2**62, b"%d" % (2**63 - 1)])
        ms = self.span() + (int(time.time() * 1000) if name.lower().endswith(b"at") else 0)
        return b"%d" % (ms if name.lower().startswith(b"p") else ms // 1000)


COLUMNS = [column.encode() for column in Presence.__struct_fields__]
OF_TABLE = {b"set", b"mset", b"patch", b"incr", b"cas", b"pop"}
NAMES = {
    *(b"hset", b"hmset", b"hsetnx", b"hincrby", b"hincrbyfloat", b"hdel", b"del", b"unlink"),
    *(b"expire", b"pexpire", b"expireat", b"pexpireat", b"persist", b"table"),
}
