"""A change stream in a stream of RabbitMQ, by aio-pika.

By AMQP, not by the protocol of its own that streams have: that needs a plugin and a port beside,
and its Python client has fewer users. A position is the entry's offset with a mark of its first
bytes. RabbitMQ trims by age, a segment at a time, and not by number: ``keep`` is no bound here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from interlock.cluster.streams.looped import Looped, mark_of
from interlock.cluster.streams.protocol import PositionLost, Role, StreamUnavailable
from interlock.engine.url import without_password
from interlock.installation import needs

aio_pika: Any
try:
    import aio_pika
    from aiormq.exceptions import ChannelNotFoundEntity
except ImportError as error:
    raise ImportError(
        f"a stream of RabbitMQ needs aio-pika: {needs('rabbitmq')} ({error})"
    ) from None

_AHEAD = 200
"""Entries that the broker sends before they are asked for."""
_UNCONFIRMED = 200
_WEEK = 7 * 86_400
_SEGMENT = 64 << 20
"""Bytes of a segment: all but the last are trimmed when they are old."""
_COMES = 1.0
"""Seconds in which a broker that answers has sent the first of what there is."""
_MORE = 0.3
"""Seconds in which more comes, if there is more."""


def open_here(
    url: str, name: str, keep: int, keep_age: float | None, role: Role, timeout: float
) -> RabbitmqStream:
    """See ``open_stream``."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    segment = query.pop("segment", str(_SEGMENT))
    if not parts.netloc or query or not segment.isdecimal():
        raise ValueError(
            f"open_stream(): url is {without_password(url)!r}; allowed: "
            f"rabbitmq+stream://USER:PASSWORD@HOST:PORT/VHOST, rabbitmqs+stream:// with TLS, and "
            f"?segment=BYTES behind"
        )
    scheme = "amqps" if parts.scheme.startswith("rabbitmqs") else "amqp"
    amqp = urlunsplit((scheme, parts.netloc, parts.path, "", ""))
    return RabbitmqStream(amqp, without_password(url), name, keep_age, int(segment), timeout)


