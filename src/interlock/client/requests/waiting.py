"""Ways for a call to wait: the only module that knows which servers park.

A server that parks receives the wait and answers within it. Redis answers immediately; the caller
then sleeps until the functions push to a list, and calls again. For work, or for room, BLPOP takes
from the list: an element is for one waiter, and each waiter for room has its own list. For the end
of messages BLMOVE moves it onto itself: an element is for all who wait for the same.
"""

from __future__ import annotations

import time
from typing import Any

from interlock.client.connection.call import Engine
from interlock.client.request import Abandoned, Argument, Ask, Broken, Nap, Refused, Request
from interlock.client.session import Session
from interlock.client.wire.messages import Sleep

CHUNK = 10.0
"""Seconds of one wait, after which the server is asked again. So a server that disappeared silently
is noticed."""


LATE = 0.002
"""Seconds after a wait's end for which Redis may still consider it running."""


def chunk(until: float | None) -> float:
    """Return the seconds that the next call is to wait."""
    return CHUNK if until is None else max(0.0, min(until - time.monotonic(), CHUNK))


def over(until: float | None) -> bool:
    """Return True if the waiting time is over."""
    return until is not None and time.monotonic() >= until


def sleep(engine: Engine, key: str, suffix: str, wait: float, due: float | None) -> Sleep | None:
    """Return the command that does `doze` together with the call after it, and its seconds.

    None: it is not possible here, or for no time; `doze` is used then.
    """
    seconds = wait if due is None else min(wait, due)
    if seconds <= 0 or not engine.knows_a_sleeper:
        return None
    seconds = max(seconds, 0.001)
    return _command(key, suffix, seconds), seconds


def doze(
    engine: Engine, session: Session[Any], key: str, suffix: str, wait: float, due: float | None
) -> Request[None]:
    """Sleep after a call without a result, until asking again may succeed.

    Args:
        suffix: suffix of the list's name: ``wake:any``, ``room:CONSUMER``, ``settled:all``.
        wait: the wait that was passed to that call.
        due: seconds until something falls due, from its answer.
    """
    address = yield from engine.nodes.of(key, session, engine.target.timeout)
    server = engine.servers.get(address)
    if server is not None and server.parks:
        return
    seconds = wait if due is None else min(wait, due)
    if seconds <= 0:
        return
    if session.interrupted:
        raise Abandoned
    # A BLPOP of 0 would have no limit; Redis counts its timeout in whole ms.
    seconds = max(seconds, 0.001)
    started = time.monotonic()
    try:
        command = _command(key, suffix, seconds)
        yield Ask(address, command, seconds + engine.target.timeout, (), seconds + LATE)
    except (Broken, Refused) as error:
        if session.interrupted:
            raise Abandoned from None
        if isinstance(error, Refused) and time.monotonic() - started < 0.01:
            # The next call reports the fault; this limits the rate if it does not.
            yield Nap(0.05)


def parks(engine: Engine, session: Session[Any], key: str) -> Request[bool]:
    """Return whether the server of this queue, which was asked before, waits by itself."""
    address = yield from engine.nodes.of(key, session, engine.target.timeout)
    server = engine.servers.get(address)
    return server is not None and server.parks


def _command(key: str, suffix: str, seconds: float) -> tuple[Argument, ...]:
    named, timeout = f"{key}:{suffix}", f"{seconds:.3f}"
    if suffix.startswith("settled:"):
        return "BLMOVE", named, named, "LEFT", "LEFT", timeout
    return "BLPOP", named, timeout
