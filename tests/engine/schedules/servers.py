"""A hub and a Redis on a time that the test sets, asked the calls of a schedule over the wire.

The hub has one clock for all its queues, so a schedule begins when the one before it ended. Where
time passes, the hub has answered all that was asked before. Redis reads the time of a queue from a
key: it is sent a whole schedule at once, and works on it while the hub is asked and while the next
schedule is made.
"""

from __future__ import annotations

import datetime as dt
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

import redis

import interlock
from interlock.testing import ManualClock
from tests.engine.schedules.director import Call
from tests.engine.schedules.forms import DONE, Replies, command, on_hub, on_redis
from tests.engine.timed import START, timed_library
from tests.hub.servers import needs_hub, redis_server

SECONDS = 30
"""After which a server that does not answer is broken."""
# Nothing else is on this Redis, so KEYS is quick; what it finds goes.
LEFT_OVER = """local found = redis.call('KEYS', ARGV[1])
if #found > 0 then redis.call('DEL', unpack(found)) end
return found"""


@dataclass
class Asked:
    """A schedule of which the hub has answered all, and Redis what it has come to.

    Where the time falls, the hub is not asked: its own never does.
    """

    calls: list[Call]
    key: str
    hub: Replies | None


class Servers:
    """Both, with a connection to each."""

    def __init__(self, clock: ManualClock, hub_port: int, redis_port: int) -> None:
        self.now = START
        """µs; the clock is at it, and at no other time."""
        self._clock = clock
        self._hub = socket.create_connection(("127.0.0.1", hub_port), SECONDS)
        self._redis = socket.create_connection(("127.0.0.1", redis_port), SECONDS)
        for one in (self._hub, self._redis):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._hub.close()
        self._redis.close()

    def advance(self, until: int) -> None:
        self._clock.advance(dt.timedelta(microseconds=until - self.now))
        self.now = until

    def ask(self, calls: list[Call]) -> Asked:
        """The calls begin at or after `now`."""
        key = f"il:{{{uuid.uuid4().hex}}}"
        text = []
        now = 0
        for call in calls:
            if call.now != now:
                now = call.now
                text.append(command("SET", f"{key}:clock", str(now)))
            text.append(on_redis(call, key))
        text.append(command("EVAL", LEFT_OVER, "0", f"{key}:*"))
        text.append("PING\r\n")
        self._redis.sendall("".join(text).encode("latin-1"))
        times = [self.now, *[call.now for call in calls]]
        if any(time < before for before, time in pairwise(times)):
            return Asked(calls, key, None)
        told = []
        for at, some in groupby(calls, key=lambda call: call.now):
            self.advance(at)
            said = "".join([on_hub(call, key) for call in some])
            self._hub.sendall(f"{said}PING\r\n".encode("latin-1"))
            told.append(_all_of(self._hub))
        return Asked(calls, key, Replies(b"".join(told)))

    def answered(self) -> Replies:
        """All that Redis says to what was asked last and not yet read."""
        return Replies(_all_of(self._redis))


def _all_of(connection: socket.socket) -> bytes:
    found = bytearray()
    while not found.endswith(DONE):
        some = connection.recv(1 << 20)
        if not some:
            raise ConnectionError(f"closed after {bytes(found[-1000:])!r}")
        found += some
    return bytes(found[: -len(DONE)])


@contextmanager
def both(redis_port: int) -> Iterator[Servers]:
    """A hub of its own, and this Redis, which gets the library."""
    needs_hub()
    with redis.Redis(port=redis_port) as connection:
        timed_library().load(connection)
    hub = interlock.Hub(port=0, workers=1)
    clock = hub._clock = ManualClock(START // 1_000_000)
    with hub as running:
        servers = Servers(clock, int(running.addresses[0].rpartition(":")[2]), redis_port)
        try:
            yield servers
        finally:
            servers.close()


@contextmanager
def servers_in(folder: Path) -> Iterator[Servers]:
    """A hub and a Redis of their own."""
    with redis_server(folder) as (_, port), both(port) as opened:
        yield opened
