"""A proxy between an agent and its server: it cuts, delays, halves and holds what it passes on."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from contextlib import suppress


class Proxy:
    """Listens on loopback and connects to a unix socket; each connection has a fault of its own."""

    def __init__(self, server: str, seed: int) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.faults: dict[str, int] = {}
        self._server = server
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._calm = threading.Event()
        self._open: list[Passed] = []
        self._threads: list[threading.Thread] = []
        self._ended = threading.Event()
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def calm(self) -> None:
        """From now on everything is passed on; what was held is cut."""
        self._calm.set()
        self.cut()

    def cut(self) -> None:
        """Break all connections off, without a farewell."""
        with self._lock:
            passed, self._open = self._open, []
        for one in passed:
            one.cut()

    def close(self) -> None:
        self._ended.set()
        # An accept that waits is not ended by closing what it waits for.
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self._accepting.join()
        self.cut()
        for thread in self._threads:
            thread.join()

    def count(self, fault: str) -> None:
        with self._lock:
            self.faults[fault] = self.faults.get(fault, 0) + 1

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                agent, _ = self.listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._server)
            except OSError:
                agent.close()
                server.close()
                continue
            with self._lock:
                seed = self._random.randrange(2**32)
                fault = self._random.choice(FAULTS)
            passed = Passed(self, agent, server)
            with self._lock:
                self._open.append(passed)
            for source, target, name in ((agent, server, "there"), (server, agent, "back")):
                thread = threading.Thread(
                    target=passed.run, args=(source, target, fault, f"{seed} {name}"), daemon=True
                )
                self._threads.append(thread)
                thread.start()

    def is_calm(self) -> bool:
        return self._calm.is_set()


class Passed:
    """One connection, in both directions."""

    def __init__(self, proxy: Proxy, agent: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._sockets = (agent, server)
        self._left = 2
        self._lock = threading.Lock()

    def cut(self) -> None:
        for one in self._sockets:
            with suppress(OSError):
                if one.family == socket.AF_INET:
                    # A reset: what is under way is lost as well.
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.shutdown(socket.SHUT_RDWR)

    def run(self, source: socket.socket, target: socket.socket, fault: str, seed: str) -> None:
        own = random.Random(seed)
        budget = own.randrange(1, own.choice((200, 20_000, 400_000)))
        with suppress(OSError):
            while piece := source.recv(own.choice((1, 100, 4096, 65536))):
                budget -= len(piece)
                if budget > 0 or self._proxy.is_calm() or fault == "none":
                    target.sendall(piece)
                    continue
                self._proxy.count(fault)
                if fault == "delay":
                    time.sleep(own.random() * 0.1)
                    target.sendall(piece)
                    budget = own.randrange(1, 100_000)
                elif fault == "halve":
                    target.sendall(piece[: own.randrange(len(piece) + 1)])
                    break
                elif fault == "cut":
                    break
                elif fault == "end":
                    # Nothing more comes from there, though it still takes what is sent.
                    target.shutdown(socket.SHUT_WR)
                    return self._leave()
                else:
                    # Held: neither an end nor a byte more, until somebody gives up.
                    while source.recv(65536) and not self._proxy.is_calm():
                        pass
                    break
        self.cut()
        self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                for one in self._sockets:
                    one.close()


FAULTS = ("none", "delay", "halve", "cut", "end", "hold")
