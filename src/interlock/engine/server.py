"""The functions of a server, called as an operator calls them, over a client's connections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from interlock.engine import records
from interlock.engine.flow import Argument, Ask, Broken, Flow, Refused
from interlock.errors import EngineUnavailable, InterlockError

if TYPE_CHECKING:
    from interlock.engine.client import Client
    from interlock.engine.seat import Seat


class Server:
    """What `Operator` asks, of the engine that a client is connected to."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._engine = client._engine
        self.is_local = client._engine.target.kind == "memory"

    def call(self, function: str, queue: str, *arguments: Argument) -> Sequence[bytes]:
        """Calls `il1_` and `function` on a queue; asked again if the reply is lost."""
        return self._client._run(
            lambda seat: self._engine.call(seat, function, key(queue), *arguments)
        )

    def numbered(self, function: str, queue: str, *arguments: Argument) -> Sequence[bytes]:
        """The same for a function that takes a consumer and the number of its call: it is done
        once, however often it is asked."""

        def flow(seat: Seat[Any]) -> Flow[list[bytes]]:
            caller = (seat.consumer, seat.number())
            return (yield from self._engine.call(seat, function, key(queue), *caller, *arguments))

        return self._client._run(flow)

    def queues(self) -> list[bytes]:
        """The names of all queues."""
        return self._client._run(self._queues)

    def remove(self, queue: str) -> None:
        """Drops what is left of a queue that nobody uses any more, where the server keeps more
        of it than its messages."""
        self._client._run(lambda seat: self._remove(seat, queue))

    def _queues(self, seat: Seat[Any]) -> Flow[list[bytes]]:
        names: list[bytes] = []
        try:
            primaries = yield from self._engine.nodes.primaries(seat, TIMEOUT)
        except (Broken, Refused) as error:
            kind = EngineUnavailable if isinstance(error, Broken) else InterlockError
            raise kind(f"{self._engine.target.shown}: {error}") from None
        for address in primaries:
            features = yield from _features(address)
            if "queues-cursor" in features:
                cursor = b"0"
                while True:
                    cursor, *some = yield from _asked(address, "FCALL", "il1_queues", 0, cursor)
                    names += some
                    if cursor == b"0":
                        return names
            if "queues" in features:
                names += yield from _asked(address, "FCALL", "il1_queues", 0)
                return names
            for found in (yield from _scanned(address, "il:{*}:c")):
                name = found.removeprefix(b"il:{").removesuffix(b"}:c")
                if b"{" not in name and b"}" not in name:
                    names.append(name)
        return names

    def _remove(self, seat: Seat[Any], queue: str) -> Flow[None]:
        address = yield from self._engine.nodes.of(key(queue), seat, TIMEOUT)
        if "queues" not in (yield from _features(address)):
            keys = yield from _scanned(address, f"{key(queue)}:*")
            if keys:
                yield from _asked(address, "UNLINK", *keys)


def _features(address: str) -> Flow[frozenset[str]]:
    """What the server says of itself; with `queues` it has its queues by name, and not among the
    keys of others."""
    try:
        reply = yield Ask(address, ("FCALL", "il1_version", 0), TIMEOUT)
    except Refused as error:
        # A Redis that no client has given the library yet, and so has no queues.
        if "Function not found" in str(error):
            return frozenset()
        raise InterlockError(f"{address}: {error}") from None
    except Broken as error:
        raise EngineUnavailable(f"{address}: {error}") from None
    return records.version(reply).features


def _scanned(address: str, pattern: str) -> Flow[list[bytes]]:
    cursor: bytes | int = 0
    found: list[bytes] = []
    while True:
        command = ("SCAN", cursor, "MATCH", pattern, "COUNT", PAGE)
        cursor, keys = yield from _asked(address, *command)
        found += keys
        if cursor == b"0":
            return found


def _asked(address: str, *command: Argument) -> Flow[Any]:
    try:
        return (yield Ask(address, command, TIMEOUT))
    except Refused as error:
        raise InterlockError(f"{address}: {error}") from None
    except Broken as error:
        raise EngineUnavailable(f"{address}: {error}") from None


def key(queue: str) -> str:
    """The key by which functions take a queue."""
    return f"il:{{{queue}}}"


PAGE = 512
TIMEOUT = 10.0
