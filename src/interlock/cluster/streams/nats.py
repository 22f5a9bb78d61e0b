"""A change stream in a stream of NATS JetStream, by nats-py.

A position is the entry's sequence there, with a mark of its first bytes. The first entry of a call
is published with the sequence that it expects before it, and each other one with the id of the one
before: what a frozen server takes up late is refused by that, and so is all that comes behind an
entry that was refused. A log needs none of that: its readers pass over what comes late or twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from interlock import _core
from interlock.cluster.streams.looped import Looped, mark_of
from interlock.cluster.streams.protocol import (
    ABSENT,
    LEAST,
    Entry,
    Found,
    PositionLost,
    Role,
    StreamDenied,
    StreamMissing,
    StreamUnavailable,
    StreamUnfit,
    log_name,
)
from interlock.engine.url import without_password
from interlock.installation import needs

nats: Any
try:
    import nats
    from nats.js import api, errors
except ImportError as error:
    raise ImportError(f"a stream of NATS needs nats-py: {needs('nats')} ({error})") from None

_WRONG_BEFORE = (10070, 10071)
_SAME_NAME = 10058
_FULL = (10047, 10023, 10077)
"""No room on disk, no resources, and more than the stream may have."""
_ROUNDS = 1000
_READ = 8 << 20
_FIRST = 128
_LOOK = 5.0
"""Seconds without an entry after which a reader looks whether the stream is the same still."""
_LOOK_LOG = 1.0
"""Seconds after which a reader of a log does."""
_UNLIMITED = (None, 0, -1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MS = dt.timedelta(milliseconds=1)


def open_here(
    url: str, name: str, keep: int, keep_age: float | None, role: Role, timeout: float
) -> NatsStream:
    """See ``open_stream``."""
    _check("open_stream()", url)
    return NatsStream(url, name, keep, keep_age, role, timeout)


def log_here(
    url: str, table: str, dc: str, role: Role, timeout: float, source: str | None
) -> NatsStream:
    """See ``open_log``."""
    _check("open_log()", url)
    kind = "log" if source is None else "link"
    return NatsStream(url, log_name(table, dc, source), None, None, role, timeout, kind)


def _check(call: str, url: str) -> None:
    parts = urlsplit(url)
    if not parts.netloc or parts.path.strip("/") or parts.query:
        raise ValueError(
            f"{call}: url is {without_password(url)!r}; allowed: "
            f"nats://USER:PASSWORD@HOST:PORT, several with commas between"
        )


class NatsStream(Looped):
    """See ``ChangeStream``. The stream is ``il-stream-NAME``, its subject ``il.stream.NAME``.

    Without `keep` it is a log: ``il-log-NAME``, ``il.log.NAME``.
    """

    untrimmed = ""

    def __init__(
        self,
        url: str,
        name: str,
        keep: int | None,
        keep_age: float | None,
        role: Role,
        timeout: float,
        kind: str = "stream",
    ) -> None:
        super().__init__(f"stream {name!r} at {without_password(url)}")
        credentials, at, hosts = urlsplit(url).netloc.rpartition("@")
        scheme = urlsplit(url).scheme
        self._servers = [f"{scheme}://{credentials}{at}{host}" for host in hosts.split(",")]
        self._is_log = keep is None
        self._mark: Callable[[bytes], str] = _core.LogBridge.mark if self._is_log else mark_of
        self._name = f"il-{kind}-{name}"
        self._subject = f"il.{kind}.{name}"
        self._config = api.StreamConfig(
            name=self._name,
            subjects=[self._subject],
            max_msgs=-1 if keep is None else keep,
            max_age=keep_age,
            duplicate_window=min(1.0, keep_age or 1.0),
            storage=api.StorageType.FILE,
            discard=api.DiscardPolicy.OLD,
        )
        self._role = role
        self._timeout = timeout
        self._client: Any = None
        self._stream: Any = None
        self._next: int | None = None
        """The sequence expected before what is published next."""
        self._inbox = ""
        self._acks: dict[str, asyncio.Future[Any]] = {}
        self._consumer: Any = None
        self._at: str | None = None
        """The position up to which the consumer has given all."""
        self._looked = 0.0
        self._count = _FIRST
        self._checked = False
        """The log is there, and is kept as a log must be."""

    # -- Appending ----------------------------------------------------------------------------

    def append(self, entries: Sequence[bytes]) -> list[str] | None:
        """See ``ChangeStream``."""
        if not entries:
            return []
        if self._is_log:
            return self._run(lambda: self._add(entries), self._timeout)
        return self._run(lambda: self._append(list(entries)), self._timeout)

    def begin(self, entry: bytes) -> list[str] | None:
        """See ``ChangeStream``."""
        return self._run(lambda: self._begin(entry), self._timeout)

    async def _begin(self, entry: bytes) -> list[str]:
        await self._connected()
        if not await self._is_there():
            # Where servers are many, a majority of three has each entry before it is acknowledged.
            is_cluster = bool(self._client._server_info.get("cluster"))
            await self._stream.add_stream(self._config.evolve(num_replicas=3 if is_cluster else 1))
        return await self._add([entry])

    async def _add(self, entries: Sequence[bytes]) -> list[str]:
        """Append to a log."""
        await self._connected()
        if not await self._is_there():
            raise StreamMissing(self._text("there is no such stream"))
        replies = [(await self._published(entry, None))[1] for entry in entries]
        ids = []
        for reply in replies:
            answer = json.loads((await reply).data)
            error = answer.get("error")
            if error is not None:
                raise StreamUnavailable(self._text(_meant(error)))
            ids.append(str(answer["seq"]))
        return ids

    async def _append(self, entries: list[bytes]) -> list[str]:
        await self._connected()
        ids: list[str] = []
        for _ in range(_ROUNDS):
            if self._next is None:
                self._next = (await self._state()).last_seq
            replies = []
            before = {"Nats-Expected-Last-Sequence": str(self._next)}
            for entry in entries:
                id, reply = await self._published(entry, before)
                replies.append(reply)
                before = {"Nats-Expected-Last-Msg-Id": id}
            done = 0
            for reply in replies:
                answer = json.loads((await reply).data)
                error = answer.get("error")
                if error is None:
                    done += 1
                    self._next = int(answer["seq"])
                    ids.append(str(self._next))
                elif error.get("err_code") in _WRONG_BEFORE:
                    # Another has appended meanwhile; so all behind this one is refused too.
                    self._next = None
                else:
                    raise StreamUnavailable(self._text(str(error.get("description", error))))
            entries = entries[done:]
            if not entries:
                return ids
        raise StreamUnavailable(self._text("others append all the time"))

    async def _published(
        self, entry: bytes, before: dict[str, str] | None
    ) -> tuple[str, asyncio.Future[Any]]:
        token = self._client.new_inbox().rpartition(".")[2]
        reply = self._acks[token] = asyncio.get_running_loop().create_future()
        headers = None if before is None else {"Nats-Msg-Id": token, **before}
        inbox = f"{self._inbox}.{token}"
        await self._client.publish(self._subject, entry, reply=inbox, headers=headers)
        return token, reply

    async def _acknowledged(self, message: Any) -> None:
        reply = self._acks.pop(message.subject.rpartition(".")[2], None)
        if reply is not None and not reply.done():
            if message.data:
                reply.set_result(message)
            elif self._is_log:
                reply.set_exception(StreamMissing(self._text("there is no such stream")))
            else:
                reply.set_exception(StreamUnavailable(self._text("JetStream does not answer")))

    # -- Reading ------------------------------------------------------------------------------

    def read(self, after: str, most: int, wait: float) -> list[tuple[str, bytes]]:
        """See ``ChangeStream``."""
        return self._run(lambda: self._read(after, most, wait), self._timeout + max(wait, 0))

    def entries(self, after: str, most: int, wait: float) -> Found:
        """See ``ChangeStream``."""
        return self._run(lambda: self._found(after, most, wait), self._timeout + max(wait, 0))

    async def _read(self, after: str, most: int, wait: float) -> list[tuple[str, bytes]]:
        found, _ = await self._found(after, most, wait)
        return [(self._position(one), one.data) for one in found]

    async def _found(self, after: str, most: int, wait: float) -> Found:
        await self._connected()
        if self._is_log and not await self._is_there():
            if after:
                raise PositionLost(after, "", "")
            await asyncio.sleep(min(wait, ABSENT))
            return Found([], True)
        sequence = int(after.partition(".")[0]) if after else 0
        clock = asyncio.get_running_loop().time
        look = _LOOK_LOG if self._is_log else _LOOK
        if self._consumer is None or after != self._at or clock() - self._looked > look:
            await self._look(after, sequence)
            self._looked = clock()
        count = max(1, min(most, self._count))
        if wait <= 0:
            waiting = (await self._state()).last_seq - sequence
            if waiting <= 0:
                return Found([], True)
            count = min(count, waiting)
        try:
            messages = await self._consumer.fetch(count, timeout=wait if wait > 0 else 1.0)
        except (TimeoutError, nats.errors.TimeoutError):
            return Found([], True)
        found: list[Entry] = []
        at_end = False
        for message in messages:
            metadata = message.metadata
            at = metadata.sequence.stream
            if at <= sequence:
                continue
            if at != sequence + 1 and (after.partition(".")[2] or found):
                raise await self._lost(after)
            sequence = at
            found.append(Entry(str(at), (metadata.timestamp - _EPOCH) // _MS, message.data))
            at_end = metadata.num_pending == 0
        if found:
            self._at = self._position(found[-1])
            if not self._is_log:
                self._looked = clock()
            mean = sum(len(one.data) for one in found) // len(found) + 1
            self._count = max(1, min(_READ // mean, 10_000))
        return Found(found, at_end)

    async def _look(self, after: str, sequence: int) -> None:
        """Check that the stream has a position, and begin to consume behind it."""
        mark = after.partition(".")[2]
        while mark:
            state = await self._state()
            if sequence > state.last_seq or sequence + 1 < state.first_seq:
                raise await self._lost(after)
            if sequence < state.first_seq or not state.messages:
                # That itself was trimmed, and nothing behind it.
                break
            # It may be trimmed in between.
            with contextlib.suppress(errors.NotFoundError):
                entry = (await self._stream.get_msg(self._name, seq=sequence)).data or b""
                if self._mark(entry) != mark:
                    raise await self._lost(after)
                break
        if self._consumer is not None and after == self._at:
            return
        await self._forget_consumer()
        self._consumer = await self._stream.pull_subscribe(
            self._subject,
            stream=self._name,
            config=api.ConsumerConfig(
                deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=max(sequence + 1, 1),
                ack_policy=api.AckPolicy.NONE,
                inactive_threshold=max(60.0, 4 * self._timeout),
            ),
        )
        self._at = after

    async def _lost(self, after: str) -> PositionLost:
        first, last = await self._end(first=True), await self._end(first=False)
        return PositionLost(after, self._position(first), self._position(last))

    def last(self) -> str:
        """See ``ChangeStream``."""
        return self._position(self._run(lambda: self._end(first=False), self._timeout))

    def first(self) -> str:
        """See ``ChangeStream``."""
        return self._position(self._run(lambda: self._end(first=True), self._timeout))

    def ends(self) -> tuple[Entry, Entry] | None:
        """See ``ChangeStream``."""
        return self._run(self._ends, self._timeout)

    async def _ends(self) -> tuple[Entry, Entry] | None:
        first, last = await self._end(first=True), await self._end(first=False)
        return None if first is None or last is None else (first, last)

    async def _end(self, first: bool) -> Entry | None:
        await self._connected()
        while True:
            try:
                state = await self._state()
            except errors.NotFoundError:
                return None
            if not state.messages:
                return None
            at = state.first_seq if first else state.last_seq
            # It may be trimmed in between.
            with contextlib.suppress(errors.NotFoundError):
                found = await self._stream.get_msg(self._name, seq=at)
                time = (found.time - _EPOCH) // _MS if found.time else 0
                return Entry(str(at), time, found.data or b"")

    def _position(self, entry: Entry | None) -> str:
        return f"{entry.id}.{self._mark(entry.data)}" if entry else ""

    def largest(self) -> tuple[int, str]:
        """See ``ChangeStream``."""
        return self._run(self._most, self._timeout)

    async def _most(self) -> tuple[int, str]:
        await self._connected()
        most = int(self._client.max_payload), "max_payload"
        if await self._is_there():
            config = (await self._stream.stream_info(self._name)).config
            if config.max_msg_size not in _UNLIMITED:
                most = min(most, (int(config.max_msg_size), "max_msg_size"))
        if most[0] < LEAST:
            raise StreamUnfit(self._text(f"its {most[1]} is {most[0]}; a log needs {LEAST}"))
        return most

    def look(self, positions: Sequence[str]) -> list[bool]:
        """See ``ChangeStream``."""
        return self._run(lambda: self._there(positions), self._timeout)

    async def _there(self, positions: Sequence[str]) -> list[bool]:
        await self._connected()
        return list(await asyncio.gather(*map(self._has, positions)))

    async def _has(self, position: str) -> bool:
        sequence, _, mark = position.partition(".")
        # Of the log, or of the entry.
        with contextlib.suppress(errors.NotFoundError):
            entry = await self._stream.get_msg(self._name, seq=int(sequence))
            return mark in ("", self._mark(entry.data or b""))
        return False

    def trim(self, positions: Sequence[str]) -> int:
        """See ``ChangeStream``."""
        return self._run(lambda: self._trim(positions), self._timeout)

    async def _trim(self, positions: Sequence[str]) -> int:
        if not all(await self._there(positions)):
            return 0
        before = int(positions[-1].partition(".")[0])
        first: int = (await self._state()).first_seq
        if before > first:
            try:
                await self._stream.purge_stream(self._name, seq=before)
            except errors.APIError as error:
                why = self._text(f"it cannot be trimmed: {error.description}")
                raise StreamUnfit(why) from None
        return max(before - first, 0)

    # -- The connection -----------------------------------------------------------------------

    async def _state(self) -> Any:
        return (await self._stream.stream_info(self._name)).state

    async def _is_there(self) -> bool:
        """Return whether there is such a log. StreamUnfit: entries of it may be dropped."""
        if self._checked:
            return True
        try:
            config = (await self._stream.stream_info(self._name)).config
        except errors.NotFoundError:
            return False
        for name in ("max_age", "max_msgs", "max_bytes", "max_msgs_per_subject"):
            limit = getattr(config, name)
            # Old entries stay where new ones are refused, but for those that are too old.
            is_kept = config.discard == api.DiscardPolicy.NEW and name != "max_age"
            if limit not in _UNLIMITED and not is_kept:
                raise StreamUnfit(
                    self._text(
                        f"its {name} is {limit}, so that NATS drops entries that a node may need: "
                        f"take the limit away, as with nats stream edit {self._name}"
                    )
                )
        for name, wanted in (("retention", "limits"), ("storage", "file"), ("no_ack", False)):
            found = getattr(config, name)
            if found != wanted:
                raise StreamUnfit(self._text(f"its {name} is {found}; a log needs {wanted}"))
        if config.mirror or config.sources:
            raise StreamUnfit(self._text("it is fed by another stream; a log is written by nodes"))
        self._checked = True
        return True

    async def _connected(self) -> None:
        if self._client is not None and self._client.is_connected:
            return
        await self._drop()

        async def ended(*_: Any) -> None:
            # Nobody answers any more what was asked.
            asked = self._asked
            if asked is not None and self._client is client:
                asked.cancel()

        async def passed(error: Exception) -> None:
            # Other errors come by what was asked too.
            if self._client is client and "ermissions " in str(error):
                self._abort(StreamDenied(self._text(f"its user may not: {error}")))

        client = nats.aio.client.Client()
        try:
            await client.connect(
                self._servers,
                allow_reconnect=False,
                connect_timeout=max(self._timeout, 0.1),
                max_reconnect_attempts=1,
                disconnected_cb=ended,
                error_cb=passed,
            )
        except BaseException:
            # It may have a socket, as of a login that fails.
            with contextlib.suppress(Exception):
                await client.close()
            raise
        self._client = client
        self._stream = client.jetstream(timeout=self._timeout)
        if not self._is_log:
            await self._make()
        if self._role == "append":
            self._inbox = client.new_inbox()
            await client.subscribe(f"{self._inbox}.*", cb=self._acknowledged)

    async def _make(self) -> None:
        try:
            await self._stream.add_stream(self._config)
        except errors.BadRequestError as error:
            if error.err_code != _SAME_NAME:
                raise
            # It is there, and keeps more or less than is wanted here.
            if self._role == "append":
                await self._stream.update_stream(self._config)

    async def _forget_consumer(self) -> None:
        consumer, self._consumer, self._at = self._consumer, None, None
        if consumer is not None:
            with contextlib.suppress(Exception):
                await consumer.unsubscribe()

    async def _drop(self) -> None:
        client, self._client = self._client, None
        self._next, self._consumer, self._at = None, None, None
        self._checked = False
        self._acks.clear()
        if client is not None:
            with contextlib.suppress(Exception):
                await client.close()


def _meant(error: dict[str, Any]) -> str:
    """Return what an error of JetStream says, and what to do."""
    text = str(error.get("description", error))
    if error.get("err_code") in _FULL or "maximum" in text:
        text = f"{text}: nothing can be appended before its limit is raised, or the log is trimmed"
    return text
