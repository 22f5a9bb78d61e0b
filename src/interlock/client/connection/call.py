"""One call of a function: sent, and repeated until it is answered or its time is up.

A numbered call is repeated with its number, so that it takes effect once however often it is sent.
If a server has lost the library, it is installed again; a cluster's redirections are followed.
"""

from __future__ import annotations

import itertools
import os
import random
import secrets
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from interlock import _core
from interlock.client.connection import refusals, server_settings
from interlock.client.connection import routing as cluster
from interlock.client.connection.routing import Nodes
from interlock.client.lua.library import Library
from interlock.client.request import Abandoned, Argument, Ask, Broken, Nap, Refused, Request
from interlock.client.session import AnyLink, Session
from interlock.client.transport.memory_link import (
    AsyncMemoryLink,
    MemoryEngine,
    MemoryLink,
    engine_of,
)
from interlock.client.transport.thread_link import Link
from interlock.client.url import Target
from interlock.client.wire import admin as wire_queue
from interlock.client.wire.admin import Call
from interlock.client.wire.bad_reply import nonsense
from interlock.client.wire.messages import Sleep
from interlock.client.wire.records import Version
from interlock.errors import EngineUnavailable
from interlock.runtime.limits import MAX_KEYS_ON_REDIS
from interlock.watch import log

if TYPE_CHECKING:
    from interlock.client.wire.declaration import Declaration


@dataclass(slots=True)
class Server:
    """Properties that a server reported."""

    parks: bool = False
    """A call with a wait is answered only when there is a result."""
    max_keys: int = MAX_KEYS_ON_REDIS
    """Maximum number of keys of a message."""
    features: frozenset[str] = field(default_factory=frozenset)


@dataclass(slots=True)
class Declared:
    """A queue as this client has declared it."""

    options: dict[Argument, Argument] = field(default_factory=dict)
    until: float = 0.0
    """Time by time.monotonic() from which on it is declared again."""


_LIBRARY = Library()
"""For all clients of this process: putting its text together takes 40 ms."""


