"""A log in a stream of NATS JetStream, by nats-py.

A position is the entry's sequence there, with a mark of its bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import ssl
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from interlock import _core
from interlock.client.url import without_password
from interlock.cluster.streams.looped import Looped, trusting
from interlock.cluster.streams.protocol import (
    ABSENT,
    LEAST,
    LOGIN,
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
from interlock.runtime.installation import needs

nats: Any
try:
    import nats
    from nats.js import api, errors
except ImportError as error:
    raise ImportError(f"a stream of NATS needs nats-py: {needs('nats')} ({error})") from None

_FULL = (10047, 10023, 10077)
"""No room on disk, no resources, and more than the stream may have."""
_READ = 8 << 20
_FIRST = 128
_LOOK = 1.0
"""Seconds after which a reader looks whether the stream is the same still."""
_UNLIMITED = (None, 0, -1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MS = dt.timedelta(milliseconds=1)


def log_here(
    url: str, table: str, dc: str, role: Role, timeout: float, source: str | None
) -> NatsStream:
    """See ``open_log``."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    ca = query.pop("ca", "")
    if not parts.netloc or parts.path.strip("/") or query:
        raise ValueError(
            f"open_log(): url is {without_password(url)!r}; allowed: "
            f"nats://USER:PASSWORD@HOST:PORT, several with commas between, tls:// with TLS, and "
            f"?ca=FILE for the authority of the certificates"
        )
    kind = "log" if source is None else "link"
    return NatsStream(
        url, log_name(table, dc, source), role, timeout, kind,
        trusting(ca) if ca or parts.scheme == "tls" else None,
    )  # fmt: skip


