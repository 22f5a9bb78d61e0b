# Made from aio_queue.py by scripts/faces.py: change that, and run `make generate`.
"""A queue on an engine, for threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, TypeVar

from interlock.client.faces.consumer import consume
from interlock.client.faces.lease import RemoteLease
from interlock.client.requests.lease_state import RemoteLeaseBatch
from interlock.client.requests.queue_handle import Handle
from interlock.client.wire import messages as wire
from interlock.client.wire.functions import DeclaredOptions, Durability
from interlock.errors import InterlockError
from interlock.explanation import Explanation, LimitUse
from interlock.message import DeadLetter, HotKey, Key, Keys, Kind, Put, QueuedMessage, State, Stats
from interlock.retry import Retry, Seconds
from interlock.roots import Roots
from interlock.runtime.concurrency import Behind, Limits, Names, Weights
from interlock.runtime.limits import MAX_WALKED

if TYPE_CHECKING:
    from interlock.client.faces.aio_queue import AsyncRemoteQueue
    from interlock.client.faces.client import Client
    from interlock.consumer import Consumer

T = TypeVar("T")


class RemoteQueue(Generic[T]):
    """A queue on an engine: ``KeyedQueue`` for any number of processes.

    ``Client.queue`` makes it. Its calls mean the same as there; each calls the engine,
    and raises ``EngineUnavailable`` if that does not answer within the client's timeout,
    added to the call's own wait. Any thread may use it. ``aio`` is its asyncio face.
    """

    def __init__(self, client: Client, handle: Handle) -> None:
        self._client = client
        self._handle = handle
        self._operations = handle.operations
        self._sessions = client._sessions
        self._run = client._sessions.run
        self._retry = handle.retry

    @property
    def name(self) -> str:
        """The queue's name on its engine."""
        return self._handle.name

    @property
    def aio(self) -> AsyncRemoteQueue[T]:
        """The asyncio face of this queue."""
        from interlock.client.faces.aio_queue import AsyncRemoteQueue

        return AsyncRemoteQueue(self._client.aio, self._handle)

    # -- In and out ---------------------------------------------------------------------------

    def put(
        self,
        payload: T,
        block: bool = True,
        timeout: Seconds | None = None,
        *,
        keys: Keys | None = None, shared: Keys | None = None, priority: int = 0, delay: Seconds = 0,
        dedup: str | None = None, barrier: bool = False, quiet: bool = False,
        limit: Names | None = None, group: str | None = None, behind: Behind | None = None,
        coalesce: Key | None = None, debounce: Seconds | None = None,
        longest: Seconds | None = None, run: int | None = None, label: str = "",
        retry: Retry | None = None, result_ttl: Seconds = 0,
    ) -> int:  # fmt: skip
        """Put a message and return its id; see ``KeyedQueue.put``.

        Args:
            limit, group: names of limits, and the name of a group; see ``KeyedQueue.put``.
            behind: what happens to it behind a failure. Default: what the queue says.
            coalesce, debounce, longest: a coalescing name; see ``KeyedQueue.put``.
            run, label: size of its run, 2 to 1,024, and its label; see ``get_many``.
            retry: the message's own retry policy. Default: the queue's.
            result_ttl: seconds for which its result is kept after settlement. Default 0: not.

        Raises:
            Full: there was no room in time; or the engine is at its memory limit; or, at once, the
                message waits on a paused or stuck key and half of the queue's bound is parked.
            ShutDown: the queue is sealed, or this handle closed.
            PayloadError: the payload cannot be encoded; nothing was put.
            TypeError, ValueError: an argument is of a wrong type or out of its range; nothing was
                put.
            EngineUnavailable: the engine did not answer in time.
        """
        done = self._sessions.put(
            self._handle, "put()", payload, block, timeout,
            keys, shared, priority, delay, dedup, barrier, quiet, retry, result_ttl,
            limit=limit, group=group, behind=behind,
            coalesce=coalesce, debounce=debounce, longest=longest, run=run, label=label,
        )  # fmt: skip
        return done.id

    def put_known(
        self,
        payload: T,
        block: bool = True,
        timeout: Seconds | None = None,
        *,
        keys: Keys | None = None, shared: Keys | None = None, priority: int = 0, delay: Seconds = 0,
        dedup: str | None = None, barrier: bool = False, quiet: bool = False,
        limit: Names | None = None, group: str | None = None, behind: Behind | None = None,
        coalesce: Key | None = None, debounce: Seconds | None = None,
        longest: Seconds | None = None, retry: Retry | None = None, result_ttl: Seconds = 0,
    ) -> Put:  # fmt: skip
        """Put as ``put``; also return whether the dedup string was known, so nothing was put, or
        the payload of an earlier message was replaced."""
        return self._sessions.put(
            self._handle, "put_known()", payload, block, timeout,
            keys, shared, priority, delay, dedup, barrier, quiet, retry, result_ttl,
            limit=limit, group=group, behind=behind,
            coalesce=coalesce, debounce=debounce, longest=longest,
        )  # fmt: skip

    def put_nowait(
        self, payload: T, *, keys: Keys | None = None, shared: Keys | None = None,
        priority: int = 0, delay: Seconds = 0, dedup: str | None = None, barrier: bool = False,
        quiet: bool = False, limit: Names | None = None, group: str | None = None,
        behind: Behind | None = None, coalesce: Key | None = None, debounce: Seconds | None = None,
        longest: Seconds | None = None, retry: Retry | None = None, result_ttl: Seconds = 0,
    ) -> int:  # fmt: skip
        """Put as ``put``, without waiting for room: raise ``Full`` immediately if it is full."""
        done = self._sessions.put(
            self._handle, "put_nowait()", payload, False, None,
            keys, shared, priority, delay, dedup, barrier, quiet, retry, result_ttl,
            limit=limit, group=group, behind=behind,
            coalesce=coalesce, debounce=debounce, longest=longest,
        )  # fmt: skip
        return done.id

    def put_many(
        self,
        items: Iterable[T],
        block: bool = True,
        timeout: Seconds | None = None,
        *,
        keys: Keys | Callable[[T], Keys] | None = None,
        shared: Keys | Callable[[T], Keys] | None = None,
        priority: int = 0,
        delay: Seconds = 0,
        dedup: Callable[[T], str | None] | None = None,
        quiet: bool = False,
        each_keys: Iterable[Keys | None] | None = None,
        each_shared: Iterable[Keys | None] | None = None,
        limit: Names | Callable[[T], Names | None] | None = None,
        group: str | Callable[[T], str | None] | None = None,
        behind: Behind | Callable[[T], Behind | None] | None = None,
        coalesce: Key | Callable[[T], Key | None] | None = None,
        debounce: Seconds | None = None,
        longest: Seconds | None = None,
    ) -> list[int]:
        """Put a batch in order, all of it or nothing; see ``KeyedQueue.put_many``.

        Raises:
            ValueError: the batch exceeds the bounds of the queue, 1,024 messages or 48 MiB of
                encoded payloads; nothing was put.
        """
        done = self._run(
            self._handle, self._handle.put_many, items, block, timeout,
            keys, shared, priority, delay, dedup, quiet, each_keys, each_shared, limit, group,
            behind, coalesce, debounce, longest,
        )  # fmt: skip
        return [put.id for put in done]

    def get(
        self,
        block: bool = True,
        timeout: Seconds | None = None,
        *,
        kind: Kind = "any",
    ) -> RemoteLease[T]:
        """Take the next message; see ``KeyedQueue.get``.

        Raises:
            Empty: no message was ready in time.
            ShutDown: the queue is sealed and nothing unsettled is left; or this handle is closed.
            PayloadError: its payload is not of the queue's type; it was nacked.
            EngineUnavailable: the engine did not answer in time.
        """
        return (self._leased("get()", 1, block, timeout, kind))[0]

    def get_nowait(self, *, kind: Kind = "any") -> RemoteLease[T]:
        """Take as ``get``, without waiting: raise ``Empty`` immediately if no message is ready."""
        return (self._leased("get_nowait()", 1, False, None, kind))[0]

    def get_many(
        self,
        limit: int,
        block: bool = True,
        timeout: Seconds | None = None,
        *,
        kind: Kind = "any",
        runs: bool = False,
    ) -> RemoteLeaseBatch[RemoteLease[T]]:
        """Take at least one message, at most ``limit``, in one lease; otherwise as ``get``.

        The batch ends with the message with which the payloads reach 1 MiB in total. With ``runs``
        the rest of its run follows each, beyond ``limit``; settle them in this order.
        """
        asked = f"{kind}+" if runs and kind != "unkeyed" else kind
        return RemoteLeaseBatch(self._leased("get_many()", limit, block, timeout, asked))

    def ack_many(self, leases: Iterable[RemoteLease[T]]) -> None:
        """Settle all these leases; raise the first LeaseLost after settling the others."""
        opened, refused = self._handle.opened(leases)
        if opened:
            try:
                settlements = [one.acking() for one in opened]
                answers = self._run(None, self._handle.settle, settlements)
            except BaseException:
                for one in opened:
                    one._reopened()
                raise
            refused = self._handle.lost(opened, answers) + refused
        for one in refused:
            raise one._refusal()

    def consume(
        self,
        handler: Callable[[T], object],
        *,
        threads: int = 1,
        timeout: Seconds | None = None,
        kind: Kind = "any",
    ) -> Consumer:
        """Run ``handler(payload)`` for every message; see ``KeyedQueue.consume``.

        A message is settled in one round trip with the lease of the next. While the
        engine cannot be reached, it keeps trying. It ends by itself when the queue is
        sealed and drained.
        """
        return consume(self, handler, threads, timeout, kind)

    def exchange(
        self,
        settlements: Sequence[wire.Settlement],
        limit: int,
        block: bool = True,
        timeout: Seconds | None = None,
        *,
        kind: Kind = "any",
    ) -> tuple[list[str], list[RemoteLease[T]]]:
        """Settle, then lease up to ``limit`` messages, in one round trip: for workers.

        ``settlements`` come from ``acking`` and the similar methods of a lease. Return the outcome
        of each (``acked``, ``retried``, ``dead``, ``held``, ``released``, ``lost``), and the
        leases; no leases if no message was ready in time. Raises as ``get``, except Empty.
        """
        return self._run(
            self._handle, self._handle.exchange, self, RemoteLease, "exchange()",
            settlements, limit, block, timeout, kind,
        )  # fmt: skip

    def settle(self, settlements: Sequence[wire.Settlement]) -> list[str]:
        """Settle many in one round trip; return the outcome of each, as ``exchange`` does."""
        # Without a handle: closing a handle ends its waiting calls, and this one does not wait.
        return self._run(None, self._handle.settled, settlements)

    def result(self, id: int, timeout: Seconds | None = None, type: Any = Any) -> Any:
        """Wait for a message's result, from ``ack(result=...)``; return it decoded to ``type``.

        Raises:
            TimeoutError: it was not settled in time.
            JobFailed: it is a dead letter, or was cancelled or skipped.
            ResultGone: its ``result_ttl`` has passed, or was 0.
            WouldDeadlock: the caller is a handler, gave no timeout, and the message waits for it.
        """
        return self._run(self._handle, self._operations.result, id, timeout, type)

    # -- Watching -----------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Return the present counts, and those since the queue was made."""
        return self._run(self._handle, self._operations.counts)

    def qsize(self) -> int:
        """Return the number of messages that are not leased."""
        stats = self.stats()
        return stats.unsettled - stats.leased

    def empty(self) -> bool:
        """Return True if every queued message is leased, or the queue is empty."""
        return self.qsize() == 0

    def configure(
        self,
        *,
        # wire: arguments
        maxsize: int | None = None,
        maxbytes: int | None = None,
        maxdead: int | None = None,
        dedup_window: Seconds | None = None,
        durability: Durability | None = None,
        dead_ttl: Seconds | None = None,
        limits: Limits | None = None,
        weights: Weights | None = None,
        behind: Behind | None = None,
        # /wire
        retry: Retry | None = None,
    ) -> DeclaredOptions:
        """Change options of the queue for all clients; return all options then in force.

        Options that are not named do not change. No message is dropped: with a lower ``maxsize`` or
        ``maxbytes``, puts wait until there is room; with a lower ``maxdead``, a message that would
        become a dead letter is held. ``retry`` applies to later failures of messages without a
        policy of their own; ``dedup_window`` to messages settled later. Programs that declare other
        options get ``OptionsMismatch`` when they start; running ones continue.

        Args:
            retry and all others: as for ``Client.queue``; ``dead_ttl=0`` means no limit. The engine
                does not store ``on`` of ``retry``.

        Raises:
            TypeError, ValueError: an argument is of a wrong type or out of its range, or the engine
                does not have this durability; nothing was changed.
            InterlockError: the user may not operate the queue.
            EngineUnavailable: the engine did not answer in time.
        """
        return self._run(
            self._handle,
            self._operations.configure,
            # wire: passed
            maxsize=maxsize,
            maxbytes=maxbytes,
            maxdead=maxdead,
            dedup_window=dedup_window,
            durability=durability,
            dead_ttl=dead_ttl,
            limits=limits,
            weights=weights,
            behind=behind,
            # /wire
            retry=retry,
        )

    def full(self) -> bool:
        """Return True if a put would have to wait."""
        return self._run(self._handle, self._operations.full)

    def explain(
        self, id: int | None = None, *, key: Key | None = None, limit: int = 100
    ) -> Explanation:
        """Explain why a message waits, or what blocks a key; see ``KeyedQueue.explain``."""
        return self._run(self._handle, self._operations.explained, id, key, limit)

    def roots(
        self, limit: int = 10, *, slow_wait: Seconds | None = None, walk: int = MAX_WALKED
    ) -> Roots:
        """Return what blocks other messages, and how many wait; see ``KeyedQueue.roots``.

        It makes one call for each root, and one for all together.
        """
        return self._run(self._handle, self._operations.roots, limit, slow_wait, walk)

    def hot_keys(self, n: int = 10) -> list[HotKey]:
        """Return the ``n`` keys with most unsettled messages, deepest first."""
        return self._run(self._handle, self._operations.hot_keys, n)

    def limits(self, n: int = 100) -> list[LimitUse]:
        """Return what is used of limit names, and how many wait; see ``KeyedQueue.limits``."""
        return self._run(self._handle, self._operations.limits, n)

    def dead_letters(self, limit: int = 100, *, key: Key | None = None) -> list[DeadLetter[T]]:
        """Return the dead letters, oldest death first; with ``key`` only those on that key."""
        return self._run(self._handle, self._operations.dead_letters, limit, key)

    def messages(
        self,
        limit: int = 100,
        *,
        state: State | None = None,
        key: Key | None = None,
        after: int | None = None,
    ) -> list[QueuedMessage[T]]:
        """Return the unsettled messages in the order of their puts, at most ``limit``.

        With ``state`` or ``key`` only those in this state or on this key. ``after``, the last id of
        a page, gives the next page. With ``state`` it scans all messages of the queue, some
        at a time. On Redis the first call of a client does, and keeps their ids for its next calls.
        """
        return self._run(self._handle, self._operations.messages, limit, state, key, after)

    # -- Operating ----------------------------------------------------------------------------

    def cancel(self, id: int) -> bool:
        """Settle a message that is not leased. Returns False if it is leased or settled."""
        return self._run(self._handle, self._operations.change, "cancel", id)

    def revoke(self, id: int, then: Literal["retry", "hold", "dead", "skip"] = "retry") -> bool:
        """End the lease of a message as if it had expired. Return False if it is not leased."""
        return self._run(self._handle, self._operations.revoke, id, then)

    def retry(self, id: int) -> bool:
        """Make a held or backing-off message ready immediately. Return False if it is neither."""
        return self._run(self._handle, self._operations.change, "retry", id)

    def skip(self, id: int) -> bool:
        """Settle a held or backing-off message. Return False if it is neither."""
        return self._run(self._handle, self._operations.change, "skip", id)

    def bury(self, id: int) -> bool:
        """Make a held or backing-off message a dead letter.

        Returns False if it is neither.
        """
        return self._run(self._handle, self._operations.change, "bury", id)

    def requeue(self, id: int) -> int:
        """Put a dead letter again, as a new message at the end of its lanes. Returns the new id.

        Raises:
            KeyError: there is no such dead letter.
            Full: there is no room; the dead letter stays.
        """
        return self._run(self._handle, self._operations.requeue, id)

    def discard(self, id: int) -> bool:
        """Drop a dead letter. Return False if this id does not exist."""
        return self._run(self._handle, self._operations.change, "discard", id)

    def pause(self, key: Key | None = None) -> bool:
        """Stop leasing messages, or those that hold the key.

        Returns False if it was paused.
        """
        return self._run(self._handle, self._operations.switch, "pause", key)

    def resume(self, key: Key | None = None) -> bool:
        """Undo a pause. Return False if it was not paused."""
        return self._run(self._handle, self._operations.switch, "resume", key)

    def seal(self) -> bool:
        """Refuse puts by all clients until ``reopen``. Return False if it was already sealed."""
        return self._run(self._handle, self._operations.switch, "seal")

    def reopen(self) -> bool:
        """Take puts again. Returns False if it was not sealed."""
        return self._run(self._handle, self._operations.switch, "reopen")

    def purge(self, what: Literal["pending", "dead"] = "pending", *, key: Key | None = None) -> int:
        """Cancel all messages that are not leased, or drop all dead letters. Return their number.

        With ``key`` only those that are on it now: it scans all messages, and makes one call for
        each match.
        """
        return self._run(self._handle, self._operations.purge, what, key)

    def drop(self, force: bool = False) -> bool:
        """Remove the queue for all clients: its declaration, dead letters, kept results, pauses.

        With ``force`` also its unsettled messages; their leases are lost. A later use makes the
        queue anew; no id and no token is reused. Return False if there was no such queue.

        Raises:
            InterlockError: messages are unsettled, and ``force`` was not given; the error has their
                number.
        """
        return self._run(self._handle, self._operations.drop, force)

    def join(self, timeout: Seconds | None = None) -> None:
        """Wait until no message is unsettled.

        It waits in the server, and checks again at least every ten seconds.

        Raises:
            NotDrained: the time is over; the error names the held, paused, parked, delayed, leased
                messages.
        """
        self._run(self._handle, self._operations.join, timeout)

    def close(self) -> None:
        """Close this handle: its puts and gets, also waiting ones, raise ``ShutDown``.

        Open leases can still be settled. The queue itself is not affected.
        """
        self._client._close_handle(self._handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def task_done(self) -> NoReturn:
        """Raise TypeError: a message is settled through its lease."""
        raise TypeError(
            "task_done(): settle the message by its lease: lease = queue.get(); "
            "...; lease.ack(), or 'with queue.get() as payload: ...'"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} on {self._client.url}>"

    # -- How calls are made -------------------------------------------------------------------

    def _leased(
        self, call: str, limit: int, block: bool, timeout: Seconds | None, kind: str
    ) -> list[RemoteLease[T]]:
        _, leases = self._run(
            self._handle, self._handle.exchange, self, RemoteLease, call,
            (), limit, block, timeout, kind, True,
        )  # fmt: skip
        return leases

    def _sent(self, payload: T, timeout: Seconds, **options: Any) -> Put:
        """Put as ``put_known``, for tasks.

        The timeout is for the whole call, including the engine's answer; the client's own is not
        added.
        """
        call = "send()"
        asked = call, payload, True, timeout
        return self._sessions.put(self._handle, *asked, bounded=True, **options)

    def _announce(self, worker: str, ttl: float, text: str) -> list[tuple[int, str]]:
        """Announce a worker for ``ttl`` seconds; 0: remove its announcement.

        Return the requests that were left for it, number and text, the oldest first.
        """
        return self._run(self._handle, self._operations.announce, worker, ttl, text)

    def _state_of(self, id: int) -> str:
        """Return the state of a message, by its id.

        ``"delayed"``, ``"waiting"``, ``"ready"``, ``"leased"``, ``"backing_off"``, ``"held"``
        or ``"parked"`` if
        it is unsettled; ``"dead"``; ``"acked"``, ``"cancelled"`` or ``"skipped"`` while its result
        is kept (``result_ttl``); else ``"gone"``: it is settled, or never existed.
        """
        return self._run(self._handle, self._operations.state, id)

    def _forget(self, id: int) -> bool:
        """Drop a kept result. Returns False if none is kept."""
        return self._run(self._handle, self._operations.change, "forget", id)

    def _revoke_token(self, token: int, id: int) -> bool:
        """Revoke a lease by its token, so that a later lease of the message is not affected.

        For watchers of handlers, which have no caller to raise to.
        """
        try:
            return self._run(self._handle, self._operations.revoke, id, "retry", token)
        except InterlockError as error:
            self._handle.log_unrevoked(id, error)
            return False

    def _again(self) -> RemoteQueue[T]:
        """Return another handle of the same queue."""
        return RemoteQueue(self._client, self._handle.again())
