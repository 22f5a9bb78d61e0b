"""Random commands on a few rows, most of them sensible, some as bad as can be."""

from __future__ import annotations

import random
from typing import Any

from tests.hub.tables.tables import Presence


class Script:
    """Random commands on a few rows, most of them sensible, some as bad as can be."""

    def __init__(self, chance: random.Random, table: bytes) -> None:
        self.chance = chance
        self.table = table
        self.keys = [b"a", b"b", b"\xff\0:", b"k" * 32, b"7", b""]
        self.now = 1_700_000_000_000
        self.spans = 0

    def command(self) -> list[bytes]:
        chance = self.chance
        words = self.sensible()
        if chance.random() < 0.04:
            words = chance.choice([words[:-1], [*words, self.text()], []])
        if len(words) > 1 and chance.random() < 0.04:
            words[chance.randrange(1, len(words))] = self.text()
        # Without its name, or with that of a command that is not for a table, it is not such a
        # call; and a time to live that is soon over would be over here or there first.
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
        ms = self.span() + (self.now if name.lower().endswith(b"at") else 0)
        return b"%d" % (ms if name.lower().startswith(b"p") else ms // 1000)


COLUMNS = [column.encode() for column in Presence.__struct_fields__]
OF_TABLE = {b"set", b"mset", b"patch", b"incr", b"cas", b"pop"}
NAMES = {
    *(b"hset", b"hmset", b"hsetnx", b"hincrby", b"hincrbyfloat", b"hdel", b"del", b"unlink"),
    *(b"expire", b"pexpire", b"expireat", b"pexpireat", b"persist", b"table"),
}
