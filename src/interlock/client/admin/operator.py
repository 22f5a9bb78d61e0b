"""An operator's requests to the queues on a server, regardless of the programs that use them.

`RemoteQueue` is for a program that knows the contents of its queue. This class is for viewing all
queues: payloads and keys are bytes, and nothing is declared, so that viewing changes nothing.
"""

from __future__ import annotations

import contextlib
import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from interlock import audit
from interlock.client.connection import refusals
from interlock.client.request import Argument, Refused, Request
from interlock.client.wire import admin as wire_queue
from interlock.client.wire import declaration, listing
from interlock.client.wire import messages as wire
from interlock.client.wire.events import Events
from interlock.client.wire.records import Dropped, Letter, NewKeys, Stored
from interlock.client.wire.worker_directory import Announced
from interlock.errors import InterlockError
from interlock.explanation import Explanation, LimitUse, key_names
from interlock.message import Kind, Put
from interlock.roots import Roots
from interlock.runtime.limits import MAX_BATCH, MAX_WALKED

if TYPE_CHECKING:
    from interlock.client.admin.server import Installed, Server
    from interlock.client.connection.call import Engine
    from interlock.client.connection.server_settings import Finding
    from interlock.client.session import Session


class Operator:
    """The queues of one server. A refusal by the server is an InterlockError."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._call = server.call
        self.note = NOTE if server.is_local else ""
        """The words that are added if nothing was found."""
        self.shown = server.shown
        """The engine's URL, without its password."""

    def queues(self) -> list[str]:
        """Return the names of all queues, sorted."""
        return sorted(name.decode(errors="backslashreplace") for name in set(self._server.queues()))

    def options(self, queue: str) -> dict[str, str]:
        """Return the declared options, or their defaults, by the names of `il1_configure`."""
        return self._call(queue, wire_queue.configured)

    def configure(self, queue: str, options: dict[str, str]) -> None:
        """Declare options, by the same names; OptionsMismatch if others are declared."""
        parts = (part.encode(errors="surrogateescape") for one in options.items() for part in one)
        self._call(queue, wire_queue.configured, *parts)

    def change_options(self, queue: str, changed: Mapping[str, Argument]) -> dict[str, str]:
        """Change options, by the same names; return all options then in force."""

        def change() -> dict[str, str]:
            return self._call(queue, wire_queue.configured, *declaration.change(changed))

        what = ", ".join(
            f"{name} {value.decode() if isinstance(value, bytes) else value}"
            for name, value in changed.items()
        )
        return audit.recorded("configure", queue, what, change, audit.changed)

    def stats(self, queue: str) -> dict[str, int]:
        """Return the counts, by name."""
        return self._call(queue, wire_queue.stats)

    def all_stats(self) -> dict[str, dict[str, int]]:
        """Return the counts of all queues by name, in order, in few round trips.

        Keys that only look like a queue, and queues that the user may not read, are left out.
        """
        names = self.queues()
        return {
            name: wire_queue.numbers(reply)
            for name, reply in zip(names, self.each("stats", names), strict=True)
            if not isinstance(reply, Refused)
        }

    def each(
        self, function: str, queues: Sequence[str], *arguments: Argument
    ) -> list[list[bytes] | Refused]:
        """Call a function that only reads, such as ``stats``, on many queues in few round trips.

        Return the raw reply for each queue, in their order, or the error in its place: for
        instance, the queue no longer exists.
        """
        found = self._server.call_each(function, queues, *arguments)
        refused = next((at for at, one in enumerate(found) if isinstance(one, Refused)
                        and refusals.course_of(one, function)[0] == "retry"), None)  # fmt: skip
        if refused is None:
            return found
        # A separate call follows redirections, and reinstalls a lost library.
        with contextlib.suppress(InterlockError, ValueError):
            self._call(queues[refused], _plain, function, *arguments)
        return self._server.call_each(function, queues, *arguments)

    def messages(self, queue: str) -> Iterator[Stored]:
        """Yield all unsettled messages, each once, in no order.

        The cost grows with the queue.
        """
        seen: set[int] = set()
        for message in self._scanned(queue):
            if message.id not in seen:
                seen.add(message.id)
                yield message

    def front(
        self, queue: str, limit: int, state: str | None = None
    ) -> tuple[list[Stored], bool] | None:
        """Return the unsettled messages with the smallest ids, at most `limit`, of all or of those
        in a state, and whether there are no others.

        Return None if only `messages` finds them.
        """
        if limit > MAX_BATCH or not self._server.finds_front(queue):
            return None
        return self._call(queue, listing.front, limit, 0, state)

    def dead(self, queue: str) -> Iterator[Stored]:
        """Return the dead letters with all stored details, in the order of their deaths."""
        return self._scanned(queue, "dead")

    def lane(
        self, queue: str, key: bytes, after: int | None = None, page: int | None = None
    ) -> Iterator[Stored]:
        """Yield the messages in a key's lane, each once, in order, at most `page` in a call.

        If message `after` is in the lane, only those after it. Delayed messages are in no lane.
        """
        seen: set[int] = set()
        cursor = str(after or 0).encode()
        while True:
            cursor, some = self._call(queue, wire_queue.scan, cursor, page or PAGE, "key", key)
            for message in some:
                if message.id not in seen:
                    seen.add(message.id)
                    yield message
            if cursor == b"0":
                return

    def delayed(self, queue: str, key: bytes) -> Iterator[Stored]:
        """Yield the delayed messages of a key, in no order."""
        return self._scanned(queue, "delayed", key)

    def _scanned(
        self, queue: str, part: wire_queue.Part | None = None, key: bytes | None = None
    ) -> Iterator[Stored]:
        cursor = b""
        while cursor != b"0":
            cursor, some = self._call(queue, wire_queue.scan, cursor or b"0", PAGE, part, key)
            yield from some

    def page(
        self, queue: str, cursor: bytes, count: int, what: Literal["dead", "newest"] | None = None
    ) -> tuple[bytes, list[Stored]]:
        """Return the next cursor and about `count` unsettled messages, or dead letters.

        The cursor is ``b"0"`` at the beginning, and at the end.
        """
        return self._call(queue, wire_queue.scan, cursor, count, what)

    def newest_dead(self, queue: str, after: int | None = None) -> Iterator[Stored]:
        """Yield the dead letters, the latest death first; if `after` names one, those after it.

        If that one no longer exists, nothing follows.
        """
        cursor = b"" if after is None else str(after).encode()
        while cursor != b"0":
            cursor, some = self.page(queue, cursor or b"0", PAGE, "newest")
            yield from some

    def dead_letters(self, queue: str, after: int | None = None) -> Iterator[Letter]:
        """Yield the dead letters, in the order of their deaths.

        If `after` names one, those after it.
        """
        while some := self._call(queue, wire_queue.dead_letters, PAGE, after):
            yield from some
            after = some[-1].id

    def hot_keys(self, queue: str, limit: int, pages: int | None = None) -> list[tuple[bytes, int]]:
        """Return the keys with most unsettled messages and their numbers, the largest first.

        They are among the keys that were seen in `pages` round trips.
        """
        cursor = b"0"
        found: dict[bytes, int] = {}
        while True:
            cursor, some = self._call(queue, wire_queue.hot, cursor)
            found.update(some)
            if pages is not None:
                pages -= 1
            last = cursor == b"0" or pages == 0
            if last or len(found) > limit + MANY:
                # A queue may have millions of keys.
                first = heapq.nsmallest(limit, found.items(), key=lambda one: (-one[1], one[0]))
                if last:
                    return first
                found = dict(first)

    def limits(self, queue: str, count: int) -> tuple[int, list[LimitUse]]:
        """Return how many limit names messages wait for, and what is used of those with most."""
        return self._call(queue, wire_queue.limits, count)

    def events(self, queue: str, after: int | None, count: int = 1024, seconds: float = 10
               ) -> Events:  # fmt: skip
        """Watch a queue for this long, and return the events of its messages.

        Args:
            after: events after the one of this number; None: no events, only the current number.
            count: maximum number of events, 1 to 1,024.
            seconds: above 0, at most 60.
        """
        return self._call(queue, wire_queue.events, after, count, seconds)

    def workers(self, queue: str) -> list[Announced]:
        """Return the workers that announced themselves at a queue, by name."""
        found: list[Announced] = []
        after = ""
        while some := self._call(queue, wire_queue.workers, after, PAGE):
            found += some
            after = some[-1].worker
        return found

    def all_workers(self, queues: Sequence[str] | None = None) -> Iterator[tuple[str, Announced]]:
        """Yield the workers of these queues, all unless given, each with the queue of its
        announcement."""
        names = self.queues() if queues is None else queues
        for name, reply in zip(names, self.each("workers", names, "", 1), strict=True):
            # Most queues have no worker; one round trip for many queues shows that.
            if not isinstance(reply, Refused) and reply:
                for one in self.workers(name):
                    yield name, one

    def is_served(self, queue: str, names: Sequence[str] | None = None) -> bool:
        """Return whether a program takes messages from a queue, as far as the engine knows.

        That is a worker that has announced itself, at any queue, or a holder of leases. A program
        that takes from the queue in another way does not announce itself. For an engine in memory
        nothing is known, and the result is True.

        Args:
            names: the queues of the engine; requested unless given.
        """
        if self._server.is_local or self.stats(queue).get("leased"):
            return True
        if any(one.serves(queue, queue) for one in self.workers(queue)):
            return True
        return any(one.serves(queue, name) for name, one in self.all_workers(names))

    def ask(self, queue: str, worker: str, text: str) -> int | None:
        """Leave a request for a worker, of at most 4,096 bytes.

        Returns its number, or None if no such worker is announced.
        """

        def ask() -> int | None:
            return self._call(queue, wire_queue.ask, worker, text)

        if _asks_to_drain(text):
            return audit.recorded("drain", queue, f"worker {worker}", ask, audit.changed)
        return ask()

    def forget(self, queue: str, id: int) -> bool:
        """Drop the stored result of a message. Return False if none is stored."""
        return self.change("forget", queue, id)

    def peek(self, queue: str, id: int) -> Stored | None:
        """Return an unsettled message, or a dead letter; None if this id is unknown."""
        return self._call(queue, wire_queue.peek, id)

    def explain(
        self, queue: str, *, id: int | None = None, key: bytes = b"", limit: int = 100
    ) -> Explanation | None:
        """Explain why a message waits, or what blocks a key.

        Return None if it does not exist.
        """
        if id is not None:
            return self._call(queue, wire_queue.explain, "id", id, limit)
        return self._call(queue, wire_queue.explain, "key", key, limit)

    def roots(
        self, queue: str, limit: int = 10, slow_wait: float = 60, walk: int = MAX_WALKED
    ) -> Roots:
        """Return what blocks other messages, and how many wait for it.

        Args:
            limit: maximum number of roots, 1 to 1,024.
            slow_wait: seconds after which a running handler counts.
            walk: maximum number of messages counted behind a root, 1 to 2,000.
        """
        return self._call(queue, wire_queue.roots, limit, slow_wait, walk)

    def blocked(
        self,
        queue: str,
        ids: Sequence[int] = (),
        keys: Sequence[bytes] = (),
        walk: int = MAX_WALKED,
    ) -> tuple[int, bool]:
        """Return how many messages wait behind these, each counted once, and whether that is all.

        A key counts as if it were paused; an empty one stands for the whole queue.
        """
        return self._call(queue, wire_queue.count_blocked, walk, ids, keys)

    def change(self, function: str, queue: str, *arguments: Argument) -> bool:
        """Call cancel, revoke, retry, skip, bury, discard, forget, seal or reopen.

        Return True if that changed something.
        """

        def change() -> bool:
            return self._call(queue, wire_queue.change, function, *arguments)

        what = " ".join(("message", *map(str, arguments))) if arguments else ""
        return audit.recorded(function, queue, what, change, audit.changed)

    def gate(self, function: Literal["pause", "resume"], queue: str, keys: Sequence[bytes] = ()
             ) -> list[bool]:  # fmt: skip
        """Pause or resume keys, or the queue; return True for each that changed."""

        def gate() -> list[bool]:
            return self._call(queue, wire_queue.gate, function, keys)

        named = key_names(keys)
        more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
        what = f"keys {', '.join(named[:NAMED])}{more}" if named else ""
        return audit.recorded(function, queue, what, gate, lambda found: audit.changed(any(found)))

    def requeue(
        self, queue: str, id: int, payload: bytes | None = None, keys: NewKeys | None = None
    ) -> int | None:
        """Requeue a dead letter.

        Args:
            payload: replaces its own. Default: as it was.
            keys: replace its own, and its limits, group and run if they are stated; only together
                with `payload`. Default: as they were.

        Returns its new id, None if there is no such dead letter.
        """

        def requeue() -> int | None:
            return self._call(queue, wire_queue.requeue, id, payload, keys)

        action = "requeue" if payload is None else "edit"
        return audit.recorded(
            action,
            queue,
            f"message {id}",
            requeue,
            lambda new: "unchanged" if new is None else f"requeued as {new}",
        )

    def discard(self, queue: str, id: int) -> bool:
        """Drop a dead letter. Return False if this id does not exist."""
        return self.change("discard", queue, id)

    def purge(self, queue: str, what: Literal["pending", "dead"], most: int) -> int:
        """Cancel or drop all, some per call; return the number. It stops after at most `most`.

        Otherwise a busy producer could keep it running forever.
        """
        done = 0

        def purge() -> int:
            nonlocal done
            while done < most and (some := self._call(queue, wire_queue.purge, what)):
                done += some
            return done

        word = "cancelled" if what == "pending" else "discarded"
        return audit.recorded(
            "purge",
            queue,
            what,
            purge,
            lambda count: f"{count} {word}",
            partly=lambda: f"{done} {word}" if done else "",
        )

    def paused(self, queue: str) -> set[bytes]:
        """Return the paused keys; an empty one stands for the whole queue."""
        cursor = b""
        found: set[bytes] = set()
        while cursor != b"0":
            cursor, some = self._call(queue, wire_queue.paused, cursor or b"0")
            found |= some
        return found

    def drop(self, queue: str, force: bool = False) -> Dropped:
        """Remove a queue; with `force` even if messages are unsettled."""

        def drop() -> Dropped:
            return self._call(queue, wire_queue.drop, force)

        def told(was: Dropped) -> str:
            held = f"{was.unsettled} messages and {was.dead} dead letters"
            return f"dropped with {held}" if was.gone else f"refused: it holds {held}"

        return audit.recorded("drop", queue, "force" if force else "", drop, told)

    def remove(self, queue: str) -> None:
        """Drop a queue that is no longer used.

        This also removes, immediately, everything that a server keeps for repeated calls.
        """
        self.drop(queue, force=True)
        self._server.remove(queue)

    def install(self, replace: bool = False) -> list[Installed]:
        """Install the library of functions on each server.

        Return for each its address, its present release, and ``installed``, ``known``, ``newer`` or
        ``built-in``.
        """
        return self._server.install(replace)

    def settings(self) -> list[tuple[str, list[Finding] | str]]:
        """Return for each server the settings that affect queues, or why they are not known.

        The result is empty for a hub.
        """
        return self._server.settings()

    def put(self, queue: str, message: wire.Message) -> Put:
        """Put a message, if the queue has room."""
        (put,) = self._server.numbered(queue, wire.put, [message], 0)
        return put

    def lease(self, queue: str, seconds: float, kind: Kind) -> wire.Leased:
        """Lease a message, if one is ready."""
        return self._server.numbered(queue, _lease, (1, wire.micros(seconds), kind))

    def extend(self, queue: str, token: int, seconds: float) -> bool:
        """Set the deadline of a lease to this many seconds from now. Return False if it is lost."""
        return self._server.numbered(queue, wire.extend, token, seconds)

    def settle(self, queue: str, settlement: wire.Settlement) -> bool:
        """Settle a message. Return False if its lease is lost."""
        return self._server.numbered(queue, wire.settle, [settlement]) != [wire.LOST]

    def restore(self, queue: str, items: Sequence[tuple[str, Stored]]) -> list[tuple[int, str]]:
        """Put messages with their state from another queue, each with a mark that is known for a
        day.

        Return the id and the state of each.
        """
        return self._call(queue, wire_queue.restore, DAY, items)


def _asks_to_drain(text: str) -> bool:
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return bool(json.loads(text)["ask"] == "drain")
    return False


def _plain(call: wire_queue.Call, function: str, *arguments: Argument) -> Request[list[bytes]]:
    return (yield from call(function, *arguments))


def _lease(
    engine: Engine, session: Session[Any], key: str, lease: tuple[int, int, Kind]
) -> Request[wire.Leased]:
    session.calls += 1
    _, leased = yield from wire.take(engine, session, key, session.calls, (), lease)
    return leased


NOTE = "; memory:// has only the queues of this process"
MANY = 100_000
NAMED = 20
"""Number of keys that the audit log names."""
PAGE = 512
"""Messages, dead letters or keys per round trip."""
DAY = 86_400_000_000
