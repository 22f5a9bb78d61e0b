"""A link for threads: sends, and sleeps until the reply is there.

redis-py connects and authenticates. With hiredis, commands are packed and replies parsed here, on
the bare socket: redis-py's layers around the same two calls cost more than the calls. Without
hiredis, redis-py does all of it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import socket
import struct
import sys
import time
import weakref
from typing import Any

from interlock.client.request import Argument, Broken, Refused, Reply
from interlock.client.transport.redis_connection import (
    PAUSE,
    UNREADABLE,
    broken,
    make,
    refusal,
    spelt,
)
from interlock.client.url import Target

hiredis: Any
try:
    hiredis = importlib.import_module("hiredis")
except ImportError:
    hiredis = None


class Link:
    """One connection to one server, made on first use and remade when it was lost."""

    def __init__(self, target: Target, address: str) -> None:
        from redis import connection
        from redis.exceptions import RedisError

        self._error = RedisError
        self._made: Any = make(connection, target, address, target.timeout)
        self._longest = target.timeout
        self._speech: Speech | None = None
        self.interrupted = self.once = False
        self._was_opened = False
        _links.add(self)

    @property
    def is_open(self) -> bool:
        """See ``AnyLink``."""
        return self._speech is not None

    def ask(
        self,
        command: tuple[Argument, ...],
        timeout: float,
        before: tuple[Argument, ...] = (),
        nudge: float = 0,
    ) -> Reply:
        """Send a command and return its reply; see `Ask`.

        Raises:
            Broken: none came in `timeout` seconds, or the connection was lost.
            Refused: the server replied with an error.
        """
        sent = False
        try:
            spoken = self._speech
            if spoken is None:
                until = time.monotonic() + timeout
                spoken = self._opened(timeout)
                timeout = max(until - time.monotonic(), 0.001)
            if self.interrupted:
                raise Broken("interrupted", sent=False)
            sent = True
            if nudge:
                commands = (before, command) if before else (command,)
                return spoken.ask_slow(commands, timeout, nudge)
            if not spoken.shortest <= timeout <= spoken.longest:
                spoken.limit(timeout)
            return spoken.ask(command)
        except Refused:
            raise
        except BaseException as error:
            raise self._failed(error, sent) from None

    def ask_all(self, commands: tuple[tuple[Argument, ...], ...], timeout: float) -> list[Reply]:
        """Send commands together, and return their replies, with errors as Refused.

        Raises:
            Broken: a reply did not come in `timeout` seconds, or the connection was lost.
        """
        sent = False
        try:
            spoken = self._speech or self._opened(timeout)
            if self.interrupted:
                raise Broken("interrupted", sent=False)
            sent = True
            spoken.limit(timeout)
            return spoken.ask_all(commands)
        except BaseException as error:
            self.close()
            raise self._failed(error, sent) from None

    def send(self, command: tuple[Argument, ...], timeout: float) -> bool:
        """Send a command whose reply `receive` returns, `timeout` as for `ask`.

        Return False if `ask` must be used instead.
        """
        try:
            spoken = self._speech or self._opened(timeout)
            if not isinstance(spoken, Packed) or self.interrupted:
                return False
            if not spoken.shortest <= timeout <= spoken.longest:
                spoken.limit(timeout)
            spoken.send(command)
        except (OSError, AttributeError, self._error):
            # It may have arrived: a repetition uses the same number.
            self.close()
            return False
        except BaseException:
            self.close()
            raise
        return True

    def receive(self) -> Reply:
        """Return the reply to the sent command; raises as `ask`."""
        try:
            spoken = self._speech
            if not isinstance(spoken, Packed):
                raise Broken("Connection closed.", sent=True)
            return spoken.receive()
        except Refused:
            raise
        except BaseException as error:
            raise self._failed(error, True) from None

    def _failed(self, error: BaseException, sent: bool) -> BaseException:
        """Return the exception to raise for an error that is not a reply.

        The connection can no longer be used, unless redis-py turned a reply into an error.
        """
        if isinstance(error, self._error):
            found = refusal(error)
            if found is not None:
                if self._made._sock is None:
                    # redis-py closes the connection for some of them.
                    self._speech = None
                return found
        self.close()
        if isinstance(error, (self._error, OSError, *UNREADABLE)):
            return broken(error, sent)
        return error

    def _opened(self, timeout: float) -> Speech:
        if self.once and self._was_opened:
            raise Broken("the connection was lost", sent=False)
        self._was_opened = True
        made = self._made
        # The awaited element comes after that.
        connecting = min(timeout, self._longest)
        made._socket_connect_timeout = made.socket_connect_timeout = connecting
        made._socket_timeout = made.socket_timeout = timeout
        made.connect()
        self._speech = Speech(made) if hiredis is None else Packed(made)
        return self._speech

    def check(self) -> None:
        """Close the connection if the server has closed it already."""
        opened = self._made._sock
        if opened is None:
            return
        # Nothing was requested: any data means the end of the connection.
        try:
            ended = readable(opened, 0)
        except (OSError, ValueError):
            ended = True
        if ended:
            self.close()

    def interrupt(self) -> None:
        """End the call in flight, from another thread: it raises Broken."""
        # This comes first: a thread that is about to connect reads it afterwards.
        self.interrupted = True
        opened = self._made._sock
        if opened is not None:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection; the next call opens it again."""
        self._speech = None
        self._made.disconnect()

    def forget(self) -> None:
        """Close the copy that a fork has made, without notifying the server."""
        self._speech = None
        opened, self._made._sock = self._made._sock, None
        if opened is not None:
            opened.close()


