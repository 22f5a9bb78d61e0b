"""A log in a stream of RabbitMQ, by aio-pika.

By AMQP, not by the protocol of its own that streams have: that needs a plugin and a port beside,
and its Python client has fewer users. A position is the entry's offset with a mark of its bytes.
AMQP tells no time of an entry: it is that of a broker that stamps messages
(``timestamp_in_ms``), otherwise that of the node which has written it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import ssl
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

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
    seen,
)
from interlock.runtime.installation import needs

aio_pika: Any
try:
    import aio_pika
    from aiormq.exceptions import (
        AuthenticationError,
        ChannelAccessRefused,
        ChannelNotFoundEntity,
        ChannelPreconditionFailed,
        ConnectionNotAllowed,
        ProbableAuthenticationError,
        PublishError,
    )
except ImportError as error:
    raise ImportError(
        f"a stream of RabbitMQ needs aio-pika: {needs('rabbitmq')} ({error})"
    ) from None

for _name in ("aio_pika", "aiormq"):
    # Errors that the client would log at each attempt to connect are raised by the calls.
    logging.getLogger(_name).setLevel(logging.CRITICAL)

_AHEAD = 200
"""Entries that the broker sends before they are asked for."""
_UNCONFIRMED = 200
_LARGEST = 4 << 20
"""Bytes of an entry of a log."""
_SEGMENT = 64 << 20
"""Bytes of a segment: all but the last are trimmed when they are old."""
_OF_NOTES = 500_000
"""Bytes of a segment of notes."""
_COMES = 1.0
"""Seconds in which a broker that answers has sent the first of what there is."""
_MORE = 0.3
"""Seconds in which more comes, if there is more."""
_LOOK = 3.0
"""Seconds without an entry after which a reader consumes anew: a broker that was killed may send
nothing more to a consumer that it has."""
_TIME = "il-time"
"""Header with the time of who writes, in ms."""
_STAMP = "timestamp_in_ms"
"""Header of a broker that stamps messages."""


def log_here(
    url: str, table: str, dc: str, role: Role, timeout: float, source: str | None
) -> RabbitmqStream:
    """See ``open_log``."""
    amqp, segment, ca = _read_url(url)
    name, kind = log_name(table, dc, source), "log" if source is None else "link"
    tls = trusting(ca) if amqp.startswith("amqps:") else None
    return RabbitmqStream(amqp, without_password(url), name, segment, timeout, kind, tls)


def _read_url(url: str) -> tuple[str, int, str]:
    """Return the URL of AMQP, the bytes of a segment, and the file of an authority."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    segment = query.pop("segment", str(_SEGMENT))
    ca, is_tls = query.pop("ca", ""), parts.scheme.startswith("rabbitmqs")
    if not parts.netloc or query or not segment.isdecimal() or (ca and not is_tls):
        raise ValueError(
            f"open_log(): url is {without_password(url)!r}; allowed: "
            f"rabbitmq+stream://USER:PASSWORD@HOST:PORT/VHOST, rabbitmqs+stream:// with TLS, "
            f"?segment=BYTES behind, and with TLS ?ca=FILE for the authority of the certificates"
        )
    scheme = "amqps" if is_tls else "amqp"
    return urlunsplit((scheme, parts.netloc, parts.path, "", "")), int(segment), ca