class Engine:
    """The common part of all calls of a client: addresses and capabilities of the servers."""

    def __init__(
        self,
        target: Target,
        library: Library | None = None,
        memory: MemoryEngine | None = None,
    ) -> None:
        self.target = target
        self._memory = memory
        if target.kind == "memory":
            self._memory = memory or engine_of(target.name)
        self.library = library or _LIBRARY
        self.nodes = Nodes(target)
        self.servers: dict[str, Server] = {}
        self.is_ordered = self._memory is not None
        """Every server known lists messages and keys in order."""
        self.finds_deepest = self.is_ordered
        """Every server known begins il1_hot with the deepest lanes."""
        self.lists_ids = False
        """Every server known lists ids without the messages."""
        self.finds_front = self.is_ordered
        """Every server known finds the smallest ids, of all messages or of those in a state."""
        self.finds_dead = self.is_ordered
        """Every server known finds the dead letters of a key."""
        self.is_older = False
        """A server is of a release that keeps shorter errors and does not know DEFER."""
        self._declared: dict[str, Declared] = {}
        """The queues that were declared, by their keys. (Not in memory, which loses none.)"""
        self.serves_nodes: bool | None = None
        """Nodes announce themselves in a table, as on a hub; None: unknown, not asked yet."""
        self._prefix = f"il{self.library.wire}_"
        self._version = ("FCALL", f"{self._prefix}version", 0)
        self._alone = target.addresses[0] if target.addresses and target.kind != "cluster" else ""
        """The only server; empty on a cluster."""
        self._share = min(target.timeout, max(target.timeout / 2, 1.0))
        """Seconds for a first attempt; see `_Patience.share`."""
        self._name = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(5)}"
        self._sessions = itertools.count(1)

    @property
    def memory(self) -> MemoryEngine | None:
        """The engine itself, if it is in this process."""
        return self._memory

    @property
    def knows_a_sleeper(self) -> bool:
        """There is only one server, it was asked before, and it does not wait by itself."""
        server = self.servers.get(self._alone)
        return server is not None and not server.parks

    @property
    def parks(self) -> bool:
        """There is only one server, it was asked before, and it waits by itself, as a hub does."""
        server = self.servers.get(self._alone)
        return server is not None and server.parks

    def renewals(self) -> _core.LeaseRenewals | _core.EngineRenewals | None:
        """Return the renewer for times when the interpreter is held; None: a test controls the
        time."""
        target = self.target
        if self._memory is not None:
            return None if self._memory.is_manual else self._memory.core.renewals()
        return _core.LeaseRenewals(
            f"{self._prefix}extend",
            user=target.user or None,
            password=target.password,
            database=target.db,
            tls=target.tls,
            ca=target.ca or None,
            timeout=target.timeout,
        )

    def consumer(self) -> bytes:
        """Return a name that is not and was not in use."""
        return f"{self._name}/{next(self._sessions)}".encode()

    def link(self, address: str) -> AnyLink:
        """Return a connection for threads."""
        return Link(*self._place(address)) if self._memory is None else MemoryLink(self._memory)

    def async_link(self, address: str) -> AnyLink:
        """Return a connection for asyncio."""
        if self._memory is not None:
            return AsyncMemoryLink(self._memory)
        from interlock.client.transport.loop_link import AsyncLink

        return AsyncLink(*self._place(address))

    def _place(self, address: str) -> tuple[Target, str]:
        """Return the protocol settings and the address of a server."""
        members = self.target.members
        if members is None or not address.startswith(NODE):
            return self.target, address
        return members.target, address.removeprefix(NODE)

    def forked(self) -> None:
        """Take a new name, in the child of a fork: no two processes may share names."""
        self._name = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(5)}"

    def calls(
        self, session: Session[Any], key: str, declaration: Declaration | None = None
    ) -> Call:
        """Return the functions of one queue, to be called on a session.

        A declaration is sent first.
        """

        def call(
            function: str,
            *arguments: Argument,
            wait: float = 0,
            again: bool = True,
            sleep: Sleep | None = None,
        ) -> Request[list[bytes]]:
            if declaration is not None:
                yield from declaration.made(self, session, key)
            before, asleep = sleep or ((), 0.0)
            return (
                yield from self.call(
                    session, function, key, *arguments,
                    wait=wait, again=again, before=before, asleep=asleep,
                )
            )  # fmt: skip

        return call

    def call(
        self,
        session: Session[Any],
        function: str,
        key: str,
        *arguments: Argument,
        wait: float = 0,
        again: bool = True,
        before: tuple[Argument, ...] = (),
        asleep: float = 0,
        within: float | None = None,
        final: str = "",
    ) -> Request[list[bytes]]:
        """Call `il1_FUNCTION` on the queue that `key` names.

        Args:
            wait: seconds for which a server that parks may wait.
            again: whether it may be repeated although it may have taken effect.
            before: a command that waits up to `asleep` seconds, sent together with it the first
                time; see `knows_a_sleeper`.
            within: seconds for the answer, including the wait. None: the client's timeout, in
                addition to the wait.
            final: code of a refusal with which the call is not repeated.

        Raises:
            EngineUnavailable: it was not answered in that time.
            Refused: it was refused with the code `final`.
            Abandoned: the session was interrupted.
            Full, ShutDown and other errors of the library: from the server's reply.
        """
        command = ("FCALL", f"{self._prefix}{function}", 1, key, *arguments)
        started = time.monotonic()
        first: Refused | Broken | None = None
        server = self.servers.get(self._alone)
        if server is not None and not session.interrupted:
            # The common case; the rest handles failures.
            timeout = self._share + wait if server.parks else self._share
            if within is not None:
                timeout = min(timeout, within + GRACE)
            try:
                if self._declared and self._may_be_undeclared(session, self._alone, function, key):
                    yield from self._declare_again(self._alone, key, self._share)
                if before:
                    ask = Ask(self._alone, command, timeout + asleep, before, asleep + 0.002)
                else:
                    ask = Ask(self._alone, command, timeout)
                found: list[bytes] = yield ask
                if type(found) is not list:
                    raise nonsense(found)
                return found
            except (Refused, Broken) as error:
                first = error
                if before:
                    started = time.monotonic()
        patience = _Patience(self.target, within, function, started)
        if isinstance(first, Broken) and first.sent and server is not None and server.parks:
            patience.waited(min(time.monotonic() - started, wait))
        asking = ""
        while True:
            if first is None and session.interrupted:
                raise Abandoned
            address = asking or (yield from self.nodes.of(key, session, patience.left()))
            called = first is not None
            try:
                if first is not None:
                    failure, first = first, None
                    raise failure
                if address not in self.servers:
                    yield from self._prepare(session, address, patience)
                if not asking and self._may_be_undeclared(
                    session, address, function, key, patience.tries
                ):
                    yield from self._declare_again(address, key, patience.share())
                if asking:
                    yield Ask(address, ("ASKING",), patience.share())
                    asking = ""
                server = self.servers.get(address)
                # None: it has already lost the library again, which the call itself will find.
                if wait and server is not None and server.parks:
                    if patience.broken:
                        # Without the wait added, because the server may be gone.
                        yield Ask(address, self._version, patience.share())
                    patience.allow(wait)
                called = True
                reply: list[bytes] = yield Ask(address, command, patience.share())
                if type(reply) is not list:
                    raise nonsense(reply)
                return reply
            except Refused as error:
                if final and error.code == final:
                    raise
                course, refusal = refusals.course_of(error, function)
                if course != "retry" or (error.code in ("MOVED", "ASK") and self._alone):
                    raise refusals.error_of(error, function, key, address) from None
                if error.code == "MOVED":
                    self.nodes.moved(str(error), address)
                elif error.code == "ASK":
                    asking = cluster.redirected(str(error), address)[1]
                elif refusals.LOST in str(error):
                    if patience.installed:
                        raise refusals.error_of(error, function, key, address) from None
                    # Flushed, or failed over to a server that never had it.
                    patience.installed = True
                    self.servers.pop(address, None)
                else:
                    self.nodes.doubt()
                    if refusal.ends:
                        # Closed by the server; or it is no longer a primary, and its replacement
                        # may have its address.
                        session.drop(address)
                patience.failed(address, str(error))
                patience.sent = patience.sent or (called and refusal.unsure)
            except Broken as error:
                self.nodes.doubt()
                patience.failed(address, str(error), broken=True)
                patience.sent = patience.sent or (called and error.sent)
            if patience.sent and not again:
                raise patience.unknown() from None
            if session.once:
                raise patience.over() from None
            if session.interrupted:
                raise Abandoned
            if patience.tries > 1 or not patience.redirected:
                yield Nap(patience.pause())

    def declared(self, key: str, declaration: Declaration) -> None:
        """Note that a queue was declared.

        A server that may have lost the declaration gets it again, before a call that puts or
        leases.
        """
        if self._memory is None and declaration.arguments and not declaration.is_pending:
            found = self._declared.setdefault(key, Declared())
            found.options |= zip(
                declaration.arguments[::2], declaration.arguments[1::2], strict=True
            )
            found.until = time.monotonic() + DECLARED_FOR

    def _may_be_undeclared(
        self, session: Session[Any], address: str, function: str, key: str, tries: int = 0
    ) -> bool:
        """Return whether a server may have lost the options of a queue that this client declared.

        A server that restarts without its data, or is flushed, makes a queue anew, without its
        limits. It may have restarted if the connection is not open, or a try of this call has
        failed. Nothing shows that it was flushed.
        """
        declared = self._declared.get(key)
        if declared is None or function not in DECLARED_FIRST:
            return False
        if tries or declared.until <= time.monotonic():
            return True
        link = session.links.get(address)
        return link is None or not link.is_open

    def _declare_again(self, address: str, key: str, timeout: float) -> Request[None]:
        """Declare a queue to a server as this client has before.

        Raises:
            Broken: it did not answer.
        """
        declared = self._declared[key]
        declared.until = time.monotonic() + DECLARED_FOR
        options = itertools.chain.from_iterable(declared.options.items())
        command = ("FCALL", f"{self._prefix}configure", 1, key, *options)
        try:
            yield Ask(address, command, timeout)
        except Refused:
            # An operator has set other options since, with which this program continues; or the
            # call itself is refused for the same reason.
            return
        except Broken as error:
            raise Broken(str(error), sent=False) from None

    def greet(self) -> Request[None]:
        """Make the session's connection to the only server, or find that it was lost.

        Raises:
            EngineUnavailable: it was not answered.
        """
        if self._memory is None:
            try:
                yield Ask(self._alone, ("PING",), self._share)
            except (Broken, Refused) as error:
                raise EngineUnavailable(refusals.advised(f"{self._alone}: {error}")) from None

    def date_time(self, session: Session[Any], key: str) -> Request[int | None]:
        """Return the time for dates of the server with a queue, µs since 1970.

        None: the server has no clock other than that of its queues, as with Redis.

        Raises:
            EngineUnavailable: it was not answered.
        """
        if self._memory is not None:
            return self._memory.core.wall()
        address = yield from self.nodes.of(key, session, self.target.timeout)
        server = self.servers.get(address)
        if server is None or not server.parks:
            return None
        try:
            seconds, part = yield Ask(address, ("TIME",), self._share)
        except Refused:
            return None
        except Broken as error:
            raise EngineUnavailable(refusals.advised(f"{address}: {error}")) from None
        return int(seconds) * 1_000_000 + int(part)

    def _prepare(self, session: Session[Any], address: str, patience: _Patience) -> Request[None]:
        """Ask a server for its properties, and install the library if needed."""
        said: Version | None = None
        for attempt in (1, 2):
            try:
                said = wire_queue.version((yield Ask(address, self._version, patience.share())))
            except Refused as error:
                if refusals.LOST not in str(error):
                    raise
            else:
                parks = "parks" in said.features
                if parks or attempt == 2 or not self.library.replaces(said):
                    self.servers[address] = Server(parks, said.most_keys, said.features)
                    every = self.servers.values()
                    self.is_older = any("events" not in one.features for one in every)
                    self.is_ordered = all("ordered" in one.features for one in every)
                    deepest = {"ordered", "deepest"}
                    self.finds_deepest = all(deepest & one.features for one in every)
                    self.lists_ids = all("larger" in one.features for one in every)
                    self.finds_front = all("front" in one.features for one in every)
                    dead = {"ordered", "dead-keys"}
                    self.finds_dead = all(dead & one.features for one in every)
                    if not parks:
                        yield from server_settings.watched(address, patience.share())
                    return
            # REPLACE even if the library is missing: another client may have been quicker.
            load = ("FUNCTION", "LOAD", "REPLACE", self.library.text)
            try:
                yield Ask(address, load, patience.share())
            except Refused as error:
                if error.code != "NOPERM":
                    raise
                if said is None:
                    raise EngineUnavailable(f"{address}: {error}; {refusals.INSTALL}") from None
                # An operator installs the library: the existing one must do.
                log.warning(
                    "%s has the library of release %s, and this client that of %s, which its user "
                    "may not install; %s",
                    address, said.release_text, self.library.release, refusals.INSTALL,
                )  # fmt: skip


