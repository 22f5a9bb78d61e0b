"""Leader election: one of many processes at a time, by a lease of the engine.

The lock uses our own contract: a queue with one message, whose lease holder is the leader. The
lease's token, which only rises, is the fence; the client renews the lease, and knows by its own
clock when it can no longer rely on it. The queue also holds the leader's announcement, a message
that is never due.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from interlock.errors import Empty, EngineUnavailable, Full, LeaseLost, ShutDown
from interlock.message import QueuedMessage
from interlock.retry import Retry, Seconds, seconds
from interlock.runtime import forks

if TYPE_CHECKING:
    from interlock.client.faces.client import Client
    from interlock.client.faces.lease import RemoteLease
    from interlock.client.faces.queue import RemoteQueue

TTL = 3.0
_SHORTEST = 0.1
_LONGEST_NAME = 256
_FOR_EVER = Retry(attempts=None, first=0, longest=0, jitter=False)
_NEVER = 30 * 365 * 86_400.0
"""Seconds until an announcement is due."""
_AGAIN = 0.1
"""Seconds after which an unreachable engine is tried again."""
_log = logging.getLogger("interlock.leader")


@dataclass(frozen=True, slots=True)
class CurrentLeader:
    """The current leader, as the engine knows it."""

    identity: str
    """The leader's own text of identity."""
    token: int
    since: float
    """The time of its election by its own clock, in seconds since 1970."""


class Leader:
    """One leadership, for which any number of processes campaign. ``Client.leader`` makes it.

    Any thread may use it. Each ``campaign`` is for a term of its own.
    """

    def __init__(self, client: Client, name: str, ttl: Seconds, identity: str | None) -> None:
        _check_text("leader(): name", name)
        if "{" in name or "}" in name:
            raise ValueError(f"leader(): name is {name!r}; allowed: text without braces")
        length = seconds(ttl, "leader(): ttl")
        if not _SHORTEST <= length < 1e6:
            raise ValueError(f"leader(): ttl is {ttl}; allowed: {_SHORTEST} s or more")
        if identity is None:
            identity = f"{socket.gethostname()}:{os.getpid()}"
        _check_text("leader(): identity", identity)
        self.name = name
        self.ttl = length
        self.identity = identity
        # Dropping a client closes it.
        self._parent = client
        # Its own client: a renewal that hangs must be retried while there is time.
        own = client._again(timeout=min(client._engine.target.timeout, max(length / 3, 0.1)))
        self._client = own
        self._queue: RemoteQueue[Any] = own.queue(
            f"leader:{name}", lease=length, dedup_window=0, slow_wait=0, warn_depth=0,
            warn_lane_depth=0,
        )  # fmt: skip
        self._closed = False
        self._terms: weakref.WeakSet[Term] = weakref.WeakSet()

    def campaign(self, timeout: Seconds | None = None) -> Term:
        """Wait until this process is the leader, and return the term, a context manager that ends
        it.

        While the engine cannot be reached, it keeps trying.

        Args:
            timeout: seconds to wait at most; 0 tries once. Default: until it is elected.

        Raises:
            TimeoutError: another was the leader all the time.
            EngineUnavailable: the engine could not be reached when the time was up.
            ShutDown: the client, or this leader, was closed.
        """
        until = None if timeout is None else time.monotonic() + seconds(
            timeout, "campaign(): timeout"
        )  # fmt: skip
        unreachable: EngineUnavailable | Full | None = None
        while True:
            left = self.ttl if until is None else min(max(until - time.monotonic(), 0), self.ttl)
            try:
                # With each attempt: an engine that restarted empty has no lock.
                self._queue.put(
                    None, timeout=left, keys="leader", dedup="leader", quiet=True, retry=_FOR_EVER
                )
                lease = self._queue.get(timeout=left, kind="keyed")
            except Empty:
                unreachable = None
            except (EngineUnavailable, Full) as error:
                if unreachable is None:
                    _log.warning("leader %r: campaigning again: %s", self.name, error)
                unreachable = error
                time.sleep(_AGAIN if left else 0)
            else:
                break
            if until is not None and time.monotonic() >= until:
                if unreachable is not None:
                    raise unreachable
                raise TimeoutError(f"another was the leader of {self.name!r} for {timeout} s")
        term = Term(self, lease)
        self._terms.add(term)
        if self._closed:
            term.resign()
            raise ShutDown(f"leader {self.name!r} is closed")
        self._announce(term)
        return term

    def resign(self) -> None:
        """End the terms of this object, so that the next leader is elected immediately."""
        for term in list(self._terms):
            term.resign()

    def current(self) -> CurrentLeader | None:
        """Return the current leader; None if there is no leader, or it has not announced itself
        yet.

        Raises:
            EngineUnavailable: the engine did not answer in time.
        """
        try:
            (lock, *_) = self._queue.explain(key="leader").nodes
        except KeyError:
            return None
        left = lock.lease_left
        if lock.state != "leased" or (left is not None and left <= 0):
            return None
        token = self._queue._run(self._queue._handle, self._queue._operations.lease_token, lock.id)
        for one in self._messages():
            # The others were announced in terms that have ended.
            if one.state == "delayed" and one.payload["token"] == token:
                said = one.payload
                return CurrentLeader(said["identity"], said["token"], said["since"])
        return None

    def close(self) -> None:
        """End the waiting campaigns, which raise ``ShutDown``, and resign."""
        # In this order; otherwise a campaign would win the resigned leadership.
        self._closed = True
        self._queue.close()
        self.resign()
        self._client.close()

    def _announce(self, term: Term) -> None:
        """Announce the leader, and withdraw earlier announcements. Leading does not need it."""
        lease = term._lease
        said = {
            "identity": self.identity,
            "token": term.token,
            "since": time.time(),
            # Processes of older releases distinguish terms by these.
            "lock": lease.id,
            "attempt": lease.attempt,
        }
        try:
            own = self._queue.put(said, timeout=0, delay=_NEVER, quiet=True)
            for one in self._messages():
                if one.state == "delayed" and one.id < own:
                    self._queue.cancel(one.id)
        except (EngineUnavailable, Full) as error:
            _log.warning("leader %r: cannot announce the leader: %s", self.name, error)

    def _messages(self) -> Iterator[QueuedMessage[Any]]:
        after = None
        while page := self._queue.messages(100, after=after):
            yield from page
            after = page[-1].id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self._client.url}>"


