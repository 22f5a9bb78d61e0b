"""Commands and replies over a connection that redis-py has made and authenticated.

With hiredis they are packed and parsed here, on the bare socket: redis-py's layers around the same
two calls cost more than the calls. Without hiredis redis-py does all of it.
"""

from __future__ import annotations

import importlib
import select
import socket
import struct
import sys
import time
from typing import Any

from interlock.engine.request import Argument, Broken, Refused, Reply

hiredis: Any
try:
    hiredis = importlib.import_module("hiredis")
except ImportError:
    hiredis = None


class Speech:
    """By redis-py."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def limit(self, seconds: float) -> None:
        """Sets how long sending, and each part of a reply, may take."""
        self._made._sock.settimeout(seconds)

    def ask(self, command: tuple[Argument, ...]) -> Reply:
        """Sends a command and gives its reply; raises Refused, OSError or an error of redis-py."""
        self._made.send_command(*command, check_health=False)
        return self._made.read_response(disable_decoding=True)

    def ask_slow(
        self, commands: tuple[tuple[Argument, ...], ...], timeout: float, nudge: float
    ) -> Reply:
        """Sends commands in one go, of which the first may take long, and gives the last's reply.

        With a PING behind them after `nudge` seconds, if the first is not answered. By redis-py
        without one, for a connection on which it lost patience it closes: the wait ends later.
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
    """By hiredis, on the socket."""

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
        """See ``Speech``. A limit that is nearly the one before is left as it is."""
        if self._limit * 0.9 <= seconds <= self._limit * 1.1:
            return
        self._limit = seconds
        if self._by_kernel:
            whole, part = divmod(max(round(seconds * 1e6), 1000), 1_000_000)
            length = struct.pack("@ll", whole, part)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, length)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, length)
        else:
            self._sock.settimeout(seconds)

    def ask(self, command: tuple[Argument, ...]) -> Reply:
        """See ``Speech``."""
        try:
            self._sock.sendall(hiredis.pack_command(command))
            reply = self._received()
        except (BlockingIOError, TimeoutError):
            raise Broken(f"no answer in {self._limit:.3g} s", sent=True) from None
        if isinstance(reply, Refused):
            raise reply
        return reply

    def send(self, command: tuple[Argument, ...]) -> None:
        """The first half of ``ask``; raises OSError."""
        self._sock.sendall(hiredis.pack_command(command))

    def receive(self) -> Reply:
        """The other half."""
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
            self._sock.sendall(b"".join(map(hiredis.pack_command, commands)))
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
        """Returns whether something comes in this time."""
        if not hasattr(select, "poll"):
            return bool(select.select([self._sock], (), (), seconds)[0])
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _next(self) -> Reply:
        """A reply that may be here already."""
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


def speech(made: Any) -> Speech:
    """The best way to speak over this connection, which is open."""
    return Speech(made) if hiredis is None else Packed(made)


BUFFER = 65_536
PAUSE = 0.05
"""Seconds for which a refused wait waits all the same: what comes behind it says what is wrong, but
not at full speed."""