class _Patience:
    """The time of one call, and its attempts so far."""

    def __init__(self, target: Target, within: float | None, function: str, started: float) -> None:
        self._started = started
        self._bounded = within is not None
        timeout = target.timeout if within is None else within
        self._until = self._started + timeout
        self._timeout = timeout
        self._least = max(SHORTEST, min(timeout * SHORTEST_PART, SHORTEST_MOST))
        self._wait = self._waited = self._allowed = 0.0
        self._target = target
        self._function = function
        self._reasons: list[str] = []
        self.tries = 0
        self.broken = False
        """The last attempt found no server, or lost it."""
        self.redirected = False
        self.installed = False
        """The library was missing once."""
        self.sent = False
        """The call may have taken effect, and the answer was lost."""

    def left(self) -> float:
        return self._until - time.monotonic()

    def allow(self, wait: float) -> None:
        """Allow the server this many seconds before it has to answer."""
        if self._bounded:
            # Time for an answer that it sends at the end of that.
            self._until = self._started + self._timeout + GRACE
            self._wait = max(0.0, min(wait, self.left() - GRACE))
            return
        self._wait, self._allowed = wait, time.monotonic()
        self._until = self._started + self._timeout + self._waited + wait

    def waited(self, seconds: float) -> None:
        """Exclude seconds in which the server rightly did not answer from the timeout."""
        if not self._bounded:
            self._waited += seconds
            self._wait = 0.0
            self._until = self._started + self._timeout + self._waited

    def share(self) -> float:
        """Return the seconds for one attempt.

        They are less than the remaining time, so that the call can be repeated if the reply is
        lost.
        """
        left = self.left()
        own = max((left - self._wait) / 2, 0)
        return max(min(left, max(own, 1.0) + self._wait), 0.001)

    def failed(self, address: str, reason: str, broken: bool = False) -> None:
        self.tries += 1
        self.broken = broken
        if self._wait:
            self.waited(min(time.monotonic() - self._allowed, self._wait))
        self.redirected = reason.startswith(("MOVED", "ASK", "ERR Function not found"))
        said = f"{address}: {reason}"
        if said not in self._reasons:
            self._reasons = [*self._reasons[-3:], said]

    def pause(self) -> float:
        """Return the seconds until the next attempt.

        EngineUnavailable if there is no time for an answer to one: a change that is sent and not
        answered would have an unknown outcome, though every answer was a refusal.
        """
        longest = min(0.05 * 2 ** min(self.tries - 1, 5), 1.0)
        seconds: float = longest * random.uniform(0.5, 1.0)
        left = self.left()
        if left <= self._least:
            raise self.over()
        return min(seconds, left - self._least / 2)

    def over(self) -> EngineUnavailable:
        passed = time.monotonic() - self._started
        within = f"{round(passed, 1):g} s; {self.tries} attempts"
        return EngineUnavailable(
            refusals.advised(
                f"{self._target.shown} did not answer il1_{self._function} in {within}: "
                f"{'; '.join(self._reasons)}"
            ),
            unknown=self.sent,
        )

    def unknown(self) -> EngineUnavailable:
        return EngineUnavailable(
            f"{self._target.shown} was lost before it answered il1_{self._function}; whether that "
            f"was done is not known: {'; '.join(self._reasons)}",
            unknown=True,
        )


NODE = "node:"
"""Prefix for the address of a server that is not an engine, but a node of a cluster of
Interlock."""
SHORTEST = 0.02
SHORTEST_PART = 0.2
SHORTEST_MOST = 0.5
"""Another attempt needs this part of the timeout, but SHORTEST to SHORTEST_MOST seconds."""
DECLARED_FIRST = frozenset(("put", "lease", "next"))
"""The functions that do what a queue's options limit."""
DECLARED_FOR = 10.0
"""Seconds after which a queue is declared again."""
GRACE = 0.5
"""Allowance in seconds for the answer of a waiting call to arrive."""
