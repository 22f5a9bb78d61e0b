"""Gates before hubs: they pass commands on, and spoil what a test names."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from tests.client.connection.stub import Stub

Spoken = tuple[socket.socket, IO[bytes]]

Fault = Callable[[list[bytes], Callable[[], bytes]], bytes | None]
"""Answers a command; has a function that makes the hub execute it: the reply, or None, which closes
the connection."""


class Gate:
    """Looks like the hub behind it. Each fault is injected as often as requested."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._faults: list[tuple[bytes, Fault]] = []
        self._lock = threading.Lock()
        self._of_thread = threading.local()
        self._spoken: list[Spoken] = []
        self._open = True
        self.stub = Stub(self._answer)

    def close(self) -> None:
        """Be gone: close all connections, and accept no new ones."""
        with self._lock:
            was_open, self._open = self._open, False
        if was_open:
            self.stub.close()
            for opened, reader in self._spoken:
                with contextlib.suppress(OSError):
                    opened.shutdown(socket.SHUT_RDWR)
                opened.close()
                with contextlib.suppress(OSError, ValueError):
                    reader.close()

    def cut(self) -> None:
        """Close the connections that are open now."""
        for one in self.stub._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.stub.port}"

    def spoil(self, word: bytes, *faults: Fault) -> None:
        """Have the next commands with this word, one after the other, be spoilt."""
        with self._lock:
            self._faults += [(word, fault) for fault in faults]

    def count(self, word: bytes) -> int:
        """Count the commands with this word that came."""
        return sum(word in command[:2] for command in self.stub.commands)

    def _answer(self, command: list[bytes]) -> bytes | None:
        with self._lock:
            found = next((one for one in self._faults if one[0] in command[:2]), None)
            if found is not None:
                self._faults.remove(found)
        if found is None:
            return self._asked(command)
        return found[1](command, lambda: self._asked(command))

    def _asked(self, command: list[bytes]) -> bytes:
        spoken: Spoken | None = getattr(self._of_thread, "spoken", None)
        if spoken is None:
            with self._lock:
                if not self._open:
                    raise OSError("closed")
                opened = socket.create_connection(("127.0.0.1", self._port))
                spoken = self._of_thread.spoken = opened, opened.makefile("rb")
                self._spoken.append(spoken)
        words = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in command)
        spoken[0].sendall(b"*%d\r\n%b" % (len(command), words))
        return _reply(spoken[1])


@contextmanager
def gate(port: int) -> Iterator[Gate]:
    """A gate that is there for a while."""
    made = Gate(port)
    try:
        yield made
    finally:
        made.close()


def says(text: str) -> Fault:
    """It is not done, and an error is the reply."""
    return lambda command, do: f"-{text}\r\n".encode()


def unheard(command: list[bytes], do: Callable[[], bytes]) -> None:
    """It is not done, and the connection is lost."""


def unanswered(command: list[bytes], do: Callable[[], bytes]) -> None:
    """It is done, and the connection is lost."""
    do()


def _reply(reader: IO[bytes]) -> bytes:
    line = reader.readline()
    if line[:1] == b"$" and line != b"$-1\r\n":
        return line + reader.read(int(line[1:]) + 2)
    if line[:1] == b"*":
        return line + b"".join(_reply(reader) for _ in range(int(line[1:])))
    return line