class RabbitmqStream(Looped):
    """See ``ChangeStream``. The queue is ``il.log.NAME``, of notes ``il.link.NAME``."""

    untrimmed = (
        "RabbitMQ cannot trim a stream at a position: it keeps all of it, or as much as a "
        "policy with max-age or max-length-bytes allows"
    )

    def __init__(
        self,
        url: str,
        shown: str,
        name: str,
        segment: int,
        timeout: float,
        kind: str,
        tls: ssl.SSLContext | None,
    ) -> None:
        super().__init__(f"stream {name!r} at {shown}")
        self._url = url
        self._tls = tls
        self._queue = f"il.{kind}.{name}"
        self._arguments: dict[str, Any] = {
            "x-queue-type": "stream",
            "x-stream-max-segment-size-bytes": segment,
        }
        if kind == "link":
            # The last of the notes counts.
            self._arguments |= {
                "x-stream-max-segment-size-bytes": _OF_NOTES,
                "x-max-length-bytes": 2 * _OF_NOTES,
            }
        self._timeout = timeout
        self._connection: Any = None
        self._channel: Any = None
        self._consumed: _Consumed | None = None
        self._at: str | None = None
        self._looked = 0.0
        self._known = set[str]()
        self._is_there = False
        """The queue was found, or made."""

    # -- Appending ----------------------------------------------------------------------------

    def append(self, entries: Sequence[bytes]) -> list[str] | None:
        """See ``ChangeStream``. The broker tells no ids."""
        if not entries:
            return []
        self._run(lambda: self._append(entries), self._timeout)
        return None

    def begin(self, entry: bytes) -> list[str] | None:
        """See ``ChangeStream``."""
        self._run(lambda: self._append([entry], begins=True), self._timeout)
        return None

    async def _append(self, entries: Sequence[bytes], begins: bool = False) -> None:
        await self._connected()
        if not self._is_there:
            if not begins:
                raise StreamMissing(self._text("there is no such queue"))
            await self._make()
        exchange = self._channel.default_exchange
        headers = {_TIME: round(time.time() * 1000)}
        try:
            for start in range(0, len(entries), _UNCONFIRMED):
                # They are sent in the order in which they are begun, and confirmed together.
                await asyncio.gather(
                    *(
                        exchange.publish(
                            aio_pika.Message(entry, delivery_mode=2, headers=headers),
                            routing_key=self._queue,
                        )
                        for entry in entries[start : start + _UNCONFIRMED]
                    )
                )
        except PublishError:
            raise StreamMissing(self._text("the queue no longer exists")) from None

    # -- Reading ------------------------------------------------------------------------------

    def entries(self, after: str, most: int, wait: float) -> Found:
        """See ``ChangeStream``."""
        limit = 2 * self._timeout + max(wait, 0) + 3 * _COMES
        return self._run(lambda: self._found(after, most, wait), limit)

    async def _found(self, after: str, most: int, wait: float) -> Found:
        await self._connected()
        if not self._is_there:
            if after:
                raise PositionLost(after, "", "")
            await asyncio.sleep(min(wait, ABSENT))
            return Found([], True)
        clock = asyncio.get_running_loop().time
        if self._consumed is None or after != self._at or clock() - self._looked > _LOOK:
            await self._look(after)
            self._looked = clock()
        consumed = self._consumed
        assert consumed is not None
        offset = _offset(after)
        found: list[Entry] = []
        message = consumed.next_now()
        if message is None and await consumed.is_ended():
            raise StreamUnavailable(self._text("the broker has cancelled the consumer"))
        if message is None and not consumed.told_end:
            # Everything that the broker sent before its answer has then arrived.
            await consumed.fence()
            message = consumed.next_now()
            if message is None:
                consumed.told_end = True
                return Found([], True)
        if message is None:
            message = await consumed.next(wait if wait > 0 else _MORE)
        last = message
        while message is not None:
            one = _entry(message)
            if int(one.id) > offset:
                # Offsets between are the broker's own; a consumer that falls behind what is trimmed
                # is ended.
                offset = int(one.id)
                found.append(one)
            last = message
            if len(found) >= most:
                break
            message = consumed.next_now()
        if last is None:
            return Found([], True)
        await last.ack(multiple=True)
        consumed.told_end = False
        self._looked = clock()
        if found:
            self._at = self._position(found[-1])
        return Found(found, False)

    def _position(self, entry: Entry | None) -> str:
        return f"{entry.id}.{_core.LogBridge.mark(entry.data)}" if entry else ""

    async def _look(self, after: str) -> None:
        """Begin to consume behind a position, and check that the stream has it."""
        if self._consumed is not None:
            await self._consumed.end()
            self._consumed = None
        # With the entry itself, to see whether it is the same.
        begin: int | str = _offset(after) if after else "first"
        self._consumed = consumed = await self._consume(begin)
        if after.partition(".")[2]:
            message = await consumed.next(_COMES)
            if message is None:
                last = self._position(await self._end("last"))
                # That nothing at all comes may be because the broker has much to do.
                is_slow = not last and await consumed.next(self._timeout) is not None
                if not is_slow and _offset(last) < _offset(after):
                    first = self._position(await self._end("first"))
                    raise PositionLost(after, first, last)
                raise StreamUnavailable(self._text(f"no answer in {self._timeout:.3g} s"))
            if self._position(_entry(message)) != after:
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
        consumed.tag = await queue.consume(consumed.put, arguments={"x-stream-offset": begin})
        return consumed

    async def _lost(self, after: str) -> PositionLost:
        first, last = await self._end("first"), await self._end("last")
        return PositionLost(after, self._position(first), self._position(last))

    def last(self) -> str:
        """See ``ChangeStream``. Takes a moment: the broker tells by sending its last chunk."""
        limit = 2 * self._timeout + 3 * _COMES
        return self._position(self._run(lambda: self._end("last"), limit))

    def ends(self) -> tuple[Entry, Entry] | None:
        """See ``ChangeStream``."""
        return self._run(self._both, 4 * self._timeout)

    async def _both(self) -> tuple[Entry, Entry] | None:
        first, last = await self._end("first"), await self._end("last")
        return None if first is None or last is None else (first, last)

    async def _end(self, which: str) -> Entry | None:
        await self._connected()
        if not self._is_there:
            return None
        consumed = await self._consume(which)
        message = await consumed.next(_COMES)
        found: Entry | None = None
        while message is not None:
            found = _entry(message)
            if which == "first":
                break
            await message.ack()
            message = await consumed.next(_MORE)
        await consumed.end()
        return found

    def largest(self) -> tuple[int, str]:
        """See ``ChangeStream``. AMQP does not tell it: a message that goes nowhere tries it."""
        return self._run(self._tried, 2 * self._timeout)

    async def _tried(self) -> tuple[int, str]:
        await self._connected()
        channel = await self._connection.channel(on_return_raises=False)
        message = aio_pika.Message(bytes(_LARGEST))
        try:
            await channel.default_exchange.publish(message, f"{self._queue}.none", mandatory=False)
        except ChannelPreconditionFailed as error:
            found = re.search(r"max(?:imum)? size:? (\d+)", str(error))
            if found is None:
                raise
            if int(found[1]) < LEAST:
                text = f"its max_message_size is {found[1]}; a log needs {LEAST}"
                raise StreamUnfit(self._text(text)) from None
            return int(found[1]), "max_message_size"
        await channel.close()
        return _LARGEST, "Interlock's own limit for RabbitMQ"

    def look(self, positions: Sequence[str]) -> list[bool]:
        """See ``ChangeStream``. Takes a moment for each that was not seen before."""
        limit = 2 * self._timeout + (2 + len(positions)) * 3 * _COMES
        return self._run(lambda: self._there(positions), limit)

    async def _there(self, positions: Sequence[str]) -> list[bool]:
        await self._connected()
        first = await self._end("first")
        if first is None:
            return [False for _ in positions]
        last = await self._end("last")
        assert last is not None
        asks = seen(positions, self._known, int(first.id))
        try:
            position = next(asks)
            while True:
                position = asks.send(await self._has(position, int(last.id)))
        except StopIteration as done:
            return list(done.value)

    async def _has(self, position: str, last: int) -> bool:
        if _offset(position) > last:
            return False
        consumed = await self._consume(_offset(position))
        message = await consumed.next(self._timeout)
        await consumed.end()
        if message is None:
            raise StreamUnavailable(self._text(f"no answer in {self._timeout:.3g} s"))
        found = _entry(message)
        return found.id == position[:-1] or self._position(found) == position

    def trim(self, positions: Sequence[str]) -> int:
        """See ``ChangeStream``."""
        raise StreamUnfit(self._text(self.untrimmed))

    # -- The connection -----------------------------------------------------------------------

    async def _connected(self) -> None:
        if self._connection is not None and not self._connection.is_closed:
            if not self._is_there:
                await self._find()
            return
        await self._drop()
        made = await aio_pika.connect(self._url, timeout=self._timeout, ssl_context=self._tls)

        def ended(*_: Any) -> None:
            # Pending requests will get no answer.
            asked = self._asked
            if asked is not None and self._connection is made:
                asked.cancel()

        made.close_callbacks.add(ended)
        self._connection = made
        await self._find()

    async def _find(self) -> None:
        """Look whether the queue is there, as a log must be."""
        channel = await self._connection.channel(on_return_raises=True)
        try:
            await channel.declare_queue(self._queue, passive=True)
            # As it is there: the broker refuses arguments that differ.
            await channel.declare_queue(self._queue, durable=True, arguments=self._arguments)
        except ChannelNotFoundEntity as error:
            # A broker that starts says the same of a queue whose home is not up yet.
            if "no queue" not in str(error):
                raise StreamUnavailable(self._text(str(error))) from None
            # The broker has closed the channel.
        except ChannelPreconditionFailed as error:
            raise StreamUnfit(
                self._text(f"the queue cannot hold a log, see its x-arguments: {error}")
            ) from None
        else:
            self._channel, self._is_there = channel, True

    async def _make(self) -> None:
        channel = await self._connection.channel(on_return_raises=True)
        await channel.declare_queue(self._queue, durable=True, arguments=self._arguments)
        self._channel, self._is_there = channel, True

    def _meant(self, error: Exception) -> StreamUnavailable:
        if isinstance(error, (AuthenticationError, ProbableAuthenticationError)):
            return StreamDenied(self._text(f"{LOGIN}: {error}"))
        if isinstance(error, (ChannelAccessRefused, ConnectionNotAllowed)):
            return StreamDenied(self._text(f"its user lacks a right: {error}"))
        meant = super()._meant(error)
        if self._connection is None and self._tls is None and "reset" in str(error):
            hint = "if this port has TLS, the URL begins with rabbitmqs+stream://"
            return StreamUnavailable(f"{meant}; {hint}")
        return meant

    def _silent(self, limit: float) -> str:
        # The client tells it in its own log alone.
        made = getattr(getattr(self._connection, "transport", None), "connection", None)
        runs = getattr(made, "_Connection__connection_unblocked", None)
        if runs is not None and not runs.is_set():
            return "the broker accepts no entries because it is low on memory or disk: see its log"
        return super()._silent(limit)

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._channel, self._consumed, self._at = None, None, None
        self._is_there = False
        self._known.clear()
        if connection is not None:
            with contextlib.suppress(Exception):
                await connection.close()


