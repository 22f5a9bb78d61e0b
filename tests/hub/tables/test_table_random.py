"""Random commands on rows, of a hub and of Redis: the same bytes come back.

A row has all its columns, each of its type, so a hash in Redis is made with all of them, in their
order. Omitted commands are in the last table of docs/reference/hub-commands.md.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import interlock
from interlock import SharedTable
from interlock.hub.resp import command
from tests import seeds
from tests.hub.protocol.wire import Exchange, Step, differences, play
from tests.hub.servers import REDIS_VERSION, needs_hub, version_of
from tests.hub.tables.tables import new_name

TALKS = 60
STEPS = 40
COLUMNS = ("a", "b", "f", "s")
DECLARED = "a: I64, b: I64, f: F64, s: bytes[40]"
FAR = 16_725_225_600
"""Seconds since 1970, of the year 2500. The remaining time differs between servers, the time itself
does not."""


def talk(seed: int, table: str) -> Exchange:
    """A talk; each step is a command on one of two rows, most of them sensible."""
    chance = random.Random(seed)
    choice = chance.choice

    def key() -> str:
        return f"{table}:{choice('xy')}"

    def made(row: str) -> bytes:
        values = [str(choice([0, 7, -3])), "5", str(choice([0, 1.5, -2])), choice(["", "z", "é"])]
        return command(
            "HSET", row, *(word for pair in zip(COLUMNS, values, strict=True) for word in pair)
        )

    def number() -> str:
        return choice(["1", "-1", "0", "007", "x", "", " 1", "1.5", "9223372036854775807", "+2"])

    def fraction() -> str:
        return choice(["0.5", "-1.25", "3", "1e3", "2.5e-1", "x", "", " 1", "1 ", "inf", "nan"])

    def seconds() -> str:
        return choice(["0", "-5", "x", "9223372036854775", "9223372036854775807"])

    def when() -> list[str]:
        return choice([[], [], ["NX"], ["XX"], ["GT"], ["LT"], ["NX", "GT"], ["gt", "lt"], ["?"]])

    def at(unit: int) -> str:
        return choice([str((FAR + chance.randrange(99)) * unit), "1", "-1", "x"])

    def scan() -> list[str]:
        more = choice(
            [[], [], ["MATCH", choice(["*", "a", "[ab]", "z"])], ["COUNT", number()], ["?"]]
        )
        return [choice(["0", "0", "7", "-1", "x"]), *more]

    column = ["a", "b", "f", "s"]
    ways: list[Callable[[], list[str]]] = [
        lambda: ["HGET", key(), choice(column)],
        lambda: ["HMGET", key(), *chance.choices(column, k=chance.randrange(1, 4))],
        lambda: ["HGETALL", key()],
        lambda: ["HKEYS", key()],
        lambda: ["HVALS", key()],
        lambda: ["HLEN", key()],
        lambda: ["HEXISTS", key(), choice(column)],
        lambda: ["HSTRLEN", key(), choice(column)],
        lambda: ["HSCAN", key(), *scan()],
        lambda: ["EXISTS", *[key() for _ in range(choice([1, 1, 2]))]],
        lambda: ["TOUCH", key(), key()],
        lambda: ["TYPE", key()],
        lambda: ["DEL", key()],
        lambda: ["UNLINK", key(), key()],
        lambda: ["PERSIST", key()],
        lambda: ["EXPIRETIME", key()],
        lambda: ["EXPIRE", key(), seconds(), *when()],
        lambda: ["PEXPIRE", key(), choice(["0", "-1", "x", "9223372036854775807"]), *when()],
        lambda: ["EXPIREAT", key(), at(1), *when()],
        lambda: ["PEXPIREAT", key(), at(1000), *when()],
        lambda: ["HGET", key()],
        lambda: ["TTL"],
        lambda: ["EXPIRETIME", key(), "x"],
    ]
    # A command that would create a row with only some columns is sent after one that creates all of
    # them.
    wholly: list[Callable[[str], list[str]]] = [
        lambda row: ["HSET", row, choice(["a", "b"]), str(chance.randrange(-9, 9))],
        lambda row: ["HSET", row, "s", choice(["", "text", "\r\n"]), "s", "again"],
        lambda row: ["HSET", row, "a"],
        lambda row: ["HMSET", row, "b", "4"],
        lambda row: ["HSETNX", row, choice(column), "1"],
        lambda row: ["HINCRBY", row, choice(["a", "b"]), number()],
        lambda row: ["HINCRBYFLOAT", row, "f", fraction()],
        lambda row: ["EXPIRETIME", row],
        lambda row: ["PEXPIREAT", row, at(1000), *when()],
    ]
    steps = []
    for _ in range(STEPS):
        if chance.random() < 0.4:
            row = key()
            steps.append(Step(made(row) + command(*choice(wholly)(row))))
        else:
            steps.append(Step(command(*choice(ways)())))
    if chance.random() < 0.5:
        steps.insert(0, Step(command("HELLO", 3)))
    return Exchange(f"seed {seed}", [Step(command("DEL", f"{table}:x", f"{table}:y")), *steps],
                    ("version", "id"))  # fmt: skip


@pytest.mark.watchdog(120)
def test_random_commands_on_rows_have_the_same_answers(redis_port: int) -> None:
    needs_hub()
    if version_of(redis_port) != REDIS_VERSION:
        pytest.skip(f"Redis is not {REDIS_VERSION}")
    first, name = seeds.seed(), new_name()
    try:
        with interlock.Hub(
            port=0, workers=1, table=[{"name": name, "columns": DECLARED, "capacity": 100}]
        ) as hub:
            for seed in range(first, first + TALKS):
                exchange = talk(seed, name)
                expected = play(redis_port, exchange)
                found = list(differences(exchange, expected, play(hub.port, exchange)))
                asked = "\n".join(f"  {at}: {one.data!r}" for at, one in enumerate(exchange.steps))
                assert not found, f"seed {seed}\n{asked}\n" + "\n".join(found)
    finally:
        SharedTable.remove(name)
