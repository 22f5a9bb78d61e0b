"""Calls of wire version 1 for the tests: arguments put together, replies taken apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import redis

LONG = 60_000_000
"""A lease that does not run out while a test runs, in µs."""

Argument = str | bytes | int


@dataclass(frozen=True)
class Handed:
    """A message as a lease hands it out."""

    token: str
    id: str
    sequence: str
    attempt: int
    payload: str
    exclusive: tuple[str, ...]
    shared: tuple[str, ...]
    rides: bool
    """It waits for the message before it, with which it is leased."""

    def ack(self) -> list[Argument]:
        return ["ACK", self.token, self.id]

    def nack(self, delay: int = 0, error: str = "broken") -> list[Argument]:
        return ["NACK", self.token, self.id, delay, error]

    def reject(self, reason: str = "bad") -> list[Argument]:
        return ["REJECT", self.token, self.id, reason]

    def exhaust(self, error: str = "useless") -> list[Argument]:
        return ["EXHAUST", self.token, self.id, error]

    def release(self) -> list[Argument]:
        return ["RELEASE", self.token, self.id]


@dataclass(frozen=True)
class Leased:
    """The answer to a call to lease."""

    token: str
    deadline: str
    next: str
    messages: list[Handed]


def message(
    payload: str | bytes,
    keys: Sequence[str | bytes] = (),
    shared: Sequence[str | bytes] = (),
    **options: Argument,
) -> list[Argument]:
    pairs: list[Argument] = []
    for name, value in options.items():
        pairs += [name.upper(), value]
    return [payload, len(keys), len(shared), len(options), *keys, *shared, *pairs]


def leased(reply: Sequence[str]) -> Leased:
    token, deadline, next_due, count = reply[:4]
    messages = []
    at = 4
    for _ in range(int(count)):
        id, sequence, attempt, payload, exclusive, shared = reply[at : at + 6]
        middle = at + 6 + int(exclusive)
        end = middle + int(shared)
        keys, readers = tuple(reply[at + 6 : middle]), tuple(reply[middle:end])
        rides = attempt.startswith("+")
        number = int(attempt.removeprefix("+"))
        one = Handed(token, id, sequence or id, number, payload, keys, readers, rides)
        messages.append(one)
        at = end
    assert at == len(reply)
    return Leased(token, deadline, next_due, messages)


class Queue:
    """A queue on a server, and one consumer of it whose calls need not be repeated."""

    def __init__(
        self, connection: redis.Redis, name: str = "q", consumer: str = "c", wire: int = 1
    ) -> None:
        self.connection = connection
        self.wire = wire
        self.key = f"il:{{{name}}}"
        self.consumer = consumer

    def call(self, name: str, *arguments: Argument) -> list[str]:
        """A call as it is; the reply with its strings decoded."""
        reply: Any = self.connection.fcall(f"il{self.wire}_{name}", 1, self.key, *arguments)
        return [part.decode("utf-8", "surrogateescape") for part in reply]

    def put(self, *messages: list[Argument]) -> list[str]:
        """The ids."""
        flat = [part for one in messages for part in one]
        return self.call("put", self.consumer, 0, 0, *flat)[::2]

    def lease(self, count: int = 100, duration: int = LONG, kind: str = "any") -> Leased:
        return leased(self.call("lease", self.consumer, 0, 0, count, duration, kind))

    def payloads(self, count: int = 100) -> list[str]:
        return [one.payload for one in self.lease(count).messages]

    def settle(self, *settlements: list[Argument]) -> list[str]:
        flat = [part for one in settlements for part in one]
        return self.call("settle", self.consumer, 0, *flat)

    def ack_all(self, messages: Iterable[Handed]) -> None:
        assert set(self.settle(*[one.ack() for one in messages])) == {"ACKED"}

    def stats(self) -> dict[str, int]:
        reply = self.call("stats")
        return {name: int(count) for name, count in zip(reply[::2], reply[1::2], strict=True)}

    def parts(self) -> set[str]:
        """The parts that the queue has on the server: see `parts_of()`."""
        return parts_of(self.connection, self.key)


FIELDS = {"m": "mark", "t": "lease", "k": "reply", "n": "newest"}
"""Fields of the hash c, by the first letter."""


def parts_of(connection: redis.Redis, key: str) -> set[str]:
    """The names of a queue's keys without what they have in common.

    And `c.mark`, for instance, where the hash c has anything of that kind besides the counters.
    """
    found: Any = connection.keys(f"{key}:*")
    parts = {name.decode()[len(key) + 1 :] for name in found}
    fields: Any = connection.hkeys(f"{key}:c")
    for field in fields:
        if field[0] <= 4:
            parts.add("c.lane")
        elif field[:1].isdigit():
            parts.add("c.place")
        elif field not in (b"c", b"d"):
            parts.add("c." + FIELDS[field[:1].decode()])
    return parts


def commands_of(queue: Queue, call: Callable[[], object]) -> int:
    """Return the number of commands that the server executes for a call."""

    def count() -> int:
        found: Any = queue.connection.info("commandstats")
        own = ("cmdstat_info", "cmdstat_fcall")
        return sum(one["calls"] for name, one in found.items() if not name.startswith(own))

    before = count()
    call()
    return count() - before
