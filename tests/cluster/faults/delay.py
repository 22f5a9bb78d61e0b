"""A proxy on the way between data centres: what goes through it comes later, or not at all.

The kernel's own way to delay packets (netem) is not everywhere. TCP is passed on in pieces, each
not before its time, so order is kept; what was sent quickly comes as quickly.
"""

from __future__ import annotations

import random
import select
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.cluster.faults.netns import Network

PIECE = 1 << 16
MOST_HELD = 4 << 20
"""Bytes under way in one direction of a connection; more is not read until some arrived."""


FOR_EVER = 1e6
"""Seconds."""


class DelayProxy:
    """Listens at one machine and connects from there to an address.

    Attributes:
        delay: seconds that each byte takes, in each direction; may be changed at any time.
        jitter: up to this many seconds more, chosen for each piece.
        late: seconds more for what is appended to a log. It comes though its sender has given up
            the connection meanwhile, as what is under way in a network does.
        deaf: what is answered is held.
    """

    def __init__(self, network: Network | None, host: str, target: tuple[str, int]) -> None:
        """Listen at any free port of `host`; without a network on loopback."""
        self.delay = 0.0
        self.jitter = 0.0
        self.late = 0.0
        self.deaf = False
        self._network = network
        self._host = host
        self._target = target
        self._ended = threading.Event()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._listening = threading.Event()
        self._thread = self._start(self._accept)
        assert self._listening.wait(10), "the proxy does not listen"
        self.port: int = self._listener.getsockname()[1]

    def cut(self) -> None:
        """Break all connections off; new ones are passed on."""
        with self._lock:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._ended.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self.cut()
        self._thread.join()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self, work: object, *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        thread.start()
        return thread

    def _accept(self) -> None:
        if self._network is not None:
            self._network.enter(self._host)
        self._listener = socket.create_server(
            ("0.0.0.0" if self._network else "127.0.0.1", 0), backlog=64
        )
        self._listening.set()
        while not self._ended.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._threads = [one for one in self._threads if one.is_alive()]
            self._threads.append(self._start(self._serve, near))

    def _serve(self, near: socket.socket) -> None:
        if self._network is not None:
            self._network.enter(self._host)
        try:
            far = socket.create_connection(self._target, 5)
        except OSError:
            near.close()
            return
        with near, far:
            with self._lock:
                self._open |= {near, far}
            try:
                if not self._ended.is_set():
                    _pass_on(self, near, far)
            except OSError:
                pass
            finally:
                with self._lock:
                    self._open -= {near, far}

    def due(self, *, appends: bool, answers: bool) -> float:
        """The moment at which what comes now is to go out."""
        late = self.late if appends else FOR_EVER if answers and self.deaf else 0.0
        return time.monotonic() + self.delay + random.random() * self.jitter + late

    def calm(self) -> None:
        """Have all come at once again; what was held for ever is lost, with its connections."""
        is_lost = self.deaf or self.delay >= FOR_EVER
        self.delay = self.jitter = self.late = 0.0
        self.deaf = False
        if is_lost:
            self.cut()

    def has_ended(self) -> bool:
        return self._ended.is_set()


def _pass_on(proxy: DelayProxy, near: socket.socket, far: socket.socket) -> None:
    """Pass on both directions of a connection until one ends."""
    ways = [_Way(near, far), _Way(far, near, answers=True)]
    for one in (near, far):
        one.setblocking(False)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while not proxy.has_ended() and any(not way.done for way in ways):
        now = time.monotonic()
        reading = [way.source for way in ways if way.wants_more()]
        writing = [way.target for way in ways if way.is_due(now)]
        soonest = min((way.held[0][0] for way in ways if way.held), default=now + 0.5)
        readable, writable, _ = select.select(
            reading, writing, [], min(max(soonest - now, 0.0005), 0.5)
        )
        for way in ways:
            if way.source in readable:
                way.take(proxy)
            if way.target in writable:
                way.give()


class _Way:
    """One direction."""

    def __init__(
        self, source: socket.socket, target: socket.socket, *, answers: bool = False
    ) -> None:
        self.source, self.target, self._answers = source, target, answers
        self.held: deque[tuple[float, bytes]] = deque()
        self.size = 0
        self.ended = False
        self.done = False
        self._newest = 0.0
        self._appends = False

    def wants_more(self) -> bool:
        return not self.ended and self.size < MOST_HELD

    def is_due(self, now: float) -> bool:
        return bool(self.held) and self.held[0][0] <= now

    def take(self, proxy: DelayProxy) -> None:
        try:
            piece = self.source.recv(PIECE)
        except ConnectionError:
            piece = b""
        self.ended = not piece
        self._appends = self._appends or b"XADD" in piece
        # Never before what came earlier.
        self._newest = max(proxy.due(appends=self._appends, answers=self._answers), self._newest)
        self.held.append((self._newest, piece))
        self.size += len(piece)

    def give(self) -> None:
        due, piece = self.held.popleft()
        try:
            if not piece:
                self.done = True
                self.target.shutdown(socket.SHUT_WR)
                return
            sent = self.target.send(piece)
        except OSError:
            # Nobody hears it any more; what goes the other way still comes.
            self.held.clear()
            self.ended = self.done = True
            return
        self.size -= sent
        if sent < len(piece):
            self.held.appendleft((due, piece[sent:]))
