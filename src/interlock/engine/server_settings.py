"""Settings of a Redis or Valkey under which queues lose messages: read, judged, and logged once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

from interlock.engine.request import Ask, Refused, Request

_log = logging.getLogger("interlock.queue")
_known: set[str] = set()
"""Servers whose settings were looked at in this process."""


class Finding(NamedTuple):
    """A setting of a server, and what follows from it."""

    setting: str
    value: str
    problem: str
    """Empty: none."""
    advice: str = ""
    is_lossy: bool = False
    """The server drops messages by it, unasked."""


def found(address: str, timeout: float) -> Request[list[Finding] | str]:
    """Return the findings of a server, or the reason why it could not be asked."""
    told: dict[str, str] = {}
    for section in ("memory", "persistence", "replication"):
        try:
            reply = yield Ask(address, ("INFO", section), timeout)
        except Refused as error:
            return str(error)
        if type(reply) is not bytes:
            return "INFO is no text"
        lines = reply.decode(errors="replace").splitlines()
        told |= dict(line.partition(":")[::2] for line in lines if ":" in line)
    return judged(told)


def judged(told: Mapping[str, str]) -> list[Finding]:
    """Return the findings of what INFO tells."""
    most, policy = told.get("maxmemory", "0"), told.get("maxmemory_policy", "noeviction")
    evicts = policy != "noeviction"
    log, role = told.get("aof_enabled", "0") == "1", told.get("role", "master")
    return [
        Finding(
            "maxmemory-policy",
            policy,
            "at its maxmemory the server deletes whole queues" if evicts else "",
            "CONFIG SET maxmemory-policy noeviction",
            evicts and most != "0",
        ),
        Finding(
            "appendonly",
            "yes" if log else "no",
            "" if log else "a crash loses what came after the last snapshot",
            "CONFIG SET appendonly yes",
        ),
        Finding(
            "role",
            role,
            "it is a replica, which takes no writes" if role == "slave" else "",
            "name its primary in the URL",
        ),
    ]


def watched(address: str, timeout: float) -> Request[None]:
    """Look at a server's settings, once in this process, and warn of those that lose messages."""
    if address in _known:
        return
    _known.add(address)
    seen = yield from found(address, timeout)
    if isinstance(seen, str):
        _log.debug("%s: its settings could not be checked: %s", address, seen)
        return
    for one in seen:
        if one.is_lossy:
            _log.warning(
                "%s: %s is %s: %s; %s",
                address, one.setting, one.value, one.problem, one.advice,
            )  # fmt: skip
