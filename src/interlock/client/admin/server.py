"""The functions of a server, called as an operator calls them, over a client's connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from interlock.client.connection import refusals, server_settings
from interlock.client.connection.server_settings import Finding
from interlock.client.request import Argument, Ask, AskAll, Broken, Nap, Refused, Request
from interlock.client.wire import admin as wire_queue
from interlock.client.wire.records import Version
from interlock.errors import EngineUnavailable, InterlockError

if TYPE_CHECKING:
    from interlock.client.connection.call import Engine
    from interlock.client.faces.client import Client
    from interlock.client.session import Session

P = ParamSpec("P")
R = TypeVar("R")
Make = Callable[Concatenate[wire_queue.Call, P], Request[R]]
Numbered = Callable[Concatenate["Engine", "Session[Any]", str, P], Request[R]]
Installed = tuple[str, str, str]
"""The address of a server, the release of its library, and the action; see `Operator.install`."""


class Requests:
    """Requests to an engine that concern more than one queue, for both faces."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def _primaries(self, session: Session[Any]) -> Request[list[str]]:
        try:
            return (yield from self._engine.nodes.primaries(session, TIMEOUT))
        except (Broken, Refused) as error:
            raise _failed(self._engine.target.shown, error) from None

    def all_queues(self, session: Session[Any]) -> Request[list[bytes]]:
        """Return the names of all queues."""
        names: list[bytes] = []
        patience = self._engine.target.timeout
        for address in (yield from self._primaries(session)):
            features = yield from _features(address, patience)
            if "queues-cursor" in features:
                cursor = b"0"
                while True:
                    asked = ("FCALL", "il1_queues", 0, cursor)
                    cursor, some = wire_queue.names((yield from _asked(address, patience, *asked)))
                    names += some
                    if cursor == b"0":
                        return names
            if "queues" in features:
                names += yield from _asked(address, patience, "FCALL", "il1_queues", 0)
                return names
            for found in (yield from _scanned(address, patience, "il:{*}:c")):
                name = found.removeprefix(b"il:{").removesuffix(b"}:c")
                if b"{" not in name and b"}" not in name:
                    names.append(name)
        return names


class Server(Requests):
    """The engine that a client is connected to, as an `Operator` uses it."""

    def __init__(self, client: Client) -> None:
        super().__init__(client._engine)
        self._client = client
        self.shown = client.url
        self.is_local = client._engine.target.kind == "memory"

    def call(self, queue: str, make: Make[P, R], *arguments: P.args, **named: P.kwargs) -> R:
        """Run a request of `wire_queue` on a queue."""

        def request(session: Session[Any]) -> Request[R]:
            return make(self._engine.calls(session, key(queue)), *arguments, **named)

        return self._client._sessions.run(None, request)

    def finds_front(self, queue: str) -> bool:
        """Return whether the server finds the messages with the smallest ids."""
        if not self._engine.servers and not self.is_local:
            # The first call learns it.
            self.call(queue, wire_queue.lease_token, 1)
        return self._engine.finds_front

    def call_each(
        self, function: str, queues: Sequence[str], *arguments: Argument
    ) -> list[list[bytes] | Refused]:
        """Call a function that only reads on many queues, many in one round trip.

        Return the reply for each queue, in their order, or the error in its place.
        """
        return self._client._sessions.run(None, self._call_each, function, queues, *arguments)

    def numbered(
        self, queue: str, make: Numbered[P, R], *arguments: P.args, **named: P.kwargs
    ) -> R:
        """Run a request of `wire` on a queue."""

        def request(session: Session[Any]) -> Request[R]:
            return make(self._engine, session, key(queue), *arguments, **named)

        return self._client._sessions.run(None, request)

    def queues(self) -> list[bytes]:
        """Return the names of all queues."""
        return self._client._sessions.run(None, self.all_queues)

    def remove(self, queue: str) -> None:
        """Drop the remains of a queue that is no longer used.

        Only a server that keeps more of a queue than its messages has any.
        """
        self._client._sessions.run(None, self._remove, queue)

    def install(self, replace: bool) -> list[Installed]:
        """Install the library of functions on each server; see `Operator.install`."""
        if self.is_local:
            return [(self._engine.target.shown, self._engine.library.release, "built-in")]
        return self._client._sessions.run(None, self._install, replace)

    def settings(self) -> list[tuple[str, list[Finding] | str]]:
        """Return the settings of each server; see `Operator.settings`."""
        if self.is_local:
            return [(self._engine.target.shown, [])]
        return self._client._sessions.run(None, self._settings)

    def _call_each(
        self, session: Session[Any], function: str, queues: Sequence[str], *arguments: Argument
    ) -> Request[list[list[bytes] | Refused]]:
        nodes, patience = self._engine.nodes, self._engine.target.timeout
        places: dict[str, list[int]] = {}
        for place, queue in enumerate(queues):
            address = yield from nodes.of(key(queue), session, patience)
            places.setdefault(address, []).append(place)
        found: list[list[bytes] | Refused] = [_NONE] * len(queues)
        for address, some in places.items():
            for start in range(0, len(some), MANY):
                part = some[start : start + MANY]
                commands = tuple(
                    ("FCALL", f"il1_{function}", 1, key(queues[place]), *arguments)
                    for place in part
                )
                try:
                    replies = yield from _asked_all(address, patience, commands)
                except EngineUnavailable:
                    nodes.doubt()
                    raise
                for place, reply in zip(part, replies, strict=True):
                    found[place] = reply
        return found

    def _install(self, session: Session[Any], replace: bool) -> Request[list[Installed]]:
        library, patience = self._engine.library, self._engine.target.timeout
        done = []
        for address in (yield from self._primaries(session)):
            found = yield from _version(address, patience)
            if found is not None and "parks" in found.features:
                done.append((address, found.library, "built-in"))
            elif found is not None and found.library == library.hash:
                done.append((address, found.release_text or library.release, "known"))
            elif found is None or replace or library.replaces(found):
                load = ("FUNCTION", "LOAD", "REPLACE", library.text)
                yield from _asked(address, patience, *load)
                done.append((address, library.release, "installed"))
            else:
                done.append((address, found.release_text, "newer"))
        return done

    def _settings(self, session: Session[Any]) -> Request[list[tuple[str, list[Finding] | str]]]:
        patience = self._engine.target.timeout
        every: list[tuple[str, list[Finding] | str]] = []
        for address in (yield from self._primaries(session)):
            if "parks" in (yield from _features(address, patience)):
                every.append((address, []))
                continue
            try:
                every.append((address, (yield from server_settings.found(address, patience))))
            except Broken as error:
                raise _failed(address, error) from None
        return every

    def _remove(self, session: Session[Any], queue: str) -> Request[None]:
        address = yield from self._engine.nodes.of(key(queue), session, TIMEOUT)
        patience = self._engine.target.timeout
        if "queues" not in (yield from _features(address, patience)):
            keys = yield from _scanned(address, patience, f"{key(queue)}:*")
            if keys:
                yield from _asked(address, patience, "UNLINK", *keys)


