"""A hub in this process: `with interlock.Hub(port=0) as hub:`.

Its threads are the native server's own; none of them ever takes the GIL, so a busy program does not
slow the hub down, nor the hub the program.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from interlock import _core
from interlock.hub.config import configuration
from interlock.hub.serve.control import Controller
from interlock.hub.serve.state import Standing, State
from interlock.runtime import forks

if TYPE_CHECKING:
    from interlock.hub.serve.http_server import HttpServer
    from interlock.hub.serve.pages import MorePages

logger = logging.getLogger("interlock.hub")


class Hub:
    """A server of topics and keyed queues over the Redis protocol, on threads of its own here.

    `config` is the path of a TOML file, a mapping of the same shape, or a checked
    `interlock.hub.config.configuration.Configuration`; `settings` override it. Without any the hub
    listens on 127.0.0.1:6399; `port=0` takes a free port. ConfigError lists all faults.

    `keepers` names tables that the hub does not write to itself: it passes their write commands,
    and `NODE`, to the table's keeper, which answers them.

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
        *,
        keepers: Mapping[str, _core.TableKeeper] | None = None,
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
        self._keepers = dict(keepers or {})
        self._config.check_keepers(self._keepers)
        self._server: _core.HubServer | None = None
        self._end: Callable[..., int | None] | None = None
        self._http: HttpServer | None = None
        self._tables: _core.HubTables | None = None
        self._standing = Standing()
        # Digests of the files that the running configuration names.
        self._files: Mapping[str, bytes] = {}
        # The queues' clock, for tests; None: the system's.
        self._clock: _core.ManualClock | None = None
        self._process = self._forks = 0
        # One change of the configuration at a time.
        self._changes = threading.Lock()
        self.on_shutdown: Callable[[], None] | None = None
        """Called for the first command SHUTDOWN, on a thread of the hub's; None refuses it."""
        self.on_broken: Callable[[], None] | None = None
        """Called when a thread of the hub has ended by a fault of its own: the hub should be
        restarted. Runs on a thread of the hub's."""
        self.pages: MorePages | None = None
        """Pages in front of its own, from its next start on."""
        self.on_apply: Callable[[configuration.Configuration], None] | None = None
        """Called with another configuration before it is applied; may refuse it by ConfigError."""

    @property
    def config(self) -> configuration.Configuration:
        """The checked configuration."""
        return self._config

    @property
    def addresses(self) -> list[str]:
        """Addresses it listens on: `host:port`, with the actual port for 0, and `unix:path`."""
        return self._running().addresses

    @property
    def url(self) -> str:
        """The first address in the form that Redis clients take."""
        first = self.addresses[0]
        if first.startswith("unix:"):
            return f"unix://{first.removeprefix('unix:')}"
        if first.startswith("tls:"):
            return f"rediss://{first.removeprefix('tls:')}"
        return f"redis://{first}"

    @property
    def port(self) -> int:
        """The TCP port; 0 if it listens on a unix socket only."""
        return next(self._ports(), 0)

    @property
    def tls_port(self) -> int:
        """The TCP port that speaks TLS; 0 without one."""
        return next(self._ports("tls:"), 0)

    def _ports(self, kind: str = "") -> Iterator[int]:
        for address in self.addresses:
            if address.startswith(kind) and not address.startswith("unix:"):
                yield int(address.rpartition(":")[2])

    @property
    def http_address(self) -> str:
        """`host:port` of HTTP for watching; empty without the setting `http.port`."""
        self._running()
        return "" if self._http is None else self._http.address

    def start(self, listeners: Sequence[int] = ()) -> None:
        """Listen, and start the threads.

        `listeners` are descriptors of listening stream sockets to serve instead of the configured
        addresses; they remain the caller's. Raises OSError, which names the address or descriptor,
        if it cannot listen.
        """
        if self._server is not None:
            raise RuntimeError("the hub is running already")
        given = {**self._for_server(self._config), "controlled": True, "clock": self._clock}
        self._files = configuration.contents(given)
        server = _core.HubServer({**given, "inherited": list(listeners)})
        tables = self._config.opened(keepers=self._keepers)
        http = self._http_server(server)
        try:
            server.start(tables)
        except BaseException:
            if http is not None:
                http.close()
            raise
        controller = Controller(self, server)
        controller.start()
        self._server, self._http, self._tables = server, http, tables
        self._process, self._forks = os.getpid(), forks.count
        self._end = weakref.finalize(self, end, server, controller, http, self._forks)
        self._standing.state = State.SERVING
        if http is not None:
            http.start()

    def reload(self) -> list[str]:
        """Read the configuration again from its source, and apply it to the running hub.

        Returns the changed keys that need a restart to take effect.

        Raises ConfigError or OSError if it cannot be used: nothing has changed then. Changes by
        `set` are undone.
        """
        with self._changes:
            new, fixed = self._config.renewed()
            self._apply(new)
        if fixed:
            logger.warning("these need a restart: %s", ", ".join(fixed))
        return fixed

    def set(self, values: Mapping[str, object]) -> None:
        """Change keys of the running hub until the next reload.

        All of them change or, with a ConfigError, none.
        """
        given = {
            key: value
            if isinstance(value, configuration.Raw)
            else configuration.Raw(value, "set()")
            for key, value in values.items()
        }
        with self._changes:
            new, fixed = self._config.renewed(given)
            if fixed:
                faults = (f"{key} cannot change while the hub runs" for key in fixed)
                raise configuration.ConfigError(tuple(faults))
            self._apply(new)

    def _apply(self, new: configuration.Configuration) -> None:
        server, given = self._running(), self._for_server(new)
        tables = new.opened(self._config, self._tables, self._keepers)
        if self.on_apply is not None:
            self.on_apply(new)
        changed = [key for key, value in new.values.items() if value != self._config[key]]
        files = configuration.contents(given)
        renewed = [
            f"the contents of {key}"
            for key, digest in files.items()
            if self._files.get(key, digest) != digest
        ]
        # First: logins under the new users must not be compared with the old ones.
        self._config, self._tables = new, tables
        server.apply(given, keep_users="user" not in changed, tables=tables)
        self._files = files
        logger.info("reconfigured: %s", ", ".join(changed + renewed) or "nothing has changed")

    def _for_server(self, config: configuration.Configuration) -> dict[str, Any]:
        given = config.for_server()
        try:
            _core.HubServer(given)
        except ValueError as error:
            # Only the native side can check whether certificates and keys are valid.
            raise configuration.ConfigError((str(error),)) from None
        return given

    def stop(self, timeout: float | None = None) -> int:
        """Stop, and return the number of clients with unsent data.

        It accepts no new connections, waits up to `timeout` seconds (the setting `drain`) until the
        clients have read their data, and closes.
        """
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"stop(): timeout is {timeout}; allowed: 0 or more, None")
        server = self._server
        # After a fork the threads, and so the hub, are the parent's: a child cannot stop it.
        if server is None or self._end is None or self._forks != forks.count:
            return 0
        self._standing.state = State.DRAINING
        try:
            # Clients' requests during the drain are still answered.
            return server.stop(self._config["drain"] if timeout is None else timeout)
        finally:
            self._server = self._http = self._tables = None
            self._end()

    def info(self) -> dict[str, Any]:
        """Return the server's counters, by their INFO names."""
        return self._running().info()

    def tables(self) -> dict[str, dict[str, int]]:
        """Return the figures of each served table, by its name.

        Rows of a large table are counted in the background: the figures are some seconds old, and
        missing at first.
        """
        return self._running().tables()

    def stores(self) -> dict[str, dict[str, int]]:
        """Return the figures of each store, by its name."""
        return self._running().stores()

    def rotate(self) -> None:
        """Begin new files in the stores whose current files have messages."""
        self._running().rotate()

    def pulse(self) -> list[bool]:
        """Send each worker a beat; return for each whether it has answered the previous one.

        Repeated calls by one caller find a hung worker.
        """
        return self._running().pulse()

    def _http_server(self, server: _core.HubServer) -> HttpServer | None:
        host, port = self._config["http.host"], self._config["http.port"]
        if port < 0:
            return None
        # Imported here, because the imports take megabytes.
        from interlock.hub.serve.http_server import HttpServer
        from interlock.hub.serve.pages import HubPages

        # From the native server, not from this object: it is also asked while it drains.
        standing = self._standing
        pages = HubPages(
            lambda: standing.state,
            server.info,
            server.tables,
            server.stores,
            self.pages,
            server.queues,
        )
        return HttpServer(host, port, pages)

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
        if self._forks != forks.count:
            raise RuntimeError(f"the hub runs in process {self._process}; this is a fork of it")
        return self._server


def end(
    server: _core.HubServer, controller: Controller, http: HttpServer | None, began: int
) -> None:
    """End a hub that was stopped, or has no references left."""
    if began == forks.count:
        server.stop(0.0)
        controller.stop()
        if http is not None:
            # Last, so that a drain can be watched.
            http.close()