class Term:
    """The time for which a process is the leader, from ``Leader.campaign`` on.

    It ends by ``resign``, at the end of its ``with`` block, or when the lease is lost: it could not
    be renewed in time, or an operator revoked it. A term that has ended does not resume.
    """

    def __init__(self, leader: Leader, lease: RemoteLease[Any]) -> None:
        self._leader = leader
        self._lease = lease
        self._over = threading.Event()
        self.token = lease.token
        """Higher than that of every earlier term: a fence for the leader's writes elsewhere."""
        self.lost = Loss(self)

    @property
    def is_held(self) -> bool:
        """True while no other process can be the leader, by this machine's monotonic clock.

        A process that was frozen notices with the first check. It may also be frozen just after the
        check: only the token protects against its writes then.
        """
        if self._over.is_set():
            return False
        lease, grant = self._lease, self._lease._grant
        if grant.forks == forks.count and not lease.lost and time.monotonic() < grant.deadline:
            return True
        if grant.forks == forks.count:
            self._end()
        return False

    def check(self) -> None:
        """Raise ``LeaseLost`` unless it is held."""
        if not self.is_held:
            raise LeaseLost(
                f"this term (token {self.token}) of leader {self._leader.name!r} is over: it "
                f"resigned, or its lease could not be renewed within {self._leader.ttl} s"
            )

    def resign(self) -> None:
        """End the term, so that the next leader is elected immediately. A term that has ended is
        not changed.

        If the engine cannot be reached, the lease expires by itself.
        """
        lease = self._lease
        if lease._grant.forks != forks.count:
            return
        # In this order: `is_held` must be false before another can be elected.
        self._end()
        with contextlib.suppress(LeaseLost):
            try:
                lease.nack(delay=0)
            except EngineUnavailable as error:
                _log.warning(
                    "leader %r: it resigned, but its lease could not be ended and expires by "
                    "itself: %s",
                    self._leader.name,
                    error,
                )

    def _end(self) -> None:
        self._lease.stop_renewing()
        self._over.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.resign()

    def __repr__(self) -> str:
        state = "held" if self.is_held else "over"
        return f"<{type(self).__name__} of {self._leader.name!r}, token {self.token}, {state}>"


class Loss:
    """The end of a term, to wait for as for a ``threading.Event``."""

    def __init__(self, term: Term) -> None:
        self._term = weakref.ref(term)

    def is_set(self) -> bool:
        """Return True when the term is over."""
        term = self._term()
        return term is None or not term.is_held

    def wait(self, timeout: Seconds | None = None) -> bool:
        """Wait until the term is over, and return whether it is.

        Args:
            timeout: seconds to wait at most. Default: until it is over.
        """
        until = None if timeout is None else time.monotonic() + seconds(timeout, "wait(): timeout")
        while True:
            term = self._term()
            if term is None or not term.is_held:
                return True
            now = time.monotonic()
            if until is not None and now >= until:
                return False
            # The renewal may report its loss at any moment.
            step = min(term._lease._grant.deadline - now, term._leader.ttl / 10)
            term._over.wait(step if until is None else min(step, until - now))


def _check_text(what: str, text: object) -> None:
    if not isinstance(text, str):
        raise TypeError(f"{what} is {type(text).__name__}; allowed: str")
    if not 1 <= len(text.encode(errors="replace")) <= _LONGEST_NAME:
        raise ValueError(f"{what} is {text[:80]!r}; allowed: 1 to {_LONGEST_NAME} bytes")
