"""Detects that a handler waits for a result that can never come (contract, clause 25).

A handler that waits for the result of a message keeps its place in its worker or consumer, and its
message's slots of concurrency limits. If all places that could run that message, or all slots that
it needs, are kept by handlers that wait likewise, or if the message waits behind the handler's own,
the wait would never end. The search runs while the handler waits. It uses this process's knowledge
of its own handlers, and the engine's of the rest.

The handler that began to wait last gets WouldDeadlock, once two checks in a row have found the
same: an idle handler would have taken the message in between. If other processes serve the queue
too, whose handlers are not visible here, the chain is only logged.
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from interlock import _core
from interlock.client.admin.server import Requests, key
from interlock.client.request import Request
from interlock.client.session import Session
from interlock.client.wire import admin as wire_queue
from interlock.errors import InterlockError, WouldDeadlock
from interlock.explanation import full_text
from interlock.message import _current

if TYPE_CHECKING:
    from interlock.client.connection.call import Engine
    from interlock.client.requests.queue_handle import Handle
    from interlock.client.wire.worker_directory import Announced
    from interlock.explanation import ExplainNode, FullLimit

__all__ = ["FIRST_LOOK", "LONGEST_LOOK", "Relay", "ResultWait", "Taker"]

_log = logging.getLogger("interlock.worker")
_numbers = itertools.count()

FIRST_LOOK = 0.25
"""Seconds from the beginning of a wait to the first check; the interval then doubles each time."""
LONGEST_LOOK = 8.0
MOST_QUEUES = 1000
"""Queues of an engine that are searched for announcements of workers, one round trip each."""
MOST_WAITS = 1000
"""Maximum number of handlers to follow; if more of them wait, nothing is found."""
PAGE = 100
"""Announcements of one round trip, and messages of an explanation."""


class Taker:
    """A worker or consumer of this process that takes messages from queues, until ``close``."""

    def __init__(self, engine: Engine, queues: Iterable[str], places: int) -> None:
        self.engine = _same(engine)
        self.queues = frozenset(queues)
        self.places = places
        _takers.add(self)

    def close(self) -> None:
        """Note that it takes no further messages."""
        _takers.discard(self)


class Relay(Protocol):
    """Reports waits in handlers of this process to the worker whose pool it belongs to."""

    def began(self, wait: ResultWait) -> None:
        """Note that a handler waits."""

    def ended(self, wait: ResultWait) -> None:
        """Note that it waits no longer."""

    def look(self, wait: ResultWait) -> None:
        """Make the worker check; raise its error."""


relay: Relay | None = None
_takers: set[Taker] = set()
_waits: set[ResultWait] = set()


class ResultWait:
    """A handler that waits for a result, without a timeout."""

    @classmethod
    def of_caller(cls, handle: Handle, id: int) -> ResultWait | None:
        """Return the wait of the calling handler for a message; None if the caller is not a
        handler."""
        lease: Any = _current.get(None)
        if lease.__class__ is tuple:
            batch, place = lease
            lease = batch.lease(place)
        if lease is None or isinstance(lease, _core.Lease | _core.AsyncLease):
            return None
        return cls(handle.engine, handle.name, id, (lease.queue, lease.id))

    def __init__(self, engine: Engine, queue: str, id: int, own: tuple[str, int]) -> None:
        self._engine, self.engine = engine, _same(engine)
        self.queue, self.id = queue, id
        """The message whose result is awaited."""
        self.own = own
        """The message that is being handled meanwhile."""
        self.number = next(_numbers)
        self._found: tuple[Any, ...] = ()
        """The findings of the last check."""
        self._logged = False

    def __enter__(self) -> ResultWait:
        _waits.add(self)
        if relay is not None:
            relay.began(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _waits.discard(self)
        if relay is not None:
            relay.ended(self)

    def look(self, session: Session[Any]) -> Request[None]:
        """Raise WouldDeadlock if the wait would never end, or log that it seems so."""
        if relay is not None:
            relay.look(self)
            return
        try:
            yield from self._look(session)
        except WouldDeadlock:
            raise
        except InterlockError:
            # The wait itself reports an engine's fault; a user who may not read gets no report.
            self._found = ()

    def _look(self, session: Session[Any]) -> Request[None]:
        before, self._found = self._found, ()
        others = [wait for wait in list(_waits) if wait.engine == self.engine]
        if len(others) > MOST_WAITS:
            return
        roots: dict[ResultWait, list[ExplainNode]] = {self: (yield from self._roots(session, self))}
        if not any(_is_stuck(self, root, others) for root in roots[self]):
            return
        for wait in others:
            if wait is not self:
                roots[wait] = yield from self._roots(session, wait)
        stuck = set(roots)
        while True:
            left = {
                wait for wait in stuck if any(_is_stuck(wait, one, stuck) for one in roots[wait])
            }
            if left == stuck:
                break
            stuck = left
        if self not in stuck or any(wait.number > self.number for wait in stuck):
            # The last one to wait gets the error; when it has failed, its place is free for others.
            return
        steps = list(_chain(self, roots, stuck))
        found = tuple((wait, root.id) for wait, root in steps)
        if found != before:
            self._found = found
            return
        wait, root = steps[-1]
        by = wait.queue if _needs_handler(wait, root, stuck) else ""
        if not by or not (yield from self._others_take(session, by)):
            raise WouldDeadlock(
                f"result(): {self._told(steps, stuck)}: it would never end. {ADVICE}"
            )
        if not self._logged:
            self._logged = True
            _log.warning(
                "%s. Unless another program handles messages of queue %r, this never ends. %s",
                self._told(steps, stuck), by, ADVICE,
                extra={"queue": self.own[0], "id": self.own[1]},
            )  # fmt: skip

    def _roots(self, session: Session[Any], wait: ResultWait) -> Request[list[ExplainNode]]:
        """Return the messages that block another in the end, or itself; none if that is not known.

        Not those that have a slot of a limit for which one of them waits: others may free one.
        """
        call = self._engine.calls(session, key(wait.queue))
        found = yield from wire_queue.explain(call, "id", wait.id, PAGE)
        if found is None or found.truncated:
            return []
        nodes = {node.id: node for node in found.nodes}
        roots: list[ExplainNode] = []
        open, seen = [wait.id], {wait.id}
        while open:
            node = nodes.get(open.pop())
            if node is None or node.paused:
                continue
            if not node.blocked:
                roots.append(node)
            new = {id for blocker in node.blocked for id in blocker.holders} - seen
            seen |= new
            open += sorted(new)
        return roots

    def _others_take(self, session: Session[Any], queue: str) -> Request[bool]:
        """Return whether others than the takers of this process may lease from a queue."""
        if self._engine.memory is not None:
            return False
        counts = yield from wire_queue.stats(self._engine.calls(session, key(queue)))
        if counts.get("leased", 0) > len({wait.own for wait in _waits if wait.own[0] == queue}):
            return True
        # A worker announces itself at one of its queues only.
        names = [name.decode() for name in (yield from Requests(self._engine).all_queues(session))]
        if len(names) > MOST_QUEUES:
            return True
        for name in names:
            try:
                if (yield from self._others_say_so(session, queue, name)):
                    return True
            except InterlockError:
                # It may have ended, or this user may not read it.
                return True
        return False

    def _others_say_so(self, session: Session[Any], queue: str, at: str) -> Request[bool]:
        after = ""
        call = self._engine.calls(session, key(at))
        while some := (yield from wire_queue.workers(call, after, PAGE)):
            if any(one.serves(queue, at) and _place(one) != _here() for one in some):
                return True
            after = some[-1].worker
        return False

    def _told(
        self, steps: list[tuple[ResultWait, ExplainNode]], stuck: Iterable[ResultWait]
    ) -> str:
        parts = []
        for wait, root in steps[:SHOWN]:
            behind = "" if root.id == wait.id else f", which waits behind message {root.id}"
            if (full := _full_limit(wait, root, stuck)) is not None:
                behind += f", which waits for a limit: {full_text(full)}, all waiting for results"
            parts.append(
                f"the handler of message {wait.own[1]} in queue {wait.own[0]!r} waits for the "
                f"result of message {wait.id} in queue {wait.queue!r}{behind}"
            )
        if len(steps) > SHOWN:
            parts.append(f"and so on, {len(steps) - SHOWN} more")
        wait, root = steps[-1]
        if _needs_handler(wait, root, stuck):
            places = sum(taker.places for taker in _serving(wait.engine, wait.queue)[0])
            parts.append(
                f"message {root.id} needs a free handler, and all {places} here that could run it "
                f"wait for results themselves"
            )
        return "; ".join(parts)


def _chain(
    first: ResultWait,
    roots: dict[ResultWait, list[ExplainNode]],
    stuck: set[ResultWait],
) -> Iterator[tuple[ResultWait, ExplainNode]]:
    """Yield each wait with its final blocker, until one needs a handler or a cycle is found."""
    wait, seen = first, {first}
    while True:
        root = next(one for one in roots[wait] if _is_stuck(wait, one, stuck))
        yield wait, root
        full = _full_limit(wait, root, stuck)
        needed = {root.id} if full is None else {*full.holders}
        after = [one for one in stuck if one.own[0] == wait.queue and one.own[1] in needed]
        if _needs_handler(wait, root, stuck) or not after or seen & set(after):
            return
        wait = min(after, key=lambda one: one.number)
        seen.add(wait)


def _is_stuck(wait: ResultWait, root: ExplainNode, stuck: Iterable[ResultWait]) -> bool:
    """Return whether the blockers of a message never end if these waits do not."""
    if root.state == "leased":
        return any(one.own == (wait.queue, root.id) for one in stuck)
    if root.state != "ready":
        # It changes by itself, or by an operator.
        return False
    if _full_limit(wait, root, stuck) is not None:
        return True
    takers, queues = _serving(wait.engine, wait.queue)
    kept = {one.own for one in stuck if one.own[0] in queues}
    return bool(takers) and sum(taker.places for taker in takers) <= len(kept)


def _full_limit(
    wait: ResultWait, root: ExplainNode, stuck: Iterable[ResultWait]
) -> FullLimit | None:
    """Return a limit that keeps a message from being leased, and whose slots these handlers all
    have."""
    own = {one.own for one in stuck}
    for full in root.limits:
        # Time ends the wait for a rate.
        if full.most is None:
            continue
        if sum((wait.queue, id) in own for id in full.holders) >= full.most:
            return full
    return None


def _needs_handler(wait: ResultWait, root: ExplainNode, stuck: Iterable[ResultWait]) -> bool:
    return root.state != "leased" and _full_limit(wait, root, stuck) is None


def _serving(engine: object, queue: str) -> tuple[list[Taker], set[str]]:
    """Return the takers of a queue here, and those that share a queue with them, because it is not
    known to which of them a handler's place belongs; and all their queues."""
    here = [taker for taker in list(_takers) if taker.engine == engine]
    queues, takers = {queue}, list[Taker]()
    while more := [one for one in here if one not in takers and one.queues & queues]:
        takers += more
        queues.update(*(one.queues for one in more))
    return takers, queues


def _same(engine: Engine) -> object:
    """Return a value that is equal for clients of the same engine."""
    return engine.target.shown if engine.memory is None else engine.memory


def _here() -> tuple[object, object]:
    return socket.gethostname(), os.getpid()


def _place(worker: Announced) -> tuple[object, object]:
    said = worker.said
    return said.get("host"), said.get("process")


SHOWN = 10
"""Number of handlers of a chain that are named."""
ADVICE = "Return first, give result() a timeout, or have more handlers"
