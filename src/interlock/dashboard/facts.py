"""Facts about an engine's server: its kind, its version, and further figures of INFO."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from interlock.client.admin.server import _asked
from interlock.client.request import Argument, Request
from interlock.client.wire import admin as wire_queue
from interlock.dashboard.refusal import of
from interlock.errors import EngineUnavailable, InterlockError

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator
    from interlock.client.session import Session


def facts(operator: Operator) -> dict[str, Any]:
    """Return ``kind`` and ``version``; the second is empty if the user may not ask for it."""
    try:
        found = info(operator, "server")
    except InterlockError as error:
        if of(error).status != 403:
            raise
        return {"kind": "hub" if _parks(operator) else "redis", "version": ""}
    for kind, name in KINDS.items():
        if name in found:
            return {"kind": kind, "version": found[name]}
    return {"kind": "redis", "version": found.get("redis_version", "")}


def _parks(operator: Operator) -> bool:
    """Return whether the server is a hub, judged by its functions of queues."""
    try:
        version = wire_queue.version(ask(operator, "FCALL", "il1_version", 0))
    except InterlockError as error:
        if of(error).status != 403:
            raise
        return False
    return "parks" in version.features


def info(operator: Operator, *sections: str) -> dict[str, str]:
    """Return the figures of INFO, by name, as text; for a cluster those of its first primary."""
    text = ask(operator, "INFO", *sections)
    lines = text.decode(errors="backslashreplace").splitlines() if isinstance(text, bytes) else []
    pairs = (line.partition(":") for line in lines if not line.startswith("#"))
    return {name: value for name, colon, value in pairs if colon}


def ask(operator: Operator, *command: Argument) -> Any:
    """Return a server's answer to a command; for a cluster the first primary's."""
    server = operator._server

    def request(session: Session[Any]) -> Request[Any]:
        address = (yield from server._primaries(session))[0]
        return (yield from _asked(address, server._engine.target.timeout, *command))

    until = time.monotonic() + server._engine.target.timeout / 2
    for _ in range(CLOSED):
        try:
            return server._client._sessions.run(None, request)
        except EngineUnavailable:
            # A closed connection fails immediately. The next may be closed too, or is new.
            if time.monotonic() > until:
                raise
    return server._client._sessions.run(None, request)


CLOSED = 4
"""Maximum connections that a server has closed and that one question tries."""
KINDS = {"hub": "interlock_version", "valkey": "valkey_version", "redis": "redis_version"}
"""Lines of INFO that identify each kind; the first match counts."""
