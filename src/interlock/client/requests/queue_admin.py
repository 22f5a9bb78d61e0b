"""Watching and operating one queue, as requests of both faces; see `handle` for the shared parts.

Arguments are checked here, and a server's data is returned as the package's own types.
"""

from __future__ import annotations

import contextlib
import heapq
import time
from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.client.request import Argument, Request
from interlock.client.requests import waiting as wait
from interlock.client.requests.queue_arguments import (
    canonical,
    check_id,
    check_limit,
    check_then,
    until,
)
from interlock.client.requests.result_wait import FIRST_LOOK, LONGEST_LOOK, ResultWait
from interlock.client.session import Session
from interlock.client.wire import admin as wire_queue
from interlock.client.wire import declaration, listing
from interlock.client.wire.codec import decode_result
from interlock.client.wire.functions import DeclaredOptions
from interlock.client.wire.messages import MAX_EXPLAINED, Sleep
from interlock.client.wire.records import Letter, Stored
from interlock.client.wire.worker_directory import Asked
from interlock.errors import EngineUnavailable, InterlockError, JobFailed, NotDrained, ResultGone
from interlock.explanation import Explanation, LimitUse
from interlock.message import (
    DeadLetter,
    HotKey,
    Key,
    QueuedMessage,
    Stats,
    check_purged,
    check_state,
    check_walk,
)
from interlock.retry import Seconds, seconds
from interlock.roots import Roots
from interlock.runtime.limits import MAX_BATCH, MAX_NUMBER

if TYPE_CHECKING:
    from interlock.client.requests.queue_handle import Handle

R = TypeVar("R")
Held = TypeVar("Held", Stored, Letter)
_PAGE = 512
"""Messages of one round trip."""
_UNDRAINED = 1000
"""Maximum number of ids, or keys, of each kind that the error for an undrained queue names."""
_EXPLAINED = 100
"""Maximum number of waiting messages that are checked for a paused key."""