class NatsStream(Looped):
    """See ``ChangeStream``. The stream is ``il-log-NAME``, its subject ``il.log.NAME``.

    Of notes it is ``il-link-NAME`` and ``il.link.NAME``.
    """

    untrimmed = ""

    def __init__(
        self,
        url: str,
        name: str,
        role: Role,
        timeout: float,
        kind: str,
        tls: ssl.SSLContext | None,
    ) -> None:
        super().__init__(f"stream {name!r} at {without_password(url)}")
        credentials, at, hosts = urlsplit(url).netloc.rpartition("@")
        scheme = urlsplit(url).scheme
        self._tls = tls
        self._servers = [f"{scheme}://{credentials}{at}{host}" for host in hosts.split(",")]
        self._name = f"il-{kind}-{name}"
        self._subject = f"il.{kind}.{name}"
        self._config = api.StreamConfig(
            name=self._name,
            subjects=[self._subject],
            storage=api.StorageType.FILE,
            discard=api.DiscardPolicy.OLD,
        )
        self._role = role
        self._timeout = timeout
        self._client: Any = None
        self._stream: Any = None
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
        return self._run(lambda: self._add(entries), self._timeout)

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
        await self._connected()
        if not await self._is_there():
            raise StreamMissing(self._text("there is no such stream"))
        replies = [await self._published(entry) for entry in entries]
        ids = []
        for reply in replies:
            answer = json.loads((await reply).data)
            error = answer.get("error")
            if error is not None:
                raise StreamUnavailable(self._text(_told(error)))
            ids.append(str(answer["seq"]))
        return ids

    async def _published(self, entry: bytes) -> asyncio.Future[Any]:
        token = self._client.new_inbox().rpartition(".")[2]
        reply = self._acks[token] = asyncio.get_running_loop().create_future()
        await self._client.publish(self._subject, entry, reply=f"{self._inbox}.{token}")
        return reply

    async def _acknowledged(self, message: Any) -> None:
        reply = self._acks.pop(message.subject.rpartition(".")[2], None)
        if reply is not None and not reply.done():
            if message.data:
                reply.set_result(message)
            else:
                reply.set_exception(StreamMissing(self._text("there is no such stream")))

    # -- Reading ------------------------------------------------------------------------------

    def entries(self, after: str, most: int, wait: float) -> Found:
        """See ``ChangeStream``."""
        return self._run(lambda: self._found(after, most, wait), self._timeout + max(wait, 0))

    async def _found(self, after: str, most: int, wait: float) -> Found:
        await self._connected()
        if not await self._is_there():
            if after:
                raise PositionLost(after, "", "")
            await asyncio.sleep(min(wait, ABSENT))
            return Found([], True)
        sequence = int(after.partition(".")[0]) if after else 0
        clock = asyncio.get_running_loop().time
        if self._consumer is None or after != self._at or clock() - self._looked > _LOOK:
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
                if _core.LogBridge.mark(entry) != mark:
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
        return f"{entry.id}.{_core.LogBridge.mark(entry.data)}" if entry else ""

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
        # Error of the log, or of the entry.
        with contextlib.suppress(errors.NotFoundError):
            entry = await self._stream.get_msg(self._name, seq=int(sequence))
            return mark in ("", _core.LogBridge.mark(entry.data or b""))
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
        """Return what the log has. StreamUnfit: entries of it may be dropped."""
        info = await self._stream.stream_info(self._name)
        self._check_config(info.config)
        return info.state

    async def _is_there(self) -> bool:
        """Return whether there is such a log. StreamUnfit: entries of it may be dropped."""
        if not self._checked:
            with contextlib.suppress(errors.NotFoundError):
                await self._state()
                self._checked = True
        return self._checked

    def _check_config(self, config: Any) -> None:
        for name in ("max_age", "max_msgs", "max_bytes", "max_msgs_per_subject"):
            limit = getattr(config, name)
            # Old entries stay where new ones are refused, but for those that are too old.
            is_kept = config.discard == api.DiscardPolicy.NEW and name != "max_age"
            if limit not in _UNLIMITED and not is_kept:
                raise StreamUnfit(
                    self._text(
                        f"its {name} is {limit}, so NATS drops entries that a node may need: "
                        f"remove the limit, as with nats stream edit {self._name}"
                    )
                )
        for name, wanted in (("retention", "limits"), ("storage", "file"), ("no_ack", False)):
            found = getattr(config, name)
            if found != wanted:
                raise StreamUnfit(self._text(f"its {name} is {found}; a log needs {wanted}"))
        if config.mirror or config.sources:
            raise StreamUnfit(self._text("it is fed by another stream; a log is written by nodes"))

    async def _connected(self) -> None:
        if self._client is not None and self._client.is_connected:
            return
        await self._drop()

        async def ended(*_: Any) -> None:
            # Pending requests will get no answer.
            asked = self._asked
            if asked is not None and self._client is client:
                asked.cancel()

        async def passed(error: Exception) -> None:
            # Other errors come by what was asked too.
            if self._client is client and "ermissions " in str(error):
                self._abort(StreamDenied(self._text(f"its user lacks a right: {error}")))
            elif isinstance(error, ssl.SSLError):
                # The client would try again, and say nothing in time.
                self._abort(self._meant(error))

        client = nats.aio.client.Client()
        try:
            await client.connect(
                self._servers,
                tls=self._tls,
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
        if self._role == "append":
            self._inbox = client.new_inbox()
            await client.subscribe(f"{self._inbox}.*", cb=self._acknowledged)

    def _meant(self, error: Exception) -> StreamUnavailable:
        if "authorization" in str(error).lower():
            return StreamDenied(self._text(f"{LOGIN}: {error}"))
        return super()._meant(error)

    async def _forget_consumer(self) -> None:
        consumer, self._consumer, self._at = self._consumer, None, None
        if consumer is not None:
            with contextlib.suppress(Exception):
                await consumer.unsubscribe()

    async def _drop(self) -> None:
        client, self._client = self._client, None
        self._consumer, self._at = None, None
        self._checked = False
        self._acks.clear()
        if client is not None:
            with contextlib.suppress(Exception):
                await client.close()


def _told(error: dict[str, Any]) -> str:
    """Return what an error of JetStream says, and what to do."""
    text = str(error.get("description", error))
    if error.get("err_code") in _FULL or "maximum" in text:
        text = f"{text}: nothing can be appended before its limit is raised, or the log is trimmed"
    return text
