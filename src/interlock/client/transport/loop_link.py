"""A link for asyncio: sends, and awaits the reply. It belongs to the loop that uses it first.

redis-py connects, sends and parses. With hiredis, commands are packed here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any

from interlock.client.request import Argument, Broken, Reply
from interlock.client.transport import thread_link
from interlock.client.transport.redis_connection import (
    PAUSE,
    UNREADABLE,
    broken,
    make,
    refusal,
    spelt,
)
from interlock.client.url import Target


class AsyncLink:
    """One connection to one server, made on first use and remade when it was lost."""

    def __init__(self, target: Target, address: str) -> None:
        from redis.asyncio import connection
        from redis.exceptions import RedisError

        self._error = RedisError
        self._made: Any = make(connection, target, address, target.timeout)
        self.interrupted = self.once = False

    @property
    def is_open(self) -> bool:
        """See ``AnyLink``."""
        found: bool = self._made.is_connected
        return found

    async def ask(
        self,
        command: tuple[Argument, ...],
        timeout: float,
        before: tuple[Argument, ...] = (),
        nudge: float = 0,
    ) -> Reply:
        """Send a command and return its reply; see Link.ask. Cancelled, it closes."""
        made = self._made
        sent = False
        try:
            async with asyncio.timeout(timeout):
                if not made.is_connected:
                    await made.connect()
                if self.interrupted:
                    raise Broken("interrupted", sent=False)
                sent = True
                if nudge:
                    return await _slow(made, before, command, nudge)
                await _send(made, command)
                return await made.read_response(disable_decoding=True)
        except self._error as error:
            found = refusal(error)
            if found is not None:
                raise found from None
            self.close()
            raise broken(error, sent) from None
        except TimeoutError:
            self.close()
            raise Broken(f"no answer in {timeout:.3g} s", sent) from None
        except (OSError, asyncio.IncompleteReadError, *UNREADABLE) as error:
            self.close()
            raise broken(error, sent) from None
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        """Close the connection if the server has closed it already."""
        reader, writer = self._made._reader, self._made._writer
        if reader is not None and (reader.at_eof() or writer.is_closing() or reader.exception()):
            self.close()

    def interrupt(self) -> None:
        """End the call in flight: it raises Broken. Called on the link's loop."""
        self.interrupted = True
        writer = self._made._writer
        if writer is not None:
            _abort(writer)

    def close(self) -> None:
        """Close the connection immediately; the next call opens it again."""
        made = self._made
        made._parser.on_disconnect()
        writer, made._writer, made._reader = made._writer, None, None
        if writer is not None:
            _abort(writer)

    def forget(self) -> None:
        """Drop the copy that a fork has made, or the connection of a closed loop."""
        made = self._made
        writer, made._writer, made._reader = made._writer, None, None
        if writer is not None and (opened := writer.get_extra_info("socket")) is not None:
            opened._sock.close() if hasattr(opened, "_sock") else None


def _send(made: Any, command: tuple[Argument, ...]) -> Awaitable[None]:
    """Send a command. redis-py would pack it argument by argument, in Python."""
    hiredis = thread_link.hiredis
    sent: Awaitable[None]
    if hiredis is None:
        sent = made.send_command(*command, check_health=False)
    else:
        sent = made.send_packed_command(hiredis.pack_command(spelt(command)), check_health=False)
    return sent


async def _slow(
    made: Any, before: tuple[Argument, ...], command: tuple[Argument, ...], nudge: float
) -> Reply:
    """See `Speech.ask_slow` of the link for threads."""
    from redis.exceptions import ResponseError

    pinged = False

    def ping() -> None:
        nonlocal pinged
        pinged = True
        made._writer.write(b"PING\r\n")

    if before:
        await _send(made, before)
    await _send(made, command)
    timer = asyncio.get_running_loop().call_later(nudge, ping)
    refused = False
    try:
        reply = await made.read_response(disable_decoding=True)
    except ResponseError:
        if not before:
            raise
        refused = True
    finally:
        timer.cancel()
    try:
        if before:
            if refused:
                await asyncio.sleep(PAUSE)
            reply = await made.read_response(disable_decoding=True)
    finally:
        if pinged:
            await made.read_response(disable_decoding=True)
    return reply


def _abort(writer: asyncio.StreamWriter) -> None:
    # Its loop may be closed: then no task waits for its end.
    with contextlib.suppress(RuntimeError):
        writer.transport.abort()