class Operations:
    """The calls of one queue other than put, lease and settle."""

    def __init__(self, handle: Handle) -> None:
        self.name = handle.name
        self._handle = handle
        self._listings = listing.Listings()

    # -- Watching -----------------------------------------------------------------------------

    def stats(self, session: Session[Any]) -> Request[dict[str, int]]:
        """Return all counts of the engine, by name."""
        return (yield from wire_queue.stats(self.on(session)))

    def counts(self, session: Session[Any]) -> Request[Stats]:
        """Return the counts as KeyedQueue has them."""
        return wire_queue.counts((yield from self.stats(session)))

    def configure(self, session: Session[Any], /, **given: Any) -> Request[DeclaredOptions]:
        """Change the given options; return all options then in force."""
        handle = self._handle
        # Without declaring it first: if the declaration is refused, this call is the remedy.
        call = handle.engine.calls(session, handle.key)
        named = {name: value for name, value in given.items() if value is not None}
        changed = declaration.pairs("configure()", named)
        now = yield from wire_queue.configured(call, *declaration.change(changed))
        handle.declaration.changed(changed)
        handle.engine.declared(handle.key, handle.declaration)
        return declaration.options_of(now)

    def full(self, session: Session[Any]) -> Request[bool]:
        """Return True if a put would have to wait."""
        counted = yield from self.stats(session)
        options = yield from wire_queue.configured(self.on(session))
        most, most_bytes = wire_queue.bounds(options)
        return bool(
            (most and counted["unsettled"] >= most)
            or (most_bytes and counted["bytes"] >= most_bytes)
        )

    def explain(
        self, session: Session[Any], what: Any, named: Any, limit: int
    ) -> Request[Explanation | None]:
        """Explain a message by its id, or what blocks a key.

        Return None if it does not exist.
        """
        if what == "id" and _nobodys(named):
            return None
        return (yield from wire_queue.explain(self.on(session), what, named, limit))

    def explained(
        self, session: Session[Any], id: int | None, key: Key | None, limit: int
    ) -> Request[Explanation]:
        """Explain as `explain`, but raise KeyError if it does not exist, or is dead."""
        if (id is None) == (key is None):
            raise TypeError("explain(): give an id or key=, one of them")
        limit = min(check_limit("explain()", limit), MAX_EXPLAINED)
        if key is not None:
            named = canonical("explain()", key)
            found = yield from self.explain(session, "key", named, limit)
            if found is None:
                raise KeyError(f"no unsettled message has the key {key!r}")
            return found
        asked = check_id("explain()", id)
        found = yield from self.explain(session, "id", asked, limit)
        if found is not None:
            return found
        dead = None if _nobodys(asked) else (yield from wire_queue.peek(self.on(session), asked))
        if dead is not None and dead.state == "dead":
            raise KeyError(
                f"message {id} is a dead letter of queue {self.name!r} ({dead.error}); "
                f"requeue({id}) puts it back"
            )
        raise KeyError(f"message {id} is settled, or was never put into queue {self.name!r}")

    def roots(
        self, session: Session[Any], limit: int, slow_wait: Seconds | None, walk: int
    ) -> Request[Roots]:
        """Return what blocks other messages, and how many wait for it."""
        limit, walk = check_limit("roots()", limit), check_walk(walk)
        if slow_wait is None:
            slow_wait = self._handle.watch.slow_wait or 60
        long = seconds(slow_wait, "roots(): slow_wait")
        return (yield from wire_queue.roots(self.on(session), limit, long, walk))

    def hot_keys(self, session: Session[Any], n: int) -> Request[list[HotKey]]:
        """Return the deepest lanes; it scans all, unless the server begins with the deepest."""
        n = check_limit("hot_keys()", n, named="n")
        cursor, depths = yield from wire_queue.hot(self.on(session), b"0")
        is_enough = len(depths) >= n and self._handle.engine.finds_deepest
        while cursor != b"0" and not is_enough:
            cursor, some = yield from wire_queue.hot(self.on(session), cursor)
            depths |= some
        deepest = heapq.nsmallest(n, depths.items(), key=lambda one: (-one[1], one[0]))
        return [HotKey(key, depth) for key, depth in deepest]

    def limits(self, session: Session[Any], n: int) -> Request[list[LimitUse]]:
        """Return what is used of limit names."""
        n = check_limit("limits()", n, named="n")
        return (yield from wire_queue.limits(self.on(session), n))[1]

    def dead_letters(
        self, session: Session[Any], limit: int, key: Key | None
    ) -> Request[list[DeadLetter[Any]]]:
        """Return the first dead letters, with a key those that carry it.

        The key is not passed to a server that examines only a limited number of them. Another one
        may return some without the key among those of an earlier release.
        """
        limit = check_limit("dead_letters()", limit)
        named = canonical("dead_letters()", key)
        found: list[Letter] = []
        after: int | None = None
        while len(found) < limit:
            asked = named if self._handle.engine.finds_dead else None
            count = min(limit - len(found), MAX_BATCH) if named == asked else MAX_BATCH
            some = yield from wire_queue.dead_letters(self.on(session), count, after, asked)
            if not some:
                break
            found += _on(some, named)
            after = some[-1].id
        return [self._dead_letter(one) for one in found[:limit]]

    def messages(
        self, session: Session[Any], limit: int, state: object, key: Key | None, after: object
    ) -> Request[list[QueuedMessage[Any]]]:
        """Return the wanted messages with the smallest ids."""
        found = yield from self.stored(session, limit, state, key, after)
        return [self._queued(one) for one in found]

    def stored(
        self, session: Session[Any], limit: int, state: object, key: Key | None, after: object
    ) -> Request[list[Stored]]:
        """Return the same as the engine's types."""
        limit = check_limit("messages()", limit)
        check_state(state)
        named = canonical("messages()", key)
        least = 0 if after is None else check_id("messages()", after, "after")
        if _nobodys(least + 1):
            return []
        call = self.on(session)
        if named is None:
            yield from self._know_server(session)
            front = yield from self._front(session, limit, state, least)
            if front is not None:
                return front
            if state is None and self._lists_ids():
                return (yield from self._listings.first(call, least, limit))
        place = named, state, least
        ids = self._listings.find(place)
        shown, _ = yield from listing.page(call, ids, least, limit, state)
        if len(shown) < limit:
            # Messages put since that listing began have larger ids.
            behind, missing = ids[-1] if ids else least, limit - len(shown)
            some, ids = yield from self._first(session, missing, state, named, behind)
            shown += some
        last = shown[-1].id if shown else least
        self._listings.moved(place, (named, state, last), ids)
        return shown

    def _next(
        self, session: Session[Any], limit: int, state: object, least: int
    ) -> Request[list[Stored]]:
        """Return the wanted messages with the smallest ids above one, from a server that lists them
        in order."""
        found: list[Stored] = []
        cursor = str(least + 1).encode()
        while len(found) < limit and cursor != b"0":
            count = min(limit - len(found), MAX_BATCH) if state is None else _PAGE
            cursor, some = yield from wire_queue.scan(self.on(session), cursor, count, "rising")
            found += [one for one in some if state in (None, one.state)]
        return found[:limit]

    def _front(
        self, session: Session[Any], limit: int, state: object, least: int
    ) -> Request[list[Stored] | None]:
        """Return the wanted messages with the smallest ids above one, from a server that finds
        these ids; None if it does not, or returns the messages themselves in order."""
        engine = self._handle.engine
        if not engine.finds_front or (state is None if engine.is_ordered else limit > MAX_BATCH):
            return None
        found = yield from listing.front(self.on(session), limit, least, state)
        return found and found[0]

    def _know_server(self, session: Session[Any]) -> Request[None]:
        """Ask a server what it can do, if none has been called yet."""
        engine = self._handle.engine
        if not engine.is_ordered and not engine.servers:
            # The first call learns it.
            yield from wire_queue.lease_token(self.on(session), 1)

    def _lists_ids(self) -> bool:
        """Return whether messages are listed by an il1_scan of ids: the server does not list them
        in order."""
        engine = self._handle.engine
        return engine.lists_ids and not engine.is_ordered

    def _first(
        self, session: Session[Any], limit: int, state: object, named: bytes | None, least: int
    ) -> Request[tuple[list[Stored], array[int]]]:
        """Return the wanted messages with the smallest ids above one, and further ids: of
        those that a scan of all found, if the server does not list in order."""
        found: dict[int, Stored] = {}
        ids = listing.Found()
        if named is None and self._lists_ids():
            known, _ = yield from listing.larger(self.on(session), least, state)
            return (yield from listing.page(self.on(session), known, least, limit, state))
        if named is None and self._handle.engine.is_ordered:
            return (yield from self._next(session, limit, state, least)), ids.rising()
        for part in _parts(named):
            cursor = b""
            while cursor != b"0":
                cursor, some = yield from wire_queue.scan(
                    self.on(session), cursor or b"0", _PAGE, part, named
                )
                new = [one for one in some if one.id > least and state in (None, one.state)]
                found |= {one.id: one for one in new}
                ids.add(new)
                if len(found) > limit + MAX_BATCH or cursor == b"0":
                    found = {id: found[id] for id in heapq.nsmallest(limit, found)}
        shown = [found[id] for id in sorted(found)]
        return shown, ids.rising()

    def result(
        self, session: Session[Any], id: int, timeout: Seconds | None, wanted: Any
    ) -> Request[Any]:
        """Wait until a message is settled, and return its result."""
        id = check_id("result()", id)
        end = until("result()", True, timeout)
        waits = ResultWait.of_caller(self._handle, id) if end is None else None
        if waits is None:
            state, said = yield from self._ended(session, id, end)
        else:
            state, said = yield from self._ended_in_handler(session, id, waits)
        if state == b"acked":
            return decode_result(said, id, wanted) if said else None
        if state == b"dead":
            error, _, traceback = said.decode(errors="backslashreplace").partition("\n")
            reason = yield from self._why_dead(session, id, error)
            raise JobFailed(id, error, reason, traceback)
        if state == b"expired":
            raise JobFailed(id, said.decode(errors="backslashreplace"), "expired")
        if state in (b"cancelled", b"skipped"):
            raise JobFailed(id, state.decode(), state.decode())
        if state == b"pending":
            raise TimeoutError(f"message {id} was not settled in time")
        raise ResultGone(
            f"queue {self.name!r} keeps no result of message {id}: it has expired, none was "
            "requested, or there was no such message"
        )

    def state(self, session: Session[Any], id: int) -> Request[str]:
        """Return the state of a message: from peek for an unsettled one or a dead letter; else
        done, cancelled or skipped while that is kept, or gone."""
        asked = check_id("state()", id)
        if _nobodys(asked):
            return "gone"
        call = self.on(session)
        while True:
            found = yield from wire_queue.peek(call, asked)
            if found is not None:
                return found.state
            state, _ = yield from wire_queue.result(call, asked, 0)
            if state not in (b"pending", b"dead"):
                return state.decode()
            # It was put, or died, between the two calls.

    def lease_token(self, session: Session[Any], id: int) -> Request[int | None]:
        """Return the token of the lease that has a message; None if it is not leased."""
        return (yield from wire_queue.lease_token(self.on(session), id))

    def _why_dead(self, session: Session[Any], id: int, error: str) -> Request[str]:
        """Return why a message is a dead letter; see JobFailed. The engine does not store the
        reason: it follows from the error, and from the attempts compared with those of the
        policy."""
        if error == "revoked":
            return "revoked"
        call = self.on(session)
        letter = yield from wire_queue.peek(call, id)
        if letter is None:
            # It was requeued, or discarded, meanwhile.
            return "exhausted"
        most = int(letter.options.get("ATTEMPTS", b"-1"))
        if most < 0:
            # As the queue was declared; a user who may not read the options gets the defaults.
            most = self._handle.retry.attempts or 0
            with contextlib.suppress(InterlockError):
                most = int((yield from wire_queue.configured(call))["ATTEMPTS"])
        # 0 means no limit.
        return "exhausted" if 0 < most <= letter.attempt else "rejected"

    def _ended_in_handler(
        self, session: Session[Any], id: int, waits: ResultWait
    ) -> Request[tuple[bytes, bytes]]:
        """Do as `_ended`, without a time limit; raise WouldDeadlock if the result could never
        come."""
        seconds = FIRST_LOOK
        with waits:
            while True:
                found = yield from self._ended(session, id, time.monotonic() + seconds)
                if found[0] != b"pending":
                    return found
                yield from waits.look(session)
                seconds = min(2 * seconds, LONGEST_LOOK)

    def _ended(
        self, session: Session[Any], id: int, end: float | None
    ) -> Request[tuple[bytes, bytes]]:
        """Return the state and result of a message once it is settled, or the time is up."""
        if _nobodys(id):
            return b"gone", b""
        sleep: Sleep | None = None
        call = self.on(session)
        while True:
            seconds = wait.chunk(end)
            found = yield from wire_queue.result(call, id, seconds, sleep)
            if found[0] != b"pending" or wait.over(end):
                return found
            sleep = None
            if (yield from wait.parks(self._handle.engine, session, self._handle.key)):
                continue
            seconds = wait.chunk(end)
            left, due = yield from wire_queue.join(call, seconds, id)
            if left:
                sleep = yield from self._until_settled(session, f"settled:{id}", seconds, due)

    def join(self, session: Session[Any], timeout: Seconds | None) -> Request[None]:
        """Wait until no message is unsettled."""
        end = until("join()", True, timeout)
        sleep: Sleep | None = None
        while True:
            if self._handle.closed:
                raise self._handle._closed()
            seconds = wait.chunk(end)
            left, due = yield from wire_queue.join(self.on(session), seconds, sleep=sleep)
            if not left:
                return
            if wait.over(end):
                raise (yield from self._not_drained(session))
            sleep = yield from self._until_settled(session, "settled:all", seconds, due)

    def _until_settled(
        self, session: Session[Any], suffix: str, seconds: float, due: float | None
    ) -> Request[Sleep | None]:
        """Return the sleep to send with the next call; None: it has already slept."""
        engine, key = self._handle.engine, self._handle.key
        sleep = wait.sleep(engine, key, suffix, seconds, due)
        if sleep is None:
            yield from wait.doze(engine, session, key, suffix, seconds, due)
        return sleep

    def _not_drained(self, session: Session[Any]) -> Request[NotDrained]:
        """Return the error that names the remaining messages, from a scan of all unsettled ones."""
        states = ("held", "delayed", "leased", "parked")
        by_state: dict[str, set[int]] = {state: set() for state in states}
        waiting: list[int] = []
        cursor = b""
        while cursor != b"0":
            cursor, some = yield from wire_queue.scan(self.on(session), cursor or b"0", MAX_BATCH)
            for one in some:
                if one.state in by_state:
                    by_state[one.state].add(one.id)
                elif len(waiting) < _EXPLAINED:
                    waiting.append(one.id)
        held, delayed, leased, parked = (_first(by_state[name]) for name in by_state)
        paused: set[bytes] = set()
        if (yield from self.stats(session)).get("paused"):
            for id in waiting:
                explained = yield from self.explain(session, "id", id, 1)
                paused |= set(explained.nodes[0].paused if explained else ())
        return NotDrained(held, _first(paused), delayed, leased, parked)

    # -- Operating ----------------------------------------------------------------------------

    def change(self, session: Session[Any], function: str, id: int) -> Request[bool]:
        """Call a function of one message. Return True if that changed something."""
        asked = check_id(f"{function}()", id)
        return False if _nobodys(asked) else (yield from self._change(session, function, asked))

    def revoke(
        self, session: Session[Any], id: int, then: object, token: int | None = None
    ) -> Request[bool]:
        """End the lease of a message; with a token only that lease, not a later one."""
        asked, word = check_id("revoke()", id), check_then(then)
        if _nobodys(asked):
            return False
        one = () if token is None else (token,)
        revoked = yield from self._change(session, "revoke", asked, word, *one)
        if revoked and token is None:
            session.renewer.lose(self.name, asked)
        elif revoked and token is not None:
            session.renewer.revoked(self.name, asked, token)
        return revoked

    def switch(self, session: Session[Any], function: str, key: Key | None = None) -> Request[bool]:
        """Pause or resume the queue or a key; seal or reopen it. Return True if that changed it."""
        named = canonical(f"{function}()", key)
        return (yield from self._change(session, function, *(() if named is None else (named,))))

    def requeue(self, session: Session[Any], id: int) -> Request[int]:
        """Requeue a dead letter; return the new id. KeyError: it does not exist."""
        asked = check_id("requeue()", id)
        new = None
        if not _nobodys(asked):
            new = yield from wire_queue.requeue(self.on(session), asked, again=False)
        if new is None:
            raise KeyError(f"message {id} is not a dead letter of queue {self.name!r}")
        return new

    def announce(
        self, session: Session[Any], worker: str, seconds: float, text: str
    ) -> Request[list[Asked]]:
        """Announce a worker; see ``RemoteQueue._announce``. It declares no queue."""
        call = self._handle.engine.calls(session, self._handle.key)
        return (yield from wire_queue.announce(call, worker, seconds, text))

    def purge(self, session: Session[Any], what: str, key: Key | None) -> Request[int]:
        """Purge until nothing is left to purge; return the number.

        With a key those that carry it at the beginning.
        """
        check_purged(what)
        named = canonical("purge()", key)
        purged = 0
        if named is None:
            while count := (yield from wire_queue.purge(self.on(session), what)):
                purged += count
            return purged
        ids = yield from (self._dead_on if what == "dead" else self._pending_on)(session, named)
        function = "discard" if what == "dead" else "cancel"
        for id in ids:
            purged += yield from self._change(session, function, id)
        return purged

    def drop(self, session: Session[Any], force: bool) -> Request[bool]:
        """Remove the queue without declaring it: the declaration would make it first."""
        engine, key = self._handle.engine, self._handle.key
        found = yield from wire_queue.drop(engine.calls(session, key), force)
        if found.unsettled and not found.gone:
            raise InterlockError(
                f"queue {self.name!r} holds {found.unsettled:,} unsettled messages, "
                f"{found.leased:,} of them leased; drop(force=True) loses them"
            )
        # A later use of this handle makes the queue as it declares it.
        self._handle.declaration.forget()
        return found.gone

    def _change(self, session: Session[Any], function: str, *asked: Argument) -> Request[bool]:
        """Call a function that does nothing the second time, and reports that.

        If it was repeated after a lost reply, its answer counts only if it changed something.
        """
        call = self.on(session)
        try:
            return (yield from wire_queue.change(call, function, *asked, again=False))
        except EngineUnavailable as error:
            if not error.unknown:
                raise
            if not (yield from wire_queue.change(call, function, *asked)):
                raise
            return True

    def _dead_on(self, session: Session[Any], key: bytes) -> Request[list[int]]:
        ids: list[int] = []
        after: int | None = None
        asked = key if self._handle.engine.finds_dead else None
        call = self.on(session)
        while some := (yield from wire_queue.dead_letters(call, MAX_BATCH, after, asked)):
            ids += [one.id for one in _on(some, key)]
            after = some[-1].id
        return ids

    def _pending_on(self, session: Session[Any], key: bytes) -> Request[list[int]]:
        found: set[int] = set()
        for part in _parts(key):
            cursor = b""
            while cursor != b"0":
                cursor, some = yield from wire_queue.scan(
                    self.on(session), cursor or b"0", _PAGE, part, key
                )
                found |= {one.id for one in some}
        # Leased messages do not change.
        return sorted(found)

    # -- How calls are made -------------------------------------------------------------------

    def on(self, session: Session[Any]) -> wire_queue.Call:
        """Return the functions of this queue, to be called on a session, after declaring it."""
        handle = self._handle
        return handle.engine.calls(session, handle.key, handle.declaration)

    # -- Contents of a server ------------------------------------------------------------------

    def _dead_letter(self, letter: Letter) -> DeadLetter[Any]:
        return DeadLetter(
            letter.id,
            self._handle.codec.or_bytes(letter.payload),
            frozenset(letter.keys),
            frozenset(letter.shared),
            letter.attempts,
            letter.error,
            letter.priority,
        )

    def _queued(self, one: Stored) -> QueuedMessage[Any]:
        payload = self._handle.codec.or_bytes(one.payload)
        keys, shared = frozenset(one.keys), frozenset(one.shared)
        state: Any = one.state
        names = one.limit, one.group, one.coalesce, one.behind
        return QueuedMessage(
            one.id, payload, keys, shared, one.priority, one.attempt, state, one.error, *names
        )


def _on(found: Iterable[Held], key: bytes | None) -> list[Held]:
    """Return those that carry the key; None: all."""
    return [one for one in found if key is None or key in one.keys or key in one.shared]


def _parts(key: bytes | None) -> tuple[wire_queue.Part | None, ...]:
    """Return what to scan for the unsettled messages of a key; None: for all.

    A delayed message that falls due meanwhile moves to the end of the lane, which is scanned later.
    """
    return (None,) if key is None else ("delayed", "key")


def _nobodys(id: int) -> bool:
    """Return True if no message can have this id."""
    return not 0 < id <= MAX_NUMBER


def _first(found: set[R]) -> tuple[R, ...]:
    return tuple(sorted(found)[:_UNDRAINED])  # type: ignore[type-var]
