"""A queue on an engine, for threads."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar

from interlock.consumer import Consumer
from interlock.engine import wire
from interlock.engine.consumer import consume
from interlock.engine.handle import Handle
from interlock.engine.lease import RemoteLease, RemoteLeaseBatch
from interlock.engine.renewal import LeaseRenewer
from interlock.engine.request import Request
from interlock.engine.session import Session
from interlock.errors import Empty, InterlockError, LeaseLost
from interlock.explanation import Explanation
from interlock.message import DeadLetter, HotKey, Key, Keys, Kind, Put, QueuedMessage, State, Stats
from interlock.retry import Retry, Seconds

if TYPE_CHECKING:
    from interlock.engine.aio import AsyncRemoteQueue
    from interlock.engine.client import Client

T = TypeVar("T")
R = TypeVar("R")


class RemoteQueue(Generic[T]):
    """A queue on an engine: what ``KeyedQueue`` is in one process, for any number of them.

    ``Client.queue`` makes it. Calls mean what they mean there; each asks the engine, and raises
    ``EngineUnavailable`` where that does not answer in the client's timeout, beyond what the call
    waits. Any thread may use it. ``aio`` is its asyncio face.
    """

    def __init__(self, client: Client, handle: Handle) -> None:
        self._client = client
        self._handle = handle
        self._retry = handle.retry

    @property
    def _renewer(self) -> LeaseRenewer:
        return self._client._renewer

    @property
    def name(self) -> str:
        """The queue's name on its engine."""
        return self._handle.name

    @property
    def aio(self) -> AsyncRemoteQueue[T]:
        """The asyncio face of this queue."""
        from interlock.engine.aio import AsyncRemoteQueue

        return AsyncRemoteQueue(self._client.aio, self._handle)

    # -- In and out ---------------------------------------------------------------------------

    def put(
        self,
        payload: T,
        block: bool = True,
        timeout: Seconds | None = None,
        *,
        keys: Keys | None = None,
        shared: Keys | None = None,
        priority: int = 0,
        delay: Seconds = 0,
        dedup: str | None = None,
        barrier: bool = False,
        quiet: bool = False,
        retry: Retry | None = None,
        result_ttl: Seconds = 0,
    ) -> int:
        """Puts a message and returns its id; see ``KeyedQueue.put``.

        Args:
            retry: the message's own retry policy. Default: the queue's.
            result_ttl: seconds for which its result is kept once it is settled. Default 0: not.

        Raises:
            Full: there was no room in time; or the engine is at its memory limit.
            ShutDown: the queue is sealed, or this handle closed.
            PayloadError: the payload cannot be encoded; nothing was put.
            TypeError, ValueError: an argument is of a wrong type or out of its range; nothing was
                put.
            EngineUnavailable: the engine did not answer in time.
        """
        message = self._handle.message(
            payload,
            keys=keys,
            shared=shared,
            priority=priority,
            delay=delay,
            dedup=dedup,
            barrier=barrier,
            quiet=quiet,
            retry=retry,
            result_ttl=result_ttl,
        )
        return self._put("put()", [message], block, timeout)[0].id

    def put_known(
        self,
        payload: T,
        block: bool = True,
        timeout: Seconds | None = None,
        *,
        keys: Keys | None = None,
        shared: Keys | None = None,
        priority: int = 0,
        delay: Seconds = 0,
        dedup: str | None = None,
        barrier: bool = False,
        quiet: bool = False,
        retry: Retry | None = None,
        result_ttl: Seconds = 0,
    ) -> Put:
        """As ``put``; says too whether the dedup string was known, so that nothing was put."""
        message = self._handle.message(
            payload,
            keys=keys,
            shared=shared,
            priority=priority,
            delay=delay,
            dedup=dedup,
            barrier=barrier,
            quiet=quiet,
            retry=retry,
            result_ttl=result_ttl,
        )
        return self._put("put_known()", [message], block, timeout)[0]

    def put_nowait(
        self,
        payload: T,
        *,
        keys: Keys | None = None,
        shared: Keys | None = None,
        priority: int = 0,
        delay: Seconds = 0,
        dedup: str | None = None,
        barrier: bool = False,
        quiet: bool = False,
        retry: Retry | None = None,
        result_ttl: Seconds = 0,
    ) -> int:
        """``put(payload, block=False, ...)``."""
        return self.put(
            payload,
            False,
            keys=keys,
            shared=shared,
            priority=priority,
            delay=delay,
            dedup=dedup,
            barrier=barrier,
            quiet=quiet,
            retry=retry,
            result_ttl=result_ttl,
        )

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
    ) -> list[int]:
        """Puts a batch, whole or not at all, in order; see ``KeyedQueue.put_many``.

        Raises:
            ValueError: the batch is larger than the bounds of the queue, than 1,024 messages or
                than 48 MiB of encoded payloads; nothing was put.
        """
        messages = self._handle.batch(
            items, keys, shared, priority, delay, dedup, quiet, each_keys, each_shared
        )
        return [put.id for put in self._put("put_many()", messages, block, timeout)]

    def get(
        self, block: bool = True, timeout: Seconds | None = None, *, kind: Kind = "any"
    ) -> RemoteLease[T]:
        """Takes the next message; see ``KeyedQueue.get``.

        Raises:
            Empty: no message was ready in time.
            ShutDown: the queue is sealed and nothing unsettled is left; or this handle is closed.
            PayloadError: its payload is not of the queue's type; it was nacked.
            EngineUnavailable: the engine did not answer in time.
        """
        return self._get("get()", 1, block, timeout, kind)[0]

    def get_nowait(self, *, kind: Kind = "any") -> RemoteLease[T]:
        """``get(block=False, ...)``."""
        return self.get(False, kind=kind)

    def get_many(
        self,
        limit: int,
        block: bool = True,
        timeout: Seconds | None = None,
        *,
        kind: Kind = "any",
    ) -> RemoteLeaseBatch[RemoteLease[T]]:
        """At least one message, at most ``limit``, in one lease; otherwise as ``get``.

        Payloads that have 1 MiB together end it: the message that reaches that is the last.
        """
        return RemoteLeaseBatch(self._get("get_many()", limit, block, timeout, kind))

    def ack_many(self, leases: Iterable[RemoteLease[T]]) -> None:
        """Settles all these leases; the first lost one is raised when the others are settled."""
        opened, settled = self._handle.settling(leases)
        if opened:
            try:
                answers = self.settle([one.acking() for one in opened])
            except BaseException:
                for one in opened:
                    one._reopened()
                raise
            self._handle.acked(opened, answers)
        self._handle.refuse(settled)

    def consume(
        self,
        handler: Callable[[T], object],
        *,
        threads: int = 1,
        timeout: Seconds | None = None,
        kind: Kind = "any",
    ) -> Consumer:
        """Runs ``handler(payload)`` for every message, on threads; see ``KeyedQueue.consume``.

        A message is settled in one round trip with the lease of the next. While the engine cannot
        be reached, it goes on trying. It ends by itself when the queue is sealed and drained.
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
        """Settles, then leases up to ``limit`` messages, in one round trip: for workers.

        ``settlements`` come from ``acking`` and its kin of a lease. Answers of each what became of
        it (``acked``, ``retried``, ``dead``, ``held``, ``released``, ``lost``), and the leases;
        none where none was ready in time. Raises as ``get``, but not Empty.
        """
        answers, leases, _ = self._take("exchange()", settlements, limit, block, timeout, kind)
        return answers, leases

    def settle(self, settlements: Sequence[wire.Settlement]) -> list[str]:
        """Settles many in one round trip; answers as ``exchange``."""
        # On no handle: whoever closes this one ends what waits, and this does not.
        answers = self._client._run(
            lambda session: self._handle.operations.settle(session, settlements)
        )
        return [wire.answer(one) for one in answers]

    def result(self, id: int, timeout: Seconds | None = None, type: Any = Any) -> Any:
        """The result from ``ack(result=...)`` of a message, decoded to ``type``; waits for it.

        Raises:
            TimeoutError: it was not settled in time.
            JobFailed: it is a dead letter, or was cancelled or skipped.
            ResultGone: its ``result_ttl`` is over, or was 0.
        """
        id = self._handle.check_id("result()", id)
        until = self._handle.until("result()", True, timeout)
        found = self._run(lambda session: self._handle.operations.result(session, id, until))
        return self._handle.result(id, found, type)

    # -- Watching -----------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Counts of this moment, and since the queue was made."""
        return wire.stats(self._run(self._handle.operations.stats))

    def qsize(self) -> int:
        """Messages that are not leased."""
        stats = self.stats()
        return stats.unsettled - stats.leased

    def empty(self) -> bool:
        """No message is queued that is not leased."""
        return self.qsize() == 0

    def full(self) -> bool:
        """A put would have to wait."""
        return self._run(self._handle.operations.full)

    def explain(
        self, id: int | None = None, *, key: Key | None = None, limit: int = 100
    ) -> Explanation:
        """Explains why a message waits, or what stands on a key; see ``KeyedQueue.explain``."""
        asked = self._handle.explained(id, key, limit)
        reply, dead = self._run(lambda session: self._handle.operations.why(session, *asked))
        return self._handle.explanation(reply, dead, id, key)

    def hot_keys(self, n: int = 10) -> list[HotKey]:
        """The ``n`` keys on which most unsettled messages stand, deepest first."""
        n = self._handle.check_limit("hot_keys()", n, named="n")
        return self._run(lambda session: self._handle.operations.hot_keys(session, n))

    def dead_letters(self, limit: int = 100, *, key: Key | None = None) -> list[DeadLetter[T]]:
        """The messages that were given up, oldest dead first; with ``key`` only those on it."""
        limit = self._handle.check_limit("dead_letters()", limit)
        asked = self._handle.canonical("dead_letters()", key)
        found = self._run(
            lambda session: self._handle.operations.dead_letters(session, limit, asked)
        )
        return [self._handle.dead_letter(letter) for letter in found]

    def messages(
        self,
        limit: int = 100,
        *,
        state: State | None = None,
        key: Key | None = None,
        after: int | None = None,
    ) -> list[QueuedMessage[T]]:
        """The unsettled messages in the order of their puts, at most ``limit``.

        With ``state`` only those in this state, with ``key`` only those on it; ``after``, the id of
        the last one of a page, gives the next page. It goes through all messages of the queue, some
        at a time.
        """
        wanted = self._handle.wanted(limit, state, key, after)
        found = self._run(lambda session: self._handle.operations.messages(session, limit, wanted))
        return [self._handle.queued(one) for one in found]

    # -- Operating ----------------------------------------------------------------------------

    def cancel(self, id: int) -> bool:
        """Settles a message that is not leased. False: it is leased or settled."""
        return self._flag("cancel", self._handle.check_id("cancel()", id))

    def revoke(self, id: int, then: Literal["retry", "hold", "dead", "skip"] = "retry") -> bool:
        """Ends the lease of a message as if it had run out. False: it is not leased."""
        asked = self._handle.check_id("revoke()", id), self._handle.check_then(then)
        revoked = self._flag("revoke", *asked)
        if revoked:
            self._renewer.lose(self.name, id)
        return revoked

    def retry(self, id: int) -> bool:
        """Makes a held message, or one that backs off, ready at once. False: it is neither."""
        return self._flag("retry", self._handle.check_id("retry()", id))

    def skip(self, id: int) -> bool:
        """Settles a held message, or one that backs off. False: it is neither."""
        return self._flag("skip", self._handle.check_id("skip()", id))

    def bury(self, id: int) -> bool:
        """Makes a held message, or one that backs off, a dead letter. False: it is neither."""
        return self._flag("bury", self._handle.check_id("bury()", id))

    def requeue(self, id: int) -> int:
        """Puts a dead letter again, as a new message at the end of its lanes. Returns the new id.

        Raises:
            KeyError: there is no such dead letter.
            Full: there is no room; the dead letter stays.
        """
        asked = self._handle.check_id("requeue()", id)
        return self._handle.requeued(
            id, self._run(lambda session: self._handle.operations.change(session, "requeue", asked))
        )

    def discard(self, id: int) -> bool:
        """Drops a dead letter. False: there is none of this id."""
        return self._flag("discard", self._handle.check_id("discard()", id))

    def pause(self, key: Key | None = None) -> bool:
        """Hands out nothing any more, or nothing that holds the key. False: it was paused."""
        return self._flag("pause", *self._handle.keys_of("pause()", key))

    def resume(self, key: Key | None = None) -> bool:
        """Undoes a pause. False: there was none."""
        return self._flag("resume", *self._handle.keys_of("resume()", key))

    def seal(self) -> bool:
        """Refuses puts, for everybody, until ``reopen``. False: it was sealed."""
        return self._flag("seal")

    def reopen(self) -> bool:
        """Takes puts again. False: it was not sealed."""
        return self._flag("reopen")

    def purge(self, what: Literal["pending", "dead"] = "pending", *, key: Key | None = None) -> int:
        """Cancels all that is not leased, or drops all dead letters. Returns how many.

        With ``key`` only those on it that are there now: it goes through all of them, and makes a
        call for each that it finds.
        """
        asked = self._handle.purged(what, key)
        return self._run(lambda session: self._handle.operations.purge(session, *asked))

    def drop(self, force: bool = False) -> bool:
        """Removes the queue, for everybody: its declaration, dead letters, kept results, pauses.

        With ``force`` also its unsettled messages; their leases are lost. Whoever uses the queue
        afterwards makes it anew; no id and no token comes again. False: there was no such queue.

        Raises:
            InterlockError: messages are unsettled, and ``force`` was not given; says how many.
        """
        return self._run(lambda session: self._handle.operations.drop(session, force))

    def join(self, timeout: Seconds | None = None) -> None:
        """Waits until nothing is unsettled.

        It sleeps in the server, and looks again each ten seconds in any case.

        Raises:
            NotDrained: the time was up; it names what is held, paused, delayed or leased.
        """
        until = self._handle.until("join()", True, timeout)
        self._run(lambda session: self._handle.operations.join(session, until))

    def close(self) -> None:
        """Ends this handle: its puts and gets, and those that wait, raise ``ShutDown``.

        Leases that are out can still be settled. The queue itself goes on.
        """
        self._client._close_handle(self._handle)

    def __enter__(self) -> RemoteQueue[T]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def task_done(self) -> NoReturn:
        """Not here: a message is settled through its lease."""
        raise TypeError(
            "task_done(): a queue is told which message is done: lease = queue.get(); ...; "
            "lease.ack(), or 'with queue.get() as payload: ...'"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} on {self._client.url}>"

    # -- How calls are made -------------------------------------------------------------------

    def _again(self) -> RemoteQueue[T]:
        """Another handle of the same queue."""
        return RemoteQueue(self._client, self._handle.again())

    def _run(self, make: Callable[[Session[Any]], Request[R]]) -> R:
        return self._client._run(make, self._handle)

    def _flag(self, function: str, *arguments: Any) -> bool:
        operations = self._handle.operations
        return self._handle.flag(
            self._run(lambda session: operations.change(session, function, *arguments))
        )

    def _sent(self, payload: T, timeout: Seconds, **options: Any) -> Put:
        """As ``put_known``, for tasks: the timeout is for the whole call, the engine's answer
        included, in place of the client's own, which is beyond it."""
        message = self._handle.message(payload, **options)
        return self._put("send()", [message], True, timeout, bounded=True)[0]

    def _put(
        self,
        call: str,
        messages: list[wire.Message],
        block: bool,
        timeout: Seconds | None,
        bounded: bool = False,
    ) -> list[Put]:
        until = self._handle.until(call, block, timeout)
        if not messages:
            return []
        done = self._run(
            lambda session: self._handle.operations.put(session, messages, until, bounded)
        )
        self._renewer.noted(self._handle.watch, done[-1].id)
        return done

    def _get(
        self, call: str, limit: int, block: bool, timeout: Seconds | None, kind: Kind
    ) -> list[RemoteLease[T]]:
        _, leases, spoilt = self._take(call, (), limit, block, timeout, kind)
        if leases:
            return leases
        raise spoilt or Empty("no message is ready")

    def _take(
        self,
        call: str,
        settlements: Sequence[wire.Settlement],
        limit: int,
        block: bool,
        timeout: Seconds | None,
        kind: Kind,
    ) -> tuple[list[str], list[RemoteLease[T]], Exception | None]:
        handle = self._handle
        limit = handle.check(call, kind, limit)
        until = handle.until(call, block, timeout)
        started = time.monotonic()
        answers, leased = self._run(
            lambda session: handle.operations.take(session, settlements, limit, kind, until)
        )
        return self._handed(answers, leased, started)

    def _exchange_ahead(
        self, settlements: Sequence[wire.Settlement], limit: int
    ) -> Callable[[], tuple[list[str], list[RemoteLease[T]]]]:
        """``exchange(settlements, limit, False)``, sent now; what is given back takes the answer,
        once, on any thread. Until then the leases that come with it are nobody's, and last."""
        operations = self._handle.operations
        started = time.monotonic()
        rest = self._client._begin(
            lambda session: operations.take(session, settlements, limit, "any", 0.0), self._handle
        )

        def taken() -> tuple[list[str], list[RemoteLease[T]]]:
            answers, leases, _ = self._handed(*rest(), started)
            return answers, leases

        return taken

    def _handed(
        self, answers: list[bytes], leased: wire.Leased, started: float
    ) -> tuple[list[str], list[RemoteLease[T]], Exception | None]:
        handle = self._handle
        found: tuple[list[RemoteLease[T]], list[tuple[RemoteLease[T], Exception]]]
        found = handle.leases(self, RemoteLease, leased, started)
        leases, spoilt = found
        for lease, error in spoilt:
            handle.log_spoilt(lease, error)
            with contextlib.suppress(LeaseLost):
                lease.nack(None, error)
        return [wire.answer(one) for one in answers], leases, spoilt[0][1] if spoilt else None

    def _revoke_token(self, token: int, id: int) -> bool:
        """By its token, so that what was handed out since is left alone. For the thread that
        watches over handlers, which has nobody to raise to."""
        try:
            revoked = self._flag("revoke", id, "retry", token)
        except InterlockError as error:
            self._handle.log_unrevoked(id, error)
            return False
        if revoked:
            self._renewer.revoked(self.name, id, token)
        return revoked

    def _encode_result(self, result: Any) -> bytes:
        return self._handle.encode_result(result)

    def _may_abandon(self) -> bool:
        return self._client._alive