class Speech:
    """Commands and replies over an open connection, by redis-py."""

    shortest = longest = 0.0
    """Limits that are close enough to the present one."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def limit(self, seconds: float) -> None:
        """Set how long sending, and each part of a reply, may take."""
        self._made._sock.settimeout(seconds)

    def ask(self, command: tuple[Argument, ...]) -> Reply:
        """Send a command and return its reply; raises Refused, OSError or an error of redis-py."""
        self._made.send_command(*command, check_health=False)
        return self._made.read_response(disable_decoding=True)

    def ask_all(self, commands: tuple[tuple[Argument, ...], ...]) -> list[Reply]:
        """Send commands together, and return their replies; raises OSError or redis-py's errors."""
        from redis.exceptions import ResponseError

        for command in commands:
            self._made.send_command(*command, check_health=False)
        found: list[Reply] = []
        for _ in commands:
            try:
                found.append(self._made.read_response(disable_decoding=True))
            except ResponseError as error:
                found.append(refusal(error) or Refused(str(error)))
        return found

    def ask_slow(
        self, commands: tuple[tuple[Argument, ...], ...], timeout: float, nudge: float
    ) -> Reply:
        """Send commands together, of which the first may take long, and return the last reply.

        If the first is not answered within `nudge` seconds, send a PING after them. redis-py sends
        none, because it closes a connection whose timeout expired: the wait ends later.
        """
        from redis.exceptions import ResponseError

        self.limit(timeout)
        for command in commands:
            self._made.send_command(*command, check_health=False)
        for _ in commands[:-1]:
            try:
                self._made.read_response(disable_decoding=True)
            except ResponseError:
                time.sleep(PAUSE)
        return self._made.read_response(disable_decoding=True)


