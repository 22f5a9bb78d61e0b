"""An operator's requests to the queues on a server, whichever programs they belong to.

`RemoteQueue` is for a program that knows what its queue holds. This is for who looks at all queues:
payloads and keys are bytes, and nothing is declared, so that looking changes nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol

from interlock.engine import records
from interlock.engine.records import Dropped, Letter, Stored
from interlock.explanation import Explanation

Word = str | bytes | int


Installed = tuple[str, str, str]


class Caller(Protocol):
    """A way to call the functions of a server."""

    @property
    def is_local(self) -> bool:
        """The queues are those of this process alone."""
        ...

    def call(self, function: str, queue: str, *arguments: Word) -> Sequence[bytes]:
        """Calls `il1_` and `function` on a queue, and gives the reply. Raises InterlockError for
        what the server refuses, and for a server that does not answer."""
        ...

    def numbered(self, function: str, queue: str, *arguments: Word) -> Sequence[bytes]:
        """The same for a function that begins with consumer and call, which are put before."""
        ...

    def queues(self) -> Iterable[bytes]:
        """The names of all queues."""
        ...

    def remove(self, queue: str) -> None:
        """Drops what is left of a queue that nobody uses and that is empty."""
        ...

    def install(self, replace: bool) -> list[Installed]:
        """Gives each server the library of functions, where it is no newer one's or `replace`."""
        ...


class Operator:
    """The queues of one server. What the server refuses is an InterlockError."""

    def __init__(self, caller: Caller) -> None:
        self.call = caller.call
        self.numbered = caller.numbered
        self._caller = caller
        self.note = NOTE if caller.is_local else ""
        """The words that are added where nothing was found."""

    def queues(self) -> list[str]:
        """The names of all queues, sorted."""
        return sorted(name.decode(errors="backslashreplace") for name in set(self._caller.queues()))

    def options(self, queue: str) -> dict[str, str]:
        """The options that are declared, or else usual, by the names of `il1_configure`."""
        return records.words(self.call("configure", queue))

    def stats(self, queue: str) -> dict[str, int]:
        """The counts, by name."""
        return records.numbers(self.call("stats", queue))

    def messages(self, queue: str) -> Iterator[Stored]:
        """All unsettled messages, each once, in no order; with what the queue holds, that costs."""
        cursor = b"0"
        seen: set[int] = set()
        while True:
            cursor, some = records.scanned(self.call("scan", queue, cursor, PAGE))
            for message in some:
                if message.id not in seen:
                    seen.add(message.id)
                    yield message
            if cursor == b"0":
                return

    def dead(self, queue: str) -> Iterator[Stored]:
        """The dead letters with all that is known of them, in the order in which they died."""
        cursor = b"0"
        while True:
            cursor, some = records.scanned(self.call("scan", queue, cursor, PAGE, "dead"))
            yield from some
            if cursor == b"0":
                return

    def dead_letters(self, queue: str, after: int | None = None) -> Iterator[Letter]:
        """The dead letters, in the order in which they died; those behind `after` if it names
        one."""
        last: Word = "" if after is None else after
        while some := records.letters(self.call("dead_letters", queue, PAGE, last)):
            yield from some
            last = some[-1].id

    def hot_keys(self, queue: str, limit: int, pages: int | None = None) -> list[tuple[bytes, int]]:
        """The keys with most unsettled messages and how many those are, the most first; of the
        keys that were seen in `pages` round trips."""
        cursor = b"0"
        found: dict[bytes, int] = {}
        while True:
            cursor, some = records.depths(self.call("hot", queue, cursor))
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

    def peek(self, queue: str, id: int) -> Stored | None:
        """An unsettled message, or a dead letter; None if there is none of this id."""
        return records.peeked(self.call("peek", queue, id))

    def explain(
        self, queue: str, *, id: int | None = None, key: bytes = b"", limit: int = 100
    ) -> Explanation | None:
        """Explains why a message waits, or what stands on a key; None for what is not there."""
        asked: tuple[Word, Word] = ("id", id) if id is not None else ("key", key)
        return records.explanation(self.call("explain", queue, *asked, limit))

    def change(self, function: str, queue: str, *arguments: Word) -> bool:
        """cancel, revoke, retry, skip, bury, seal or reopen; whether that changed anything."""
        return self.call(function, queue, *arguments) == [b"1"]

    def gate(self, function: Literal["pause", "resume"], queue: str, keys: Sequence[bytes] = ()
             ) -> list[bool]:  # fmt: skip
        """Pauses or resumes keys, or the queue; for each whether that changed anything."""
        return [one == b"1" for one in self.call(function, queue, *keys)]

    def requeue(self, queue: str, id: int) -> int | None:
        """Puts a dead letter again; its new id, None if there is no such dead letter."""
        reply = self.call("requeue", queue, id)
        return records.number(reply) if reply else None

    def discard(self, queue: str, id: int) -> bool:
        """Drops a dead letter; False if there is none of this id."""
        return self.change("discard", queue, id)

    def purge(self, queue: str, what: Literal["pending", "dead"]) -> int:
        """Cancels or drops some; how many, 0 once nothing is left."""
        return records.number(self.call("purge", queue, what))

    def paused(self, queue: str) -> set[bytes]:
        """The paused keys; an empty one is the queue itself."""
        cursor = b"0"
        found: set[bytes] = set()
        while True:
            cursor, some = records.paused(self.call("paused", queue, cursor))
            found |= some
            if cursor == b"0":
                return found

    def drop(self, queue: str, force: bool = False) -> Dropped:
        """Removes a queue; with `force` although messages are unsettled."""
        return records.dropped(self.call("drop", queue, *(("FORCE",) if force else ())))

    def remove(self, queue: str) -> None:
        """Drops a queue that nobody uses any more, at once with all that a server keeps for calls
        that are sent again."""
        self.drop(queue, force=True)
        self._caller.remove(queue)

    def install(self, replace: bool = False) -> list[Installed]:
        """Gives each server the library of functions; of each its address, the release that it has
        now, and ``installed``, ``known``, ``newer`` or ``built-in``."""
        return self._caller.install(replace)

    def put(self, queue: str, messages: Iterable[Sequence[Word]]) -> list[tuple[int, bool]]:
        """Puts messages, each as `il1_put` takes it; of each its id and whether it was known."""
        flat = [part for one in messages for part in one]
        return records.puts(self.numbered("put", queue, 0, *flat))

    def restore(self, queue: str, items: Iterable[Sequence[Word]]) -> list[tuple[int, str]]:
        """Puts messages as they stood elsewhere, each as `il1_restore` takes it; of each its id and
        how it stands. A mark is known for a day."""
        flat = [part for one in items for part in one]
        return records.restored(self.call("restore", queue, DAY, *flat))


NOTE = "; memory:// has the queues of this process alone"
MANY = 100_000
PAGE = 512
"""Messages, dead letters or keys of one round trip."""
DAY = 86_400_000_000
