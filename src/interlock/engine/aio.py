"""A queue on an engine, and its client, for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, TypeVar, Unpack, overload

from interlock.aio import of_asyncio
from interlock.engine import wire
from interlock.engine.consumer import consume_async
from interlock.engine.handle import Handle
from interlock.engine.lease import AsyncRemoteLease, RemoteLeaseBatch
from interlock.engine.loop import Home
from interlock.engine.renewal import LeaseRenewer
from interlock.engine.request import Request
from interlock.engine.session import Session
from interlock.errors import Empty, InterlockError, LeaseLost
from interlock.explanation import Explanation
from interlock.message import DeadLetter, HotKey, Key, Keys, Kind, Put, QueuedMessage, State, Stats
from interlock.retry import Retry, Seconds

if TYPE_CHECKING:
    from interlock.engine.client import Client
    from interlock.engine.options import QueueOptions

T = TypeVar("T")
R = TypeVar("R")


class AsyncClient:
    """The asyncio face of a ``Client``; any number of event loops may use one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._homes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Home] = (
            weakref.WeakKeyDictionary()
        )

    @property
    def url(self) -> str:
        """Without its password."""
        return self._client.url

    @overload
    def queue(
        self, name: str, type: type[T], **options: Unpack[QueueOptions]
    ) -> AsyncRemoteQueue[T]: ...
    @overload
    def queue(self, name: str, **options: Unpack[QueueOptions]) -> AsyncRemoteQueue[Any]: ...
    def queue(
        self, name: str, type: Any = Any, **options: Unpack[QueueOptions]
    ) -> AsyncRemoteQueue[Any]:
        """The queue of this name; see ``Client.queue``."""
        return AsyncRemoteQueue(self, self._client._handle_of(name, type, options))

    async def close(self) -> None:
        """Ends what waits on the running loop, and closes its connections."""
        home = self._homes.pop(asyncio.get_running_loop(), None)
        if home is not None:
            await home.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
        self._client.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.url}>"

    @property
    def _home(self) -> Home:
        loop = asyncio.get_running_loop()
        home = self._homes.get(loop)
        if home is None:
            home = self._homes[loop] = Home(self._client._engine, loop)
        return home

    async def _run(
        self, make: Callable[[Session[Any]], Request[R]], handle: Handle | None = None
    ) -> R:
        self._client._check_alive()
        try:
            return await self._home.run(make, handle, self.url)
        except InterlockError as error:
            raise of_asyncio(error) from error.__cause__

    def _wake(self, handle: Handle | None) -> None:
        for home in list(self._homes.values()):
            home.wake(handle)


