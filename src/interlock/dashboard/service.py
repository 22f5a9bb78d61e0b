"""The dashboard as a service: its socket, uvicorn, and its end by TERM or INT."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
from typing import Any

from interlock.dashboard.settings import Settings
from interlock.runtime.installation import needs

LACKING = f"the dashboard needs starlette and uvicorn: {needs('dashboard')}"
END = 10
"""Seconds that requests have for finishing at the end."""
TICK = 1
"""Seconds between two updates of the Date header."""
DEAD = 60_000
"""Milliseconds after which the kernel closes a connection whose other end reads nothing."""


def serve(settings: Settings, ready: Callable[[str], None] = lambda url: None) -> None:
    """Serve until TERM or INT; call `ready` with the address once requests are taken.

    Raises:
        ImportError: starlette or uvicorn is not installed.
        OSError: the address cannot be bound.
        ValueError: the settings would admit unauthorised users.
    """
    Service(settings).run(ready)


class Service:
    """A dashboard and its socket; `serve` makes one and runs it."""

    def __init__(self, settings: Settings) -> None:
        settings.check()
        try:
            import uvicorn

            from interlock.dashboard.application import Dashboard
        except ModuleNotFoundError as error:
            raise ImportError(f"{LACKING} ({error})") from error
        self._listener = listen(settings.host, settings.port)
        port = int(self._listener.getsockname()[1])
        self.url = address(settings, port)
        dashboard = self.dashboard = Dashboard(replace(settings, port=port))
        self._ready: Callable[[str], None] = lambda url: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()
        service = self

        class Server(uvicorn.Server):
            """Ends streams before it waits for requests, and leaves signals to the loop."""

            @contextlib.contextmanager
            def capture_signals(self) -> Iterator[None]:
                if threading.current_thread() is threading.main_thread():
                    loop = asyncio.get_running_loop()
                    for number in (signal.SIGTERM, signal.SIGINT):
                        loop.add_signal_handler(number, self.handle_exit, number, None)
                yield

            def handle_exit(self, sig: int, frame: FrameType | None) -> None:
                super().handle_exit(sig, frame)
                service._ended.set()

            async def main_loop(self) -> None:
                # uvicorn's own wakes up ten times a second to read `should_exit`.
                while not await self.on_tick(0):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(TICK):
                            await service._ended.wait()

            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                service._loop = asyncio.get_running_loop()
                await super().startup(sockets=sockets)
                service._ready(service.url)

            async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
                dashboard.stop()
                await super().shutdown(sockets=sockets)

        config = uvicorn.Config(
            _asgi(dashboard),
            lifespan="on",
            log_config=None,
            # It would log invalid requests as warnings, and anyone can send them.
            log_level="error",
            access_log=False,
            server_header=False,
            # A header's address claiming loopback would let its sender try passwords for ever.
            proxy_headers=False,
            ws="none",
            timeout_graceful_shutdown=END,
            limit_concurrency=CONNECTIONS,
            h11_max_incomplete_event_size=HEAD,
        )
        self._server = Server(config)

    def run(self, ready: Callable[[str], None] = lambda url: None) -> None:
        """Serve until `stop`, or TERM or INT if this is the main thread."""
        self._ready = ready
        with self._listener:
            asyncio.run(self._server.serve(sockets=[self._listener]))

    def stop(self) -> None:
        """End it, from any thread."""
        self._server.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._ended.set)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise OSError if the address cannot be bound."""
    name = host.strip("[]")
    family, kind, protocol, _, place = socket.getaddrinfo(
        name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # Accepted sockets inherit them.
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD)
        made.bind(place)
        made.listen(BACKLOG)
        made.set_inheritable(False)
    except BaseException:
        made.close()
        raise
    return made


def address(settings: Settings, port: int) -> str:
    """Return the URL of the page."""
    host = f"[{settings.host}]" if ":" in settings.host.strip("[]") else settings.host
    return f"http://{host.replace('[[', '[').replace(']]', ']')}:{port}{settings.base_path}/"


def _asgi(dashboard: Any) -> Any:
    """Return it with uvicorn's type."""
    return dashboard


CONNECTIONS = 512
"""Maximum connections; a further one gets 503."""
HEAD = 65_536
"""Bytes of a request's line and headers."""
BACKLOG = 128
