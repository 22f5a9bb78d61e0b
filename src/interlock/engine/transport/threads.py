"""A link for threads: sends, and sleeps until the reply is there."""

from __future__ import annotations

import contextlib
import os
import socket
import time
import weakref
from typing import Any

from interlock.engine.request import Argument, Broken, Refused, Reply
from interlock.engine.transport.connection import UNREADABLE, broken, make, refusal
from interlock.engine.transport.speech import Packed, Speech, speech
from interlock.engine.url import Target


class Link:
    """One connection to one server, made when it is first asked and again when it was lost."""

    def __init__(self, target: Target, address: str) -> None:
        from redis import connection
        from redis.exceptions import RedisError

        self._error = RedisError
        self._made: Any = make(connection, target, address, target.timeout)
        self._speech: Speech | None = None
        self.interrupted = False
        _links.add(self)

    def ask(
        self,
        command: tuple[Argument, ...],
        timeout: float,
        before: tuple[Argument, ...] = (),
        nudge: float = 0,
    ) -> Reply:
        """Sends a command and gives its reply; see `Ask`.

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
            spoken.limit(timeout)
            return spoken.ask(command)
        except Refused:
            raise
        except BaseException as error:
            raise self._failed(error, sent) from None

    def send(self, command: tuple[Argument, ...], timeout: float) -> bool:
        """Sends a command whose reply `receive` gives, `timeout` as for `ask`. False: it is to be
        asked with `ask` instead."""
        try:
            spoken = self._speech or self._opened(timeout)
            if not isinstance(spoken, Packed) or self.interrupted:
                return False
            spoken.limit(timeout)
            spoken.send(command)
        except (OSError, AttributeError, self._error):
            # It may have got through: who asks it again asks under the same number.
            self.close()
            return False
        except BaseException:
            self.close()
            raise
        return True

    def receive(self) -> Reply:
        """The reply to what was sent; raises as `ask`."""
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
        """The exception to raise for an error that is no reply; the connection is of no use any
        more, unless redis-py made an error of a reply."""
        if isinstance(error, self._error):
            found = refusal(error)
            if found is not None:
                if self._made._sock is None:
                    # redis-py closes for some of them.
                    self._speech = None
                return found
        self.close()
        if isinstance(error, (self._error, OSError, *UNREADABLE)):
            return broken(error, sent)
        return error

    def _opened(self, timeout: float) -> Speech:
        made = self._made
        made._socket_connect_timeout = made.socket_connect_timeout = timeout
        made._socket_timeout = made.socket_timeout = timeout
        made.connect()
        self._speech = speech(made)
        return self._speech

    def interrupt(self) -> None:
        """Ends the call under way, from another thread: Broken is raised there."""
        # First: who is about to connect looks at it afterwards.
        self.interrupted = True
        opened = self._made._sock
        if opened is not None:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the connection; asking opens it again."""
        self._speech = None
        self._made.disconnect()

    def forget(self) -> None:
        """Closes what a fork has copied, without a word to the server."""
        self._speech = None
        opened, self._made._sock = self._made._sock, None
        if opened is not None:
            opened.close()


_links: weakref.WeakSet[Link] = weakref.WeakSet()


def _forked() -> None:
    # At once: a signal handler may have forked in the middle of a call, which would go on in the
    # child and take the parent's reply.
    for link in list(_links):
        link.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