class AsyncRemoteQueue(Generic[T]):
    """The asyncio face of a ``RemoteQueue``: its methods, awaited; what they mean is said there.

    Cancelling a call that waits loses nothing: what it leased meanwhile is given back.
    """

    def __init__(self, client: AsyncClient, handle: Handle) -> None:
        self._client = client
        self._handle = handle
        self._retry = handle.retry

    @property
    def name(self) -> str:
        """The queue's name on its engine."""
        return self._handle.name

    # -- In and out ---------------------------------------------------------------------------

    async def put(
        self,
        payload: T,
        *,
        timeout: Seconds | None = None,
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
        """See ``RemoteQueue.put``."""
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
        return (await self._put("put()", [message], True, timeout))[0].id

    async def put_known(
        self,
        payload: T,
        *,
        timeout: Seconds | None = None,
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
        """See ``RemoteQueue.put_known``."""
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
        return (await self._put("put_known()", [message], True, timeout))[0]

    async def put_nowait(
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
        """See ``RemoteQueue.put_nowait``."""
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
        return (await self._put("put_nowait()", [message], False, None))[0].id

    async def put_many(
        self,
        items: Iterable[T],
        *,
        timeout: Seconds | None = None,
        keys: Keys | Callable[[T], Keys] | None = None,
        shared: Keys | Callable[[T], Keys] | None = None,
        priority: int = 0,
        delay: Seconds = 0,
        dedup: Callable[[T], str | None] | None = None,
        quiet: bool = False,
        each_keys: Iterable[Keys | None] | None = None,
        each_shared: Iterable[Keys | None] | None = None,
    ) -> list[int]:
        """See ``RemoteQueue.put_many``."""
        messages = self._handle.batch(
            items, keys, shared, priority, delay, dedup, quiet, each_keys, each_shared
        )
        return [put.id for put in await self._put("put_many()", messages, True, timeout)]

    async def get(
        self, *, timeout: Seconds | None = None, kind: Kind = "any"
    ) -> AsyncRemoteLease[T]:
        """See ``RemoteQueue.get``."""
        return (await self._get("get()", 1, True, timeout, kind))[0]

    async def get_nowait(self, *, kind: Kind = "any") -> AsyncRemoteLease[T]:
        """See ``RemoteQueue.get_nowait``."""
        return (await self._get("get_nowait()", 1, False, None, kind))[0]

    async def get_many(
        self, limit: int, *, timeout: Seconds | None = None, kind: Kind = "any"
    ) -> RemoteLeaseBatch[AsyncRemoteLease[T]]:
        """See ``RemoteQueue.get_many``."""
        return RemoteLeaseBatch(await self._get("get_many()", limit, True, timeout, kind))

    async def ack_many(self, leases: Iterable[AsyncRemoteLease[T]]) -> None:
        """See ``RemoteQueue.ack_many``."""
        opened, settled = self._handle.settling(leases)
        if opened:
            try:
                answers = await self.settle([one.acking() for one in opened])
            except BaseException:
                for one in opened:
                    one._reopened()
                raise
            self._handle.acked(opened, answers)
        self._handle.refuse(settled)

    async def consume(
        self,
        handler: Callable[[T], Awaitable[object]],
        *,
        threads: int = 1,
        timeout: Seconds | None = None,
        kind: Kind = "any",
    ) -> None:
        """Awaits ``handler(payload)`` for every message, until the queue is sealed and drained.

        As ``RemoteQueue.consume``, with a task where that has a thread. Cancelling it cancels the
        handlers; their messages come again.
        """
        await consume_async(self, handler, threads, timeout, kind)

    async def exchange(
        self,
        settlements: Sequence[wire.Settlement],
        limit: int,
        block: bool = True,
        timeout: Seconds | None = None,
        *,
        kind: Kind = "any",
    ) -> tuple[list[str], list[AsyncRemoteLease[T]]]:
        """See ``RemoteQueue.exchange``."""
        call = "exchange()"
        answers, leases, _ = await self._take(call, settlements, limit, block, timeout, kind)
        return answers, leases

    async def settle(self, settlements: Sequence[wire.Settlement]) -> list[str]:
        """See ``RemoteQueue.settle``."""
        answers = await self._client._run(
            lambda session: self._handle.operations.settle(session, settlements)
        )
        return [wire.answer(one) for one in answers]

    async def result(self, id: int, timeout: Seconds | None = None, type: Any = Any) -> Any:
        """See ``RemoteQueue.result``."""
        id = self._handle.check_id("result()", id)
        until = self._handle.until("result()", True, timeout)
        found = await self._run(lambda session: self._handle.operations.result(session, id, until))
        return self._handle.result(id, found, type)

    # -- Watching -----------------------------------------------------------------------------

    async def stats(self) -> Stats:
        """See ``RemoteQueue.stats``."""
        return wire.stats(await self._run(self._handle.operations.stats))

    async def qsize(self) -> int:
        """See ``RemoteQueue.qsize``."""
        stats = await self.stats()
        return stats.unsettled - stats.leased

    async def empty(self) -> bool:
        """See ``RemoteQueue.empty``."""
        return await self.qsize() == 0

    async def full(self) -> bool:
        """See ``RemoteQueue.full``."""
        return await self._run(self._handle.operations.full)

    async def explain(
        self, id: int | None = None, *, key: Key | None = None, limit: int = 100
    ) -> Explanation:
        """See ``RemoteQueue.explain``."""
        asked = self._handle.explained(id, key, limit)
        reply, dead = await self._run(lambda session: self._handle.operations.why(session, *asked))
        return self._handle.explanation(reply, dead, id, key)

    async def hot_keys(self, n: int = 10) -> list[HotKey]:
        """See ``RemoteQueue.hot_keys``."""
        n = self._handle.check_limit("hot_keys()", n, named="n")
        return await self._run(lambda session: self._handle.operations.hot_keys(session, n))

    async def dead_letters(
        self, limit: int = 100, *, key: Key | None = None
    ) -> list[DeadLetter[T]]:
        """See ``RemoteQueue.dead_letters``."""
        limit = self._handle.check_limit("dead_letters()", limit)
        asked = self._handle.canonical("dead_letters()", key)
        found = await self._run(
            lambda session: self._handle.operations.dead_letters(session, limit, asked)
        )
        return [self._handle.dead_letter(letter) for letter in found]

    async def messages(
        self,
        limit: int = 100,
        *,
        state: State | None = None,
        key: Key | None = None,
        after: int | None = None,
    ) -> list[QueuedMessage[T]]:
        """See ``RemoteQueue.messages``."""
        wanted = self._handle.wanted(limit, state, key, after)
        operations = self._handle.operations
        found = await self._run(lambda session: operations.messages(session, limit, wanted))
        return [self._handle.queued(one) for one in found]

    # -- Operating ----------------------------------------------------------------------------

    async def cancel(self, id: int) -> bool:
        """See ``RemoteQueue.cancel``."""
        return await self._flag("cancel", self._handle.check_id("cancel()", id))

    async def revoke(
        self, id: int, then: Literal["retry", "hold", "dead", "skip"] = "retry"
    ) -> bool:
        """See ``RemoteQueue.revoke``."""
        asked = self._handle.check_id("revoke()", id), self._handle.check_then(then)
        revoked = await self._flag("revoke", *asked)
        if revoked:
            self._renewer.lose(self.name, id)
        return revoked

    async def _revoke_token(self, token: int, id: int) -> bool:
        """See ``RemoteQueue._revoke_token``."""
        try:
            revoked = await self._flag("revoke", id, "retry", token)
        except InterlockError as error:
            self._handle.log_unrevoked(id, error)
            return False
        if revoked:
            self._renewer.revoked(self.name, id, token)
        return revoked

    async def retry(self, id: int) -> bool:
        """See ``RemoteQueue.retry``."""
        return await self._flag("retry", self._handle.check_id("retry()", id))

    async def skip(self, id: int) -> bool:
        """See ``RemoteQueue.skip``."""
        return await self._flag("skip", self._handle.check_id("skip()", id))

    async def bury(self, id: int) -> bool:
        """See ``RemoteQueue.bury``."""
        return await self._flag("bury", self._handle.check_id("bury()", id))

    async def requeue(self, id: int) -> int:
        """See ``RemoteQueue.requeue``."""
        asked = self._handle.check_id("requeue()", id)
        operations = self._handle.operations
        reply = await self._run(lambda session: operations.change(session, "requeue", asked))
        return self._handle.requeued(id, reply)

    async def discard(self, id: int) -> bool:
        """See ``RemoteQueue.discard``."""
        return await self._flag("discard", self._handle.check_id("discard()", id))

    async def pause(self, key: Key | None = None) -> bool:
        """See ``RemoteQueue.pause``."""
        return await self._flag("pause", *self._handle.keys_of("pause()", key))

    async def resume(self, key: Key | None = None) -> bool:
        """See ``RemoteQueue.resume``."""
        return await self._flag("resume", *self._handle.keys_of("resume()", key))

    async def seal(self) -> bool:
        """See ``RemoteQueue.seal``."""
        return await self._flag("seal")

    async def reopen(self) -> bool:
        """See ``RemoteQueue.reopen``."""
        return await self._flag("reopen")

    async def purge(
        self, what: Literal["pending", "dead"] = "pending", *, key: Key | None = None
    ) -> int:
        """See ``RemoteQueue.purge``."""
        asked = self._handle.purged(what, key)
        return await self._run(lambda session: self._handle.operations.purge(session, *asked))

    async def drop(self, force: bool = False) -> bool:
        """See ``RemoteQueue.drop``."""
        return await self._run(lambda session: self._handle.operations.drop(session, force))

    async def join(self, timeout: Seconds | None = None) -> None:
        """See ``RemoteQueue.join``."""
        until = self._handle.until("join()", True, timeout)
        await self._run(lambda session: self._handle.operations.join(session, until))

    async def close(self) -> None:
        """See ``RemoteQueue.close``."""
        self._client._client._close_handle(self._handle)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def task_done(self) -> NoReturn:
        """Not here: a message is settled through its lease."""
        raise TypeError(
            "task_done(): a queue is told which message is done: lease = await queue.get(); ...; "
            "await lease.ack(), or 'async with await queue.get() as payload: ...'"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} on {self._client.url}>"

    # -- How calls are made -------------------------------------------------------------------

    @property
    def _renewer(self) -> LeaseRenewer:
        return self._client._home.renewer

    async def _run(self, make: Callable[[Session[Any]], Request[R]]) -> R:
        return await self._client._run(make, self._handle)

    async def _flag(self, function: str, *arguments: Any) -> bool:
        operations = self._handle.operations
        reply = await self._run(lambda session: operations.change(session, function, *arguments))
        return self._handle.flag(reply)

    async def _sent(self, payload: T, timeout: Seconds, **options: Any) -> Put:
        """See ``RemoteQueue._sent``."""
        message = self._handle.message(payload, **options)
        return (await self._put("asend()", [message], True, timeout, bounded=True))[0]

    async def _put(
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
        done = await self._run(
            lambda session: self._handle.operations.put(session, messages, until, bounded)
        )
        self._renewer.noted(self._handle.watch, done[-1].id)
        return done

    async def _get(
        self, call: str, limit: int, block: bool, timeout: Seconds | None, kind: Kind
    ) -> list[AsyncRemoteLease[T]]:
        _, leases, spoilt = await self._take(call, (), limit, block, timeout, kind)
        if leases:
            return leases
        raise spoilt or of_asyncio(Empty("no message is ready"))

    async def _take(
        self,
        call: str,
        settlements: Sequence[wire.Settlement],
        limit: int,
        block: bool,
        timeout: Seconds | None,
        kind: Kind,
    ) -> tuple[list[str], list[AsyncRemoteLease[T]], Exception | None]:
        handle = self._handle
        limit = handle.check(call, kind, limit)
        until = handle.until(call, block, timeout)
        started = time.monotonic()
        answers, leased = await self._run(
            lambda session: handle.operations.take(session, settlements, limit, kind, until)
        )
        found: tuple[list[AsyncRemoteLease[T]], list[tuple[AsyncRemoteLease[T], Exception]]]
        found = handle.leases(self, AsyncRemoteLease, leased, started)
        leases, spoilt = found
        for lease, error in spoilt:
            handle.log_spoilt(lease, error)
            with contextlib.suppress(LeaseLost):
                await lease.nack(None, error)
        return [wire.answer(one) for one in answers], leases, spoilt[0][1] if spoilt else None

    def _encode_result(self, result: Any) -> bytes:
        return self._handle.encode_result(result)

    def _may_abandon(self) -> bool:
        return self._client._client._alive