def _features(address: str, patience: float) -> Request[frozenset[str]]:
    """Return the features that the server reports.

    A server with `queues` has a list of its queues' names, separate from other keys.
    """
    found = yield from _version(address, patience)
    # A Redis without the library has no queues.
    return frozenset() if found is None else found.features


def _version(address: str, patience: float) -> Request[Version | None]:
    """Return the version of the server; None: a Redis without the library."""
    try:
        return wire_queue.version((yield from _asked(address, patience, "FCALL", "il1_version", 0)))
    except InterlockError as error:
        if refusals.LOST in str(error):
            return None
        raise


def _scanned(address: str, patience: float, pattern: str) -> Request[list[bytes]]:
    cursor: bytes | int = 0
    found: list[bytes] = []
    while True:
        command = ("SCAN", cursor, "MATCH", pattern, "COUNT", PAGE)
        cursor, keys = wire_queue.scanned_keys((yield from _asked(address, patience, *command)))
        found += keys
        if cursor == b"0":
            return found


def _asked(address: str, patience: float, *command: Argument) -> Request[Any]:
    """Send a command; for ``patience`` seconds, repeat it while its refusal is temporary.

    Repeat it once if the connection had ended: all commands here may safely be repeated.
    """
    began = time.monotonic()
    stale = True
    while True:
        try:
            return (yield Ask(address, command, TIMEOUT))
        except (Refused, Broken) as error:
            took = time.monotonic() - began
            if isinstance(error, Broken):
                if not stale or took > SOON:
                    raise _failed(address, error) from None
                stale = False
                continue
            if not refusals.passes(error) or took >= patience:
                raise _failed(address, error) from None
        yield Nap(PAUSE)


def _asked_all(
    address: str, patience: float, commands: tuple[tuple[Argument, ...], ...]
) -> Request[list[Any]]:
    """Send commands that only read together; once more if the connection had ended."""
    found: list[Any]
    try:
        found = yield AskAll(address, (), patience, commands=commands)
        return found
    except Broken:
        pass
    try:
        found = yield AskAll(address, (), patience, commands=commands)
    except Broken as error:
        raise _failed(address, error) from None
    return found


def _failed(address: str, error: Refused | Broken) -> InterlockError:
    if isinstance(error, Broken):
        return EngineUnavailable(refusals.advised(f"{address}: {error}"))
    return refusals.said_by(address, error)


def key(queue: str) -> str:
    """Return the key by which functions address a queue."""
    return f"il:{{{queue}}}"


_NONE = Refused("ERR not asked")
MANY = 128
"""Number of calls that are sent together."""
PAGE = 512
TIMEOUT = 10.0
SOON = 1.0
"""Seconds within which a closed connection is noticed; after that the server itself is slow."""
PAUSE = 0.2
"""Seconds after which a temporarily refused command is repeated."""
