"""A server that says what a test wants, for what no real one can be brought to."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from interlock import EngineUnavailable
from interlock.client.lua.library import Library

Answer = Callable[[list[bytes]], bytes | None]
"""Returns the bytes of a command's reply; None: the connection is closed silently."""


class Stub:
    """Answers each command by `answer`, and keeps them."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.commands: list[list[bytes]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        # Only that wakes who accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), client, client.makefile("rb") as reader:
            while line := reader.readline():
                command = []
                for _ in range(int(line[1:])):
                    command.append(reader.read(int(reader.readline()[1:]) + 2)[:-2])
                self.commands.append(command)
                reply = self.answer(command)
                if reply is None:
                    return
                client.sendall(reply)


def version(*features: str) -> bytes:
    """The answer of `il1_version` for this release's library."""
    return array("1", _LIBRARY.hash, "keys=1024", *features)


def array(*parts: str | bytes) -> bytes:
    """A flat array of strings."""
    texts = [part if isinstance(part, bytes) else part.encode() for part in parts]
    return b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%b\r\n" % (len(t), t) for t in texts)


def is_version(command: list[bytes]) -> bool:
    return command[:2] == [b"FCALL", b"il1_version"]


def may_be_unknown(error: EngineUnavailable) -> bool:
    """Return whether a call of a loaded machine's client was left without an answer at the end."""
    return re.search("Timeout reading|no answer in", str(error)) is not None


@contextmanager
def stub(answer: Answer) -> Iterator[Stub]:
    """A stub that is there for a while."""
    server = Stub(answer)
    try:
        yield server
    finally:
        server.close()


_LIBRARY = Library()
