"""Settings of a Redis or Valkey that endanger queues: read, judged, and logged once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from interlock.client.request import Ask, Refused, Request
from interlock.watch import log

_known: set[str] = set()
"""Servers whose settings were checked in this process."""


class Finding(NamedTuple):
    """A setting of a server, and its consequence."""

    setting: str
    value: str
    problem: str
    """Consequence; empty: none."""
    advice: str = ""
    warns: bool = False
    """Also reported to clients: with it the server drops messages unasked, or accepts none."""


def found(address: str, timeout: float) -> Request[list[Finding] | str]:
    """Return the findings of a server, or the reason why it could not be asked."""
    told: dict[str, str] = {}
    for section in ("memory", "persistence", "replication"):
        try:
            reply = yield Ask(address, ("INFO", section), timeout)
        except Refused as error:
            return str(error)
        if type(reply) is not bytes:
            return "INFO is not text"
        lines = reply.decode(errors="replace").splitlines()
        told |= dict(line.partition(":")[::2] for line in lines if ":" in line)
    for name in ("save", "appendfsync"):
        # INFO has neither. Many managed servers refuse CONFIG; their settings remain unknown.
        with contextlib.suppress(Refused):
            reply = yield Ask(address, ("CONFIG", "GET", name), timeout)
            if isinstance(reply, list) and len(reply) == 2 and type(reply[1]) is bytes:
                told[name] = reply[1].decode(errors="replace")
    return judged(told)


def judged(told: Mapping[str, str]) -> list[Finding]:
    """Return the findings from INFO and CONFIG GET."""
    most, policy = told.get("maxmemory", "0"), told.get("maxmemory_policy", "noeviction")
    evicts = policy != "noeviction"
    log, role = told.get("aof_enabled", "0") == "1", told.get("role", "master")
    keeps_nothing = not log and told.get("save") == ""
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
            "" if log else NOTHING_KEPT if keeps_nothing else LOST_SINCE,
            "CONFIG SET appendonly yes",
            keeps_nothing,
        ),
        *_of_the_disk(told, log, keeps_nothing),
        Finding(
            "role",
            role,
            "it is a replica, which takes no writes" if role == "slave" else "",
            "name its primary in the URL",
            role == "slave",
        ),
    ]


def _of_the_disk(told: Mapping[str, str], log: bool, keeps_nothing: bool) -> Iterator[Finding]:
    if "save" in told:
        problem = NOTHING_KEPT if keeps_nothing else ""
        yield Finding("save", told["save"] or "none", problem, 'CONFIG SET save "3600 1 300 100"')
    if log and "appendfsync" in told:
        late = told["appendfsync"] == "no"
        problem = "a crash of the machine loses what its system has not written yet" if late else ""
        yield Finding(
            "appendfsync", told["appendfsync"], problem, "CONFIG SET appendfsync everysec"
        )


NOTHING_KEPT = "neither a log nor snapshots are written: a restart loses all queues"
LOST_SINCE = "a crash loses what came after the last snapshot"


def watched(address: str, timeout: float) -> Request[None]:
    """Check a server's settings, once in this process, and warn of those that lose queues.

    A missing right to read them is not an error.
    """
    if address in _known:
        return
    _known.add(address)
    seen = yield from found(address, timeout)
    if isinstance(seen, str):
        log.debug("%s: its settings could not be checked: %s", address, seen)
        return
    for one in seen:
        if one.warns:
            log.warning(
                "%s: %s is %s: %s; %s",
                address, one.setting, one.value, one.problem, one.advice,
            )  # fmt: skip
