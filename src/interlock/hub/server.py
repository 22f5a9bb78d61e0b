"""A hub in this process: `with interlock.Hub(port=0) as hub:`.

Its threads are the native server's own; none of them ever takes the GIL, so a busy program does
not slow the hub down, nor the hub the program.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Self

from interlock import _core
from interlock.hub import config as configuration
from interlock.hub.httpd import HttpServer
from interlock.hub.pages import HubPages, State


class Hub:
    """A server for topics that speaks the Redis protocol, on threads of its own in this process.

    `config` is the path of a TOML file, a mapping in the shape of one, or a checked
    `interlock.hub.config.Configuration`; `settings` go before it. With none of them the hub listens
    on 127.0.0.1:6399; `port=0` takes a free port. ConfigError tells all that is wrong with them.

    >>> from interlock import Hub
    >>> with Hub(port=0) as hub:
    ...     print(hub.url)  # doctest: +ELLIPSIS
    redis://127.0.0.1:...
    """

    def __init__(
        self,
        config: str
        | PathLike[str]
        | Mapping[str, object]
        | configuration.Configuration
        | None = None,
        **settings: object,
    ) -> None:
        given = configuration.from_arguments(settings)
        if isinstance(config, configuration.Configuration):
            raw = {
                key: configuration.Raw(value, config.origins[key])
                for key, value in config.values.items()
            }
            self._config = configuration.checked({**raw, **given}) if given else config
        elif isinstance(config, Mapping):
            self._config = configuration.read(
                given={**configuration.from_arguments(config), **given}
            )
        elif config is None or isinstance(config, str | PathLike):
            self._config = configuration.read(config, given=given)
        else:
            raise TypeError(
                f"Hub(): config is {type(config).__name__}; allowed: a path, a mapping, "
                f"a Configuration, None"
            )
        self._server: _core.HubServer | None = None
        self._http: HttpServer | None = None
        self._state = State.STARTING
        self._process = 0

    @property
    def config(self) -> configuration.Configuration:
        """The checked configuration."""
        return self._config

    @property
    def addresses(self) -> list[str]:
        """Where it listens: `host:port`, with the port that was taken for 0, and `unix:path`."""
        return self._running().addresses

    @property
    def url(self) -> str:
        """The first address as clients of Redis take it."""
        first = self.addresses[0]
        if first.startswith("unix:"):
            return f"unix://{first.removeprefix('unix:')}"
        return f"redis://{first}"

    @property
    def port(self) -> int:
        """The TCP port; 0 if it listens on a unix socket only."""
        return next(
            (
                int(address.rpartition(":")[2])
                for address in self.addresses
                if not address.startswith("unix:")
            ),
            0,
        )

    @property
    def http_address(self) -> str:
        """`host:port` of HTTP for watching; empty without the setting `http.port`."""
        self._running()
        return "" if self._http is None else self._http.address

    def start(self, listeners: Sequence[int] = ()) -> None:
        """Listen, and start the threads. `listeners` are descriptors of listening stream sockets
        to serve instead of the addresses of the configuration; they stay the caller's. Raises
        OSError, which names the address or descriptor, where it cannot listen."""
        if self._server is not None:
            raise RuntimeError("the hub is running already")
        server = _core.HubServer({**self._config.for_server(), "inherited": list(listeners)})
        http = self._http_server(server)
        try:
            server.start()
        except BaseException:
            if http is not None:
                http.close()
            raise
        self._server, self._http = server, http
        self._process = os.getpid()
        self._state = State.SERVING
        if http is not None:
            http.start()

    def stop(self, timeout: float | None = None) -> int:
        """Take no more connections, wait up to `timeout` seconds (the setting `drain`) until the
        clients have read what they are owed, and close. Answers how many were owed some still."""
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"stop(): timeout is {timeout}; allowed: 0 or more, None")
        # After a fork the threads are the parent's, and so is the hub: a child cannot stop it.
        if self._server is None or self._process != os.getpid():
            return 0
        server, self._server = self._server, None
        http, self._http = self._http, None
        self._state = State.DRAINING
        try:
            return server.stop(self._config["drain"] if timeout is None else timeout)
        finally:
            # Last, so that a drain can be watched.
            if http is not None:
                http.close()

    def info(self) -> dict[str, Any]:
        """The server's counters, by the names that INFO gives them."""
        return self._running().info()

    def pulse(self) -> list[bool]:
        """Send each worker a beat; tells of each whether it has answered the beat before. Called
        again and again by one caller, it finds a worker that hangs."""
        return self._running().pulse()

    def _http_server(self, server: _core.HubServer) -> HttpServer | None:
        host, port = self._config["http.host"], self._config["http.port"]
        if port < 0:
            return None
        # Of the native server, not of this: it is asked while it drains too.
        return HttpServer(host, port, HubPages(lambda: self._state, server.info))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        where = "stopped" if self._server is None else ", ".join(self._server.addresses)
        return f"<Hub {where}>"

    def _running(self) -> _core.HubServer:
        if self._server is None:
            raise RuntimeError("the hub is not running; start it with `with Hub() as hub:`")
        if self._process != os.getpid():
            raise RuntimeError(f"the hub runs in process {self._process}; this is a fork of it")
        return self._server
