"""The client of an engine: where queues come from."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from interlock.client import url as urls
from interlock.client.connection.call import Engine
from interlock.client.faces.leader import TTL, Leader
from interlock.client.faces.options import QueueOptions
from interlock.client.faces.queue import RemoteQueue
from interlock.client.faces.table import RemoteTable
from interlock.client.requests.queue_admin import Operations
from interlock.client.requests.queue_handle import Handle
from interlock.client.requests.queue_reports import Watch
from interlock.client.requests.thread_calls import ThreadSessions
from interlock.client.row_requests import OnFull, Rows
from interlock.client.rows.cluster_rows import ClusterRows
from interlock.client.rows.hub_rows import WireRows
from interlock.client.rows.members import Members
from interlock.client.rows.table_arguments import check_name
from interlock.client.transport.memory_rows import MemoryRows, TableOptions
from interlock.client.wire.codec import Codec
from interlock.client.wire.declaration import Declaration, check_count
from interlock.retry import Retry, Seconds, seconds
from interlock.runtime.limits import MAX_COUNT, MAX_NAME
from interlock.table.row import Row

if TYPE_CHECKING:
    from interlock.client.faces.aio_client import AsyncClient

T = TypeVar("T")
W = TypeVar("W", bound=Row)

LEASE = 30.0
_DEFAULT_RETRY = Retry()


def connect(url: str | None = None) -> Client:
    """Return a client of the engine at ``url``; it connects when it is first used.

    Args:
        url: ``memory://NAME``, ``interlock://HOST:PORT`` (the hub), ``redis://HOST:PORT/DB``,
            ``rediss://`` (TLS), ``unix:///PATH``, ``redis+cluster://HOST:PORT,HOST:PORT``; with
            ``USER:PASSWORD@`` before the host or path, and ``?timeout=SECONDS`` at the end, for
            calls in addition to their wait (default 5).
            ``interlock+cluster://HOST:PORT/DB/CLUSTER?dc=NAME`` is a cluster of nodes that announce
            themselves in that engine: the nodes serve the tables, the engine the queues; its
            timeout is 10 by default. Default: INTERLOCK_URL in the environment, else ``memory://``;
            in that case messages left unsettled at the end are logged as an error.

    Raises:
        ValueError: the URL is not one of these; the error shows it without its password.
    """
    named = (os.environ.get("INTERLOCK_URL") or None) if url is None else url
    client = Client(Engine(urls.parse("memory://" if named is None else named)))
    if named is None:
        from interlock.client.faces.lost_messages import watch_end

        client._at_end = watch_end(client)
    return client


class Client:
    """Queues and tables by name on one engine, for threads; ``aio`` is its asyncio face.

    ``connect`` makes it. Any thread may use it, before and after a fork. ``close`` closes it, as
    does leaving it as a context manager, also with ``async with``.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.url = engine.target.shown
        """The engine's URL without its password."""
        self._sessions = ThreadSessions(engine)
        self._aio: AsyncClient | None = None
        self._members: dict[tuple[str, str], Members] = {}
        self._leaders: weakref.WeakSet[Leader] = weakref.WeakSet()
        self._at_end: Callable[[], object] = lambda: None
        """Reports the messages left behind if no engine was given."""

    @property
    def _in_memory(self) -> bool:
        """The engine is in this process and uses the real time."""
        memory = self._engine.memory
        return memory is not None and not memory.is_manual

    @property
    def _is_shared(self) -> bool:
        """Another client of this process may use the same engine in memory."""
        return self._engine.target.kind == "memory" and bool(self._engine.target.name)

    def _again(self, timeout: float | None = None) -> Client:
        """Return another client of the same engine, with a timeout of its own if one is given."""
        target = self._engine.target
        if timeout is not None:
            target = replace(target, timeout=timeout)
        return Client(Engine(target, memory=self._engine.memory))

    @overload
    def queue(
        self, name: str, type: type[T], **options: Unpack[QueueOptions]
    ) -> RemoteQueue[T]: ...
    @overload
    def queue(self, name: str, **options: Unpack[QueueOptions]) -> RemoteQueue[Any]: ...
    def queue(
        self, name: str, type: Any = Any, **options: Unpack[QueueOptions]
    ) -> RemoteQueue[Any]:
        """Return the queue of this name. The engine is not contacted yet.

        Args:
            name: up to 512 bytes, without braces.
            type: type of its payloads, used to encode and decode them: any type that msgspec can
                encode. ``bytes`` and ``str`` are stored as they are. Default: anything.
            maxsize, retry and the others of ``DeclaredOptions``: as for ``KeyedQueue``, where bytes
                are those of encoded payloads. Declared to the engine with the first call; a
                client without options declares nothing.
            durability: on a hub with a journal ``"always"`` (on disk before a call is answered),
                ``"everysec"`` (within a second) or ``"none"`` (not stored, and lost when the hub
                ends); or ``"server"``: the server's setting. Declared.
            keys, shared: functions for the keys of a payload, for puts without keys.
            lease: seconds after which a lease expires unless it is renewed; a held lease is renewed
                at a third of it. Default 30.
            linger: seconds for which a single put waits until others can be sent with it in one
                call, for bulk producers. Default 0: only the puts that come while a call is in
                flight are sent together, in the next.
            slow_wait, warn_depth, warn_lane_depth: as for ``KeyedQueue``, for messages that this
                client puts and leases; 0 disables each.
            codec: ``"msgpack"`` (default), ``"json"`` or ``"pickle"``. A program that can put into
                a queue of pickles can run code in its consumers.

        Raises:
            TypeError, ValueError: an argument is of a wrong type or out of its range.
            OptionsMismatch: raised by the first call: the queue was declared with other options.
        """
        return RemoteQueue(self, self._handle_of(name, type, options))

    def table(
        self,
        name: str,
        row: type[W],
        *,
        capacity: int = 100_000,
        key_size: int = 32,
        ttl: Seconds | None = None,
        on_full: OnFull = "evict",
    ) -> RemoteTable[W]:
        """Return the state table of this name.

        A hub serves the tables of its configuration, in ``[[table]]``; it is not contacted yet. In
        a cluster the nearest node is used, and another if that fails. On ``memory://`` it is a
        table of this process, shared by all clients that use the engine's name; it is made with the
        options if it does not exist. A hub ignores the options.

        Args:
            name: up to 200 bytes, without spaces, colons and slashes.
            row: the class of its rows, whose columns must be those of the table.
            capacity: number of rows that it can certainly hold. Default 100,000.
            key_size: maximum bytes of a key, 1 to 1,024. Default 32.
            ttl: default seconds that a row lives after it was set. Default: forever.
            on_full: ``"evict"`` or ``"raise"``, as for ``SharedTable``. Default ``"evict"``.

        Raises:
            TypeError, ValueError: an argument is of a wrong type or out of its range; or the engine
                is a cluster of Redis. (With a single Redis the first call raises.)
            SchemaMismatch: the table in memory has other columns; with a hub the first call raises
                this.
            OSError: there is no room for a table in memory.
        """
        rows = self._rows_of(name, row, TableOptions(
            capacity, key_size, None if ttl is None else seconds(ttl, "table(): ttl"), on_full
        ))  # fmt: skip
        return RemoteTable(self, name, rows)

    def leader(self, name: str, *, ttl: Seconds = TTL, identity: str | None = None) -> Leader:
        """Return the leadership of this name, which one process at a time holds for a term.

        The engine is not contacted yet: see ``Leader.campaign``.

        Args:
            name: up to 256 bytes, without braces.
            ttl: seconds without a sign of the leader after which another is elected; the leader
                renews its lease at a third of it. Default 3.
            identity: text that identifies the leader to others, up to 256 bytes. Default: host and
                pid.

        Raises:
            TypeError, ValueError: an argument is of a wrong type or out of its range.
        """
        made = Leader(self, name, ttl, identity)
        self._leaders.add(made)
        return made

    @property
    def aio(self) -> AsyncClient:
        """The asyncio face of this client."""
        if self._aio is None:
            from interlock.client.faces.aio_client import AsyncClient

            self._aio = AsyncClient(self)
        return self._aio

    def close(self) -> None:
        """Close all its queues' handles and its connections; open leases expire.

        Waiting calls raise ``ShutDown``. Its leaders resign. Connections of asyncio are closed by
        ``aio.close()``.
        """
        for leader in list(self._leaders):
            leader.close()
        self._at_end()
        self._sessions.close()
        if self._aio is not None:
            self._aio._sessions.interrupt(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> AsyncClient:
        return self.aio

    async def __aexit__(self, *exc: object) -> None:
        await self.aio.close()
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.url}>"

    def __del__(self) -> None:
        if hasattr(self, "_aio") and self._sessions.alive:
            self.close()

    # -- Handles ------------------------------------------------------------------------------

    def _handle_of(self, name: str, type: Any, options: QueueOptions) -> Handle:
        given: dict[str, Any] = dict(options)
        _check_name(name)
        unknown = given.keys() - QueueOptions.__annotations__.keys()
        if unknown:
            allowed = ", ".join(sorted(QueueOptions.__annotations__))
            first = min(unknown)
            kind = given[first].__class__.__name__
            raise TypeError(f"queue(): unknown option {first!r}, {kind}; allowed: {allowed}")
        keys, shared = given.pop("keys", None), given.pop("shared", None)
        for argument, function in (("keys", keys), ("shared", shared)):
            if function is not None and not callable(function):
                kind = function.__class__.__name__
                raise TypeError(
                    f"queue(): {argument} is {kind}; allowed: a callable of the payload"
                )
        length = seconds(given.pop("lease", LEASE), "queue(): lease")
        if length < 1e-6:
            raise ValueError(f"queue(): lease is {length}; allowed: 0.000001 s or more")
        linger = seconds(given.pop("linger", 0), "queue(): linger")
        slow_wait = seconds(given.pop("slow_wait", 60), "queue(): slow_wait")
        deep = check_count("warn_depth", given.pop("warn_depth", 1000), MAX_COUNT)
        deep_lane = check_count("warn_lane_depth", given.pop("warn_lane_depth", 100), MAX_COUNT)
        codec = Codec(type, given.pop("codec", "msgpack"))
        declaration = Declaration(**given)
        retry = given.get("retry") or _DEFAULT_RETRY
        handle = Handle(self._engine, name, declaration, length, codec, retry, keys, shared, linger)
        handle.operations = Operations(handle)
        handle.watch = Watch(handle.operations, slow_wait, deep, deep_lane)
        return handle

    def _rows_of(self, name: str, row: type[W], options: TableOptions) -> Rows[W]:
        check_name(name)
        memory = self._engine.memory
        if memory is not None:
            return MemoryRows(memory.tables, name, row, options)
        if self._engine.target.members is not None:
            return self._cluster_rows(name, row)
        if self._engine.target.kind == "cluster":
            raise ValueError(
                f"table(): {self.url} has no state tables: Redis has no columns and no types; "
                "`interlock hub` serves tables, by [[table]]"
            )
        return WireRows(self._engine, name, row)

    def _cluster_rows(self, name: str, row: type[W]) -> ClusterRows[W]:
        wanted = self._engine.target.members
        assert wanted is not None
        cluster = wanted.cluster or name
        members = self._members.get((cluster, name))
        if members is None:
            made = Members(self._engine, cluster, name, wanted.dc, wanted.linearizable)
            members = self._members.setdefault((cluster, name), made)
        return ClusterRows(self._engine, name, row, members)

    def _close_handle(self, handle: Handle) -> None:
        handle.closed = True
        self._sessions.interrupt(handle)
        if self._aio is not None:
            self._aio._sessions.interrupt(handle)


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"queue(): name is {type(name).__name__}; allowed: str")
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"queue(): name is {name!r}; allowed: text that encodes as UTF-8, without lone "
            f"surrogates"
        ) from None
    if not 1 <= len(encoded) <= MAX_NAME or "{" in name or "}" in name:
        raise ValueError(
            f"queue(): name is {name!r}; allowed: up to {MAX_NAME} bytes, without braces"
        )
