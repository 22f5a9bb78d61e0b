"""The library on a clock that the test sets, under a wire version of its own."""

from __future__ import annotations

from functools import cache

import redis

from interlock.client.lua.library import Library
from tests.engine.calls import Queue

WIRE = 99
START = 1_000_000_000_000_000
# Instead of the server's clock: a key of the queue.
CLOCK = "local function now_of(q) return tonumber(redis.call('GET', q.clock)) end"


@cache
def timed_library() -> Library:
    return Library(WIRE, instead={"clock": CLOCK})


class TimedQueue(Queue):
    """A queue with a given time."""

    def __init__(self, connection: redis.Redis, name: str) -> None:
        timed_library().load(connection)
        super().__init__(connection, name, wire=WIRE)
        self.at(0)

    def at(self, time: int) -> None:
        """This many µs after the start."""
        self.connection.set(f"{self.key}:clock", START + time)