class _Consumed:
    """Entries that the broker has sent, in its order."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._came: asyncio.Queue[Any] = asyncio.Queue()
        self.tag = ""
        self.told_end = False
        """Everything was read, and nothing has arrived since."""

    async def put(self, message: Any) -> None:
        self._came.put_nowait(message)

    async def next(self, seconds: float) -> Any:
        try:
            return await asyncio.wait_for(self._came.get(), seconds)
        except TimeoutError:
            return None

    def next_now(self) -> Any:
        return None if self._came.empty() else self._came.get_nowait()

    async def is_ended(self) -> bool:
        """Return whether the broker has stopped sending: the queue was deleted or has moved."""
        return self.tag not in (await self._channel.get_underlay_channel()).consumers

    async def fence(self) -> None:
        """Wait until the broker has answered on the channel by which it sends."""
        await self._channel.set_qos(prefetch_count=_AHEAD)

    async def end(self) -> None:
        with contextlib.suppress(Exception):
            await self._channel.close()


def _entry(message: Any) -> Entry:
    headers = message.headers
    time = headers.get(_STAMP, headers.get(_TIME, 0))
    ms = time if isinstance(time, int) and time >= 0 else 0
    return Entry(str(int(headers["x-stream-offset"])), ms, message.body)


def _offset(position: str) -> int:
    return int(position.partition(".")[0]) if position else -1