class Packed(Speech):
    """The same by hiredis, on the bare socket."""

    def __init__(self, made: Any) -> None:
        from redis.exceptions import InvalidResponse

        super().__init__(made)
        self._sock: socket.socket = made._sock
        self._buffer = bytearray(BUFFER)
        self._reader = hiredis.Reader(protocolError=InvalidResponse, replyError=Refused)
        self._limit = 0.0
        # The kernel's own timeouts: with Python's, each call polls before it sends and receives.
        self._by_kernel = type(self._sock) is socket.socket and sys.platform != "win32"
        if self._by_kernel:
            self._sock.settimeout(None)

    def limit(self, seconds: float) -> None:
        """See ``Speech``."""
        self._limit = seconds
        self.shortest, self.longest = seconds * 0.9, seconds * 1.1
        if self._by_kernel:
            whole, part = divmod(max(round(seconds * 1e6), 1000), 1_000_000)
            length = struct.pack("@ll", whole, part)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, length)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, length)
        else:
            self._sock.settimeout(seconds)

    def ask(self, command: tuple[Argument, ...]) -> Reply:
        """See ``Speech``."""
        sock, buffer, reader = self._sock, self._buffer, self._reader
        try:
            sock.sendall(hiredis.pack_command(spelt(command)))
            while True:
                size = sock.recv_into(buffer)
                if not size:
                    raise Broken("Connection closed by server.", sent=True)
                reader.feed(buffer, 0, size)
                reply = reader.gets()
                if reply is not False:
                    break
        except (BlockingIOError, TimeoutError):
            raise Broken(f"no answer in {self._limit:.3g} s", sent=True) from None
        if isinstance(reply, Refused):
            raise reply
        return reply

    def ask_all(self, commands: tuple[tuple[Argument, ...], ...]) -> list[Reply]:
        """See ``Speech``."""
        try:
            self._sock.sendall(b"".join(map(hiredis.pack_command, map(spelt, commands))))
            return [self._next() for _ in commands]
        except (BlockingIOError, TimeoutError):
            raise Broken(f"no answer in {self._limit:.3g} s", sent=True) from None

    def send(self, command: tuple[Argument, ...]) -> None:
        """Send a command, as the first half of ``ask``; raises OSError."""
        self._sock.sendall(hiredis.pack_command(spelt(command)))

    def receive(self) -> Reply:
        """Return the reply, as the other half of ``ask``."""
        try:
            reply = self._received()
        except (BlockingIOError, TimeoutError):
            raise Broken(f"no answer in {self._limit:.3g} s", sent=True) from None
        if isinstance(reply, Refused):
            raise reply
        return reply

    def ask_slow(
        self, commands: tuple[tuple[Argument, ...], ...], timeout: float, nudge: float
    ) -> Reply:
        """See ``Speech``."""
        nudged = False
        try:
            self.limit(max(timeout - nudge, 0.001))
            self._sock.sendall(b"".join(map(hiredis.pack_command, map(spelt, commands))))
            # Not by the kernel's timeout of the socket, which may be an eighth too long.
            if not self._comes(nudge):
                nudged = True
                self._sock.sendall(hiredis.pack_command(("PING",)))
            reply = self._received()
            for _ in commands[1:]:
                if isinstance(reply, Refused):
                    time.sleep(PAUSE)
                reply = self._next()
            if nudged:
                self._next()
        except (BlockingIOError, TimeoutError):
            raise Broken(f"no answer in {timeout:.3g} s", sent=True) from None
        if isinstance(reply, Refused):
            raise reply
        return reply

    def _comes(self, seconds: float) -> bool:
        """Return whether data arrives in this time."""
        return readable(self._sock, seconds)

    def _next(self) -> Reply:
        """Return the next reply, which may already have arrived."""
        reply = self._reader.gets()
        return self._received() if reply is False else reply

    def _received(self) -> Reply:
        sock, buffer, reader = self._sock, self._buffer, self._reader
        while True:
            size = sock.recv_into(buffer)
            if not size:
                raise Broken("Connection closed by server.", sent=True)
            reader.feed(buffer, 0, size)
            reply = reader.gets()
            if reply is not False:
                return reply


def readable(sock: socket.socket, seconds: float) -> bool:
    """Return whether data arrives on a socket in this time."""
    if not hasattr(select, "poll"):
        return bool(select.select([sock], (), (), seconds)[0])
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


BUFFER = 65_536
_links: weakref.WeakSet[Link] = weakref.WeakSet()


def _forked() -> None:
    # Immediately: a signal handler may have forked in the middle of a call, which would continue in
    # the child and take the parent's reply.
    for link in list(_links):
        link.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
