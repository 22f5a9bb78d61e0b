"""A TCP proxy on loopback that spoils connections as a test tells it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Spoil = Callable[[bytes], bytes | None]
"""Returns the data to pass on; None cuts the connection, and nothing is passed on."""


class Proxy:
    """Passes connections on to a server. A setting applies from then on, to all of them.

    `requests` and `replies` spoil what goes each way; `split` passes on byte by byte; `silent`
    passes nothing on and says nothing; `refuse` closes whatever connects. After `refuse` and `cut`
    nothing that was connected before passes on any more.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.requests: Spoil = _whole
        self.replies: Spoil = _whole
        self.split = False
        self.refuse = False
        self.silent = False
        self.connections = 0
        self._lock = threading.Lock()
        self._cuts = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def heal(self) -> None:
        """Everything passes again, but nothing that was sent while it was refused."""
        if self.refuse:
            # Earlier connections may not be accepted yet. They are accepted in turn, this one last.
            with socket.create_connection(("127.0.0.1", self.port)) as last:
                last.recv(1)
            self.connections -= 1
        self.requests = self.replies = _whole
        self.split = self.refuse = self.silent = False

    def cut(self) -> None:
        """Cuts every connection there is."""
        with self._lock:
            self._cuts += 1
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.cut()
        for one in self._open:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            cuts = self._cuts
            if self.refuse:
                client.close()
                continue
            try:
                server = socket.create_connection(self._server)
            except OSError:
                client.close()
                continue
            with self._lock:
                # `cut` does not know it before.
                cut = self.refuse or self._cuts != cuts
                if not cut:
                    self._open += [client, server]
            if cut:
                client.close()
                server.close()
                continue
            for ends in ((client, server, "requests"), (server, client, "replies")):
                threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, come: socket.socket, go: socket.socket, way: str) -> None:
        with contextlib.suppress(OSError):
            while data := come.recv(65536):
                if self.silent:
                    continue
                spoil: Spoil = getattr(self, way)
                passed = spoil(data)
                if passed is not None:
                    for part in _bytes(passed) if self.split else [passed]:
                        go.sendall(part)
                if passed is None or len(passed) < len(data):
                    break
        for end in (come, go):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def cutting(word: bytes, times: int = 1, keep: int = 0) -> Spoil:
    """Cuts at data with `word` in it, this number of times, after its first `keep` bytes."""
    left = [times]

    def spoil(data: bytes) -> bytes | None:
        if word in data and left[0] > 0:
            left[0] -= 1
            return data[:keep] if keep else None
        return data

    return spoil


def delaying(seconds: float, times: int = 1) -> Spoil:
    """Delays data by this time, this number of times."""
    left = [times]

    def spoil(data: bytes) -> bytes:
        if left[0] > 0:
            left[0] -= 1
            time.sleep(seconds)
        return data

    return spoil


@contextmanager
def proxied(host: str, port: int) -> Iterator[Proxy]:
    proxy = Proxy(host, port)
    try:
        yield proxy
    finally:
        proxy.close()


def _whole(data: bytes) -> bytes:
    return data


def _bytes(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]