class RabbitmqStream(Looped):
    """See ``ChangeStream``. The queue is ``il.stream.NAME``."""

    def __init__(
        self,
        url: str,
        shown: str,
        name: str,
        keep_age: float | None,
        segment: int,
        timeout: float,
    ) -> None:
        super().__init__(f"stream {name!r} at {shown}")
        self._url = url
        self._queue = f"il.stream.{name}"
        self._arguments = {
            "x-queue-type": "stream",
            "x-max-age": f"{max(round(keep_age or _WEEK), 1)}s",
            "x-stream-max-segment-size-bytes": segment,
        }
        self._timeout = timeout
        self._connection: Any = None
        self._channel: Any = None
        self._consumed: _Consumed | None = None
        self._at: str | None = None

    # -- Appending ----------------------------------------------------------------------------

    def append(self, entries: Sequence[bytes]) -> None:
        """See ``ChangeStream``."""
        if entries:
            self._run(lambda: self._append(entries), self._timeout)

    async def _append(self, entries: Sequence[bytes]) -> None:
        await self._connected()
        exchange = self._channel.default_exchange
        for start in range(0, len(entries), _UNCONFIRMED):
            # They are sent in the order in which they are begun, and confirmed together.
            await asyncio.gather(
                *(
                    exchange.publish(
                        aio_pika.Message(entry, delivery_mode=2), routing_key=self._queue
                    )
                    for entry in entries[start : start + _UNCONFIRMED]
                )
            )

    # -- Reading ------------------------------------------------------------------------------

    def read(self, after: str, most: int, wait: float) -> list[tuple[str, bytes]]:
        """See ``ChangeStream``."""
        limit = 2 * self._timeout + max(wait, 0) + 3 * _COMES
        return self._run(lambda: self._read(after, most, wait), limit)

    async def _read(self, after: str, most: int, wait: float) -> list[tuple[str, bytes]]:
        await self._connected()
        if self._consumed is None or after != self._at:
            await self._look(after)
        consumed = self._consumed
        assert consumed is not None
        offset = _offset(after)
        found: list[tuple[str, bytes]] = []
        message = await consumed.next(wait if wait > 0 else _MORE)
        while message is not None:
            at, entry = _entry(message)
            if at > offset:
                # Offsets between are the broker's own; a consumer that falls behind what is trimmed
                # is ended.
                offset = at
                found.append((f"{at}.{mark_of(entry)}", entry))
            await message.ack()
            if len(found) >= most:
                break
            message = consumed.next_now()
        if found:
            self._at = found[-1][0]
        return found

    async def _look(self, after: str) -> None:
        """Begin to consume behind a position, and check that the stream has it."""
        if self._consumed is not None:
            await self._consumed.end()
            self._consumed = None
        # With the entry itself, to see whether it is the same.
        begin: int | str = _offset(after) if after else "first"
        self._consumed = consumed = await self._consume(begin)
        if after:
            message = await consumed.next(self._timeout)
            if message is None:
                last = await self._end("last")
                if _offset(last) < _offset(after):
                    raise PositionLost(after, await self._end("first"), last)
                raise StreamUnavailable(self._text(f"no answer in {self._timeout:.3g} s"))
            at, entry = _entry(message)
            if f"{at}.{mark_of(entry)}" != after:
                raise await self._lost(after)
            await message.ack()
        self._at = after

    async def _consume(self, begin: int | str) -> _Consumed:
        """Return what is consumed from an offset on, or from the last chunk, or the first."""
        assert self._connection is not None
        channel = await self._connection.channel(publisher_confirms=False)
        await channel.set_qos(prefetch_count=_AHEAD)
        queue = await channel.get_queue(self._queue)
        consumed = _Consumed(channel)
        await queue.consume(consumed.put, arguments={"x-stream-offset": begin})
        return consumed

    async def _lost(self, after: str) -> PositionLost:
        return PositionLost(after, await self._end("first"), await self._end("last"))

    def last(self) -> str:
        """See ``ChangeStream``. Takes a moment: the broker tells by sending its last chunk."""
        return self._run(lambda: self._end("last"), 2 * self._timeout + 3 * _COMES)

    def first(self) -> str:
        """See ``ChangeStream``."""
        return self._run(lambda: self._end("first"), 2 * self._timeout + 3 * _COMES)

    async def _end(self, which: str) -> str:
        await self._connected()
        consumed = await self._consume(which)
        message = await consumed.next(_COMES)
        found = ""
        while message is not None:
            at, entry = _entry(message)
            found = f"{at}.{mark_of(entry)}"
            if which == "first":
                break
            await message.ack()
            message = await consumed.next(_MORE)
        await consumed.end()
        return found

    # -- The connection -----------------------------------------------------------------------

    async def _connected(self) -> None:
        if self._connection is not None and not self._connection.is_closed:
            return
        await self._drop()
        made = await aio_pika.connect(self._url, timeout=self._timeout)

        def ended(*_: Any) -> None:
            # Nobody answers any more what was asked.
            asked = self._asked
            if asked is not None and self._connection is made:
                asked.cancel()

        made.close_callbacks.add(ended)
        self._connection = made
        try:
            channel = await made.channel()
            await channel.declare_queue(self._queue, passive=True)
        except ChannelNotFoundEntity:
            channel = await made.channel()
            await channel.declare_queue(self._queue, durable=True, arguments=self._arguments)
        self._channel = channel

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._channel, self._consumed, self._at = None, None, None
        if connection is not None:
            with contextlib.suppress(Exception):
                await connection.close()


class _Consumed:
    """Entries that the broker has sent, in its order."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._came: asyncio.Queue[Any] = asyncio.Queue()

    async def put(self, message: Any) -> None:
        self._came.put_nowait(message)

    async def next(self, seconds: float) -> Any:
        try:
            return await asyncio.wait_for(self._came.get(), seconds)
        except TimeoutError:
            return None

    def next_now(self) -> Any:
        return None if self._came.empty() else self._came.get_nowait()

    async def end(self) -> None:
        with contextlib.suppress(Exception):
            await self._channel.close()


def _entry(message: Any) -> tuple[int, bytes]:
    return int(message.headers["x-stream-offset"]), message.body


def _offset(position: str) -> int:
    return int(position.partition(".")[0]) if position else -1
