"""The server of a queue: the only one, or in a cluster the one that serves its slot."""

from __future__ import annotations

import re
from binascii import crc_hqx
from typing import Any

from interlock.client.request import Ask, Broken, Refused, Request
from interlock.client.session import Session
from interlock.client.url import Target
from interlock.errors import EngineUnavailable


class Nodes:
    """The servers of a target. In a cluster they are asked for the slots, and again after a
    move."""

    def __init__(self, target: Target) -> None:
        self._seeds = target.addresses
        self._cluster = target.kind == "cluster"
        self._ranges: list[tuple[int, int, str]] = []
        self._moved: dict[int, str] = {}

    def of(self, key: str, session: Session[Any], timeout: float) -> Request[str]:
        """Return the address of the server that has a queue."""
        if not self._cluster:
            return self._seeds[0]
        slot = slot_of(key)
        if slot not in self._moved and not self._ranges:
            yield from self._learn(session, timeout)
        if slot in self._moved:
            return self._moved[slot]
        for first, last, address in self._ranges:
            if first <= slot <= last:
                return address
        # The slot has no server now: any node reports that.
        return self._seeds[0]

    def known(self, key: str) -> str:
        """Return the address of the server of a queue, as far as it is known without asking."""
        if not self._cluster:
            return self._seeds[0]
        slot = slot_of(key)
        if slot in self._moved:
            return self._moved[slot]
        owners = (address for first, last, address in self._ranges if first <= slot <= last)
        return next(owners, self._seeds[0])

    def primaries(self, session: Session[Any], timeout: float) -> Request[list[str]]:
        """Return the address of every server that has queues.

        Raises:
            Broken, Refused: no node can list them.
        """
        if not self._cluster:
            return [self._seeds[0]]
        failure = yield from self._learn(session, timeout)
        if failure is None:
            return sorted({address for _, _, address in self._ranges})
        if isinstance(failure, Refused) and _ALONE.search(str(failure)):
            return [self._seeds[0]]
        raise failure

    def moved(self, redirection: str, asked: str) -> None:
        """Note the new server of a slot, from a reply such as ``MOVED 3999 host:port``."""
        slot, address = redirected(redirection, asked)
        self._moved[slot] = address

    def doubt(self) -> None:
        """Forget the slots: a server was unreachable, so they may be out of date."""
        self._moved.clear()
        self._ranges = []

    def _learn(self, session: Session[Any], timeout: float) -> Request[Broken | Refused | None]:
        """Ask one node after another; return the last error if none answers."""
        failure: Broken | Refused | None = None
        known = dict.fromkeys([*(address for _, _, address in self._ranges), *self._seeds])
        share = max(timeout / (len(known) + 1), 0.1)
        for address in known:
            try:
                slots = yield Ask(address, ("CLUSTER", "SLOTS"), share)
            except (Broken, Refused) as error:
                failure = error
                continue
            ranges = _ranges(slots, address)
            if ranges is None:
                failure = Broken(f"{_NONSENSE}: CLUSTER SLOTS is {_short(slots)}", sent=True)
                continue
            self._ranges = ranges
            self._moved.clear()
            self._seeds = tuple(
                dict.fromkeys([*self._seeds, *(address for _, _, address in self._ranges)])
            )
            return None
        return failure


def redirected(said: str, asked: str) -> tuple[int, str]:
    """Return the slot and the server of a redirection; EngineUnavailable if it names none."""
    found = _REDIRECTION.fullmatch(said)
    if found is None or not 0 < int(found[3]) < 65536:
        raise EngineUnavailable(f"{_NONSENSE}: {_short(said)}")
    # An empty host stands for the server that was asked.
    return int(found[1]), f"{found[2] or asked.rpartition(':')[0]}:{found[3]}"


def _ranges(slots: Any, asked: str) -> list[tuple[int, int, str]] | None:
    """Return the slots and their servers from the reply to CLUSTER SLOTS; None if it is
    malformed."""
    found = []
    try:
        for first, last, node, *_ in slots:
            # An empty host stands for the server that was asked.
            host, port = node[0].decode() or asked.rpartition(":")[0], node[1]
            if not all(type(one) is int for one in (first, last, port)) or not 0 < port < 65536:
                return None
            found.append((first, last, f"{host}:{port}"))
    except (TypeError, ValueError, AttributeError, IndexError):
        return None
    return found


def _short(said: object) -> str:
    text = repr(said)
    return text if len(text) <= 120 else f"{text[:120]}..."


def slot_of(key: str) -> int:
    """Return the slot of a queue's key: of the part in braces."""
    return crc_hqx(key[key.index("{") + 1 : key.index("}")].encode(), 0) % 16384


_REDIRECTION = re.compile(r"(?:MOVED|ASK) (\d{1,5}) (\S*):(\d{1,5})(?: .*)?")
_NONSENSE = "the server is not part of a cluster"
# Not a cluster, or a hub: it has all queues.
_ALONE = re.compile("cluster support disabled|unknown (sub)?command", re.IGNORECASE)
