"""A change stream in a stream of NATS JetStream, by nats-py.

A position is the entry's sequence there, with a mark of its first bytes. The first entry of a call
is published with the sequence that it expects before it, and each other one with the id of the one
before: what a frozen server takes up late is refused by that, and so is all that comes behind an
entry that was refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from interlock.cluster.streams.looped import Looped, mark_of
from interlock.cluster.streams.protocol import PositionLost, Role, StreamUnavailable
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
_ROUNDS = 1000
_READ = 8 << 20
_FIRST = 128
_LOOK = 5.0
"""Seconds without an entry after which a reader looks whether the stream is the same still."""


def open_here(
    url: str, name: str, keep: int, keep_age: float | None, role: Role, timeout: float
) -> NatsStream:
    """See ``open_stream``."""
    parts = urlsplit(url)
    if not parts.netloc or parts.path.strip("/") or parts.query:
        raise ValueError(
            f"open_stream(): url is {without_password(url)!r}; allowed: "
            f"nats://USER:PASSWORD@HOST:PORT, several with commas between"
        )
    return NatsStream(url, name, keep, keep_age, role, timeout)


class NatsStream(Looped):
    """See ``ChangeStream``. The stream is ``il-stream-NAME``, its subject ``il.stream.NAME``."""

    def __init__(
        self,
        url: str,
        name: str,
        keep: int,
        keep_age: float | None,
        role: Role,
        timeout: float,
    ) -> None:
        super().__init__(f"stream {name!r} at {without_password(url)}")
        credentials, at, hosts = urlsplit(url).netloc.rpartition("@")
        scheme = urlsplit(url).scheme
        self._servers = [f"{scheme}://{credentials}{at}{host}" for host in hosts.split(",")]
        self._name = f"il-stream-{name}"
        self._subject = f"il.stream.{name}"
        self._config = api.StreamConfig(
            name=self._name,
            subjects=[self._subject],
            max_msgs=keep,
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

    # -- Appending ----------------------------------------------------------------------------

    def append(self, entries: Sequence[bytes]) -> None:
        """See ``ChangeStream``."""
        if entries:
            self._run(lambda: self._append(list(entries)), self._timeout)

    async def _append(self, entries: list[bytes]) -> None:
        await self._connected()
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
                elif error.get("err_code") in _WRONG_BEFORE:
                    # Another has appended meanwhile; so all behind this one is refused too.
                    self._next = None
                else:
                    raise StreamUnavailable(self._text(str(error.get("description", error))))
            entries = entries[done:]
            if not entries:
                return
        raise StreamUnavailable(self._text("others append all the time"))

    async def _published(
        self, entry: bytes, before: dict[str, str]
    ) -> tuple[str, asyncio.Future[Any]]:
        token = self._client.new_inbox().rpartition(".")[2]
        reply = self._acks[token] = asyncio.get_running_loop().create_future()
        headers = {"Nats-Msg-Id": token, **before}
        inbox = f"{self._inbox}.{token}"
        await self._client.publish(self._subject, entry, reply=inbox, headers=headers)
        return token, reply

    async def _acknowledged(self, message: Any) -> None:
        reply = self._acks.pop(message.subject.rpartition(".")[2], None)
        if reply is not None and not reply.done():
            if message.data:
                reply.set_result(message)
            else:
                reply.set_exception(StreamUnavailable(self._text("JetStream does not answer")))

    # -- Reading ------------------------------------------------------------------------------

    def read(self, after: str, most: int, wait: float) -> list[tuple[str, bytes]]:
        """See ``ChangeStream``."""
        return self._run(lambda: self._read(after, most, wait), self._timeout + max(wait, 0))

    async def _read(self, after: str, most: int, wait: float) -> list[tuple[str, bytes]]:
        await self._connected()
        sequence = int(after.partition(".")[0]) if after else 0
        clock = asyncio.get_running_loop().time
        if self._consumer is None or after != self._at or clock() - self._looked > _LOOK:
            await self._look(after, sequence)
            self._looked = clock()
        count = max(1, min(most, self._count))
        if wait <= 0:
            waiting = (await self._state()).last_seq - sequence
            if waiting <= 0:
                return []
            count = min(count, waiting)
        try:
            messages = await self._consumer.fetch(count, timeout=wait if wait > 0 else 1.0)
        except (TimeoutError, nats.errors.TimeoutError):
            return []
        found: list[tuple[str, bytes]] = []
        for message in messages:
            at = message.metadata.sequence.stream
            if at <= sequence:
                continue
            if at != sequence + 1 and (after or found):
                raise await self._lost(after)
            sequence = at
            found.append((f"{at}.{mark_of(message.data)}", message.data))
        if found:
            self._at = found[-1][0]
            self._looked = clock()
            mean = sum(len(entry) for _, entry in found) // len(found) + 1
            self._count = max(1, min(_READ // mean, 10_000))
        return found

    async def _look(self, after: str, sequence: int) -> None:
        """Check that the stream has a position, and begin to consume behind it."""
        while after:
            state = await self._state()
            if sequence > state.last_seq or sequence + 1 < state.first_seq:
                raise await self._lost(after)
            if sequence < state.first_seq or not state.messages:
                # That itself was trimmed, and nothing behind it.
                break
            # It may be trimmed in between.
            with contextlib.suppress(errors.NotFoundError):
                entry = (await self._stream.get_msg(self._name, seq=sequence)).data or b""
                if mark_of(entry) != after.partition(".")[2]:
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
        return PositionLost(after, await self._end(first=True), await self._end(first=False))

    def last(self) -> str:
        """See ``ChangeStream``."""
        return self._run(lambda: self._end(first=False), self._timeout)

    def first(self) -> str:
        """See ``ChangeStream``."""
        return self._run(lambda: self._end(first=True), self._timeout)

    async def _end(self, first: bool) -> str:
        await self._connected()
        while True:
            state = await self._state()
            if not state.messages:
                return ""
            at = state.first_seq if first else state.last_seq
            # It may be trimmed in between.
            with contextlib.suppress(errors.NotFoundError):
                entry = (await self._stream.get_msg(self._name, seq=at)).data or b""
                return f"{at}.{mark_of(entry)}"

    # -- The connection -----------------------------------------------------------------------

    async def _state(self) -> Any:
        return (await self._stream.stream_info(self._name)).state

    async def _connected(self) -> None:
        if self._client is not None and self._client.is_connected:
            return
        await self._drop()

        async def ended(*_: Any) -> None:
            # Nobody answers any more what was asked.
            asked = self._asked
            if asked is not None and self._client is client:
                asked.cancel()

        async def passed(_: Any) -> None:
            """Errors come by what was asked too."""

        client = nats.aio.client.Client()
        await client.connect(
            self._servers,
            allow_reconnect=False,
            connect_timeout=max(self._timeout, 0.1),
            max_reconnect_attempts=1,
            disconnected_cb=ended,
            error_cb=passed,
        )
        self._client = client
        self._stream = client.jetstream(timeout=self._timeout)
        try:
            await self._stream.add_stream(self._config)
        except errors.BadRequestError as error:
            if error.err_code != _SAME_NAME:
                raise
            # It is there, and keeps more or less than is wanted here.
            if self._role == "append":
                await self._stream.update_stream(self._config)
        if self._role == "append":
            self._inbox = client.new_inbox()
            await client.subscribe(f"{self._inbox}.*", cb=self._acknowledged)

    async def _forget_consumer(self) -> None:
        consumer, self._consumer, self._at = self._consumer, None, None
        if consumer is not None:
            with contextlib.suppress(Exception):
                await consumer.unsubscribe()

    async def _drop(self) -> None:
        client, self._client = self._client, None
        self._next, self._consumer, self._at = None, None, None
        self._acks.clear()
        if client is not None:
            with contextlib.suppress(Exception):
                await client.close()
