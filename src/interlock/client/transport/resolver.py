"""Names of hosts, resolved in the time that a call has.

The system's resolver has no timeout, and waits half a minute for silent servers. So a thread calls
it; a caller whose time is over leaves the thread behind, and the next caller waits for the same
thread. The caller itself resolves only if no thread can be started.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import os
import socket
import threading
from concurrent.futures import Future
from typing import Any

Addresses = tuple[str, ...]


def addresses(host: str, port: int, seconds: float | None) -> Addresses:
    """Return the addresses of a host; an address is its own. OSError if not resolved in time."""
    if is_address(host):
        return (host,)
    try:
        return lookup(host, port).result(seconds)
    except TimeoutError:
        raise OSError(f"the name {host!r} was not resolved in {seconds:.3g} s") from None


def is_address(host: str) -> bool:
    """Return True if a host is an address, False if it is a name."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def lookup(host: str, port: int) -> Future[Addresses]:
    """Return the running lookup of this host, or a new one."""
    with _lock:
        found = _lookups.get((host, port))
        if found is not None:
            return found
        found = _lookups[host, port] = Future()
        # A caller that stops waiting must not cancel it for the others.
        found.set_running_or_notify_cancel()
    asked = (host, port, found)
    thread = threading.Thread(target=_resolve, args=asked, name="interlock-resolve", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # No thread can be started, or the interpreter is ending: then there is no time limit.
        _resolve(*asked)
    return found


def _resolve(host: str, port: int, found: Future[Addresses]) -> None:
    try:
        told = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        answer = tuple(dict.fromkeys(str(address[0]) for *_, address in told))
    except BaseException as error:
        done = functools.partial(found.set_exception, error)
    else:
        done = functools.partial(found.set_result, answer)
    with _lock:
        if _lookups.get((host, port)) is found:
            del _lookups[host, port]
    done()


class _Resolving:
    """Mixin for a connection of redis-py for threads: it receives an address, and keeps its
    name."""

    def _connect(self: Any) -> Any:
        host = self.host
        failure: OSError | None = None
        try:
            for address in addresses(host, self.port, self.socket_connect_timeout):
                self.host = address
                try:
                    return super()._connect()  # type: ignore[misc]
                except OSError as error:
                    failure = error
        finally:
            self.host = host
        raise failure or OSError(f"{host!r} has no address")


class _AsyncResolving:
    """The same for asyncio, whose own resolver would delay the end of its loop."""

    _address = ""

    async def _connect(self: Any) -> None:
        failure: OSError | None = None
        found: Addresses = (self.host,)
        if not is_address(self.host):
            found = await asyncio.wrap_future(lookup(self.host, self.port))
        for self._address in found:
            try:
                await super()._connect()  # type: ignore[misc]
                return
            except OSError as error:
                failure = error
        raise failure or OSError(f"{self.host!r} has no address")

    def _connection_arguments(self: Any) -> dict[str, Any]:
        arguments = {**super()._connection_arguments(), "host": self._address}  # type: ignore[misc]
        if "ssl" in arguments:
            # The certificate is for the name.
            arguments["server_hostname"] = self.host
        return arguments


@functools.cache
def connection(module: Any, tls: bool) -> Any:
    """Return the class of a connection of `module`, redis.connection or its asyncio half."""
    if module.__name__.startswith("redis.asyncio"):
        base = module.SSLConnection if tls else module.Connection
        return type("AsyncResolving", (_AsyncResolving, base), {})
    if not tls:
        return type("Resolving", (_Resolving, module.Connection), {})
    # The class after SSLConnection connects the socket, and reads the name itself.
    return type("ResolvingTls", (module.SSLConnection, _Resolving, module.Connection), {})


_lookups: dict[tuple[str, int], Future[Addresses]] = {}
_lock = threading.Lock()


def _forked() -> None:
    """Forget the lookups of the parent, whose threads do not exist here."""
    global _lock
    _lock = threading.Lock()
    _lookups.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
