"""Which server has a queue: the only one, or of a cluster the one that has its slot."""

from __future__ import annotations

import re
from binascii import crc_hqx
from typing import Any

from interlock.engine.flow import Ask, Broken, Flow, Refused
from interlock.engine.seat import Seat
from interlock.engine.url import Target


class Nodes:
    """The servers of a target. A cluster tells which of them has what, and again when it moved."""

    def __init__(self, target: Target) -> None:
        self._seeds = target.addresses
        self._cluster = target.kind == "cluster"
        self._ranges: list[tuple[int, int, str]] = []
        self._moved: dict[int, str] = {}

    def of(self, key: str, seat: Seat[Any], timeout: float) -> Flow[str]:
        """The address of the server that has a queue."""
        if not self._cluster:
            return self._seeds[0]
        slot = slot_of(key)
        if slot not in self._moved and not self._ranges:
            yield from self._learn(seat, timeout)
        if slot in self._moved:
            return self._moved[slot]
        for first, last, address in self._ranges:
            if first <= slot <= last:
                return address
        # Nobody has it now: any node says so.
        return self._seeds[0]

    def primaries(self, seat: Seat[Any], timeout: float) -> Flow[list[str]]:
        """Every server that has queues.

        Raises:
            Broken, Refused: none of the nodes says which they are.
        """
        if not self._cluster:
            return [self._seeds[0]]
        failure = yield from self._learn(seat, timeout)
        if failure is None:
            return sorted({address for _, _, address in self._ranges})
        if isinstance(failure, Refused) and _ALONE.search(str(failure)):
            return [self._seeds[0]]
        raise failure

    def moved(self, redirection: str) -> None:
        """A server said where a slot is now: ``MOVED 3999 host:port``."""
        _, slot, address = redirection.split()[:3]
        self._moved[int(slot)] = address

    def doubt(self) -> None:
        """A server could not be had: what was learnt may be out of date."""
        self._moved.clear()
        self._ranges = []

    def _learn(self, seat: Seat[Any], timeout: float) -> Flow[Broken | Refused | None]:
        """Asks one node after the other, and gives what the last one said if none tells."""
        failure: Broken | Refused | None = None
        known = dict.fromkeys([*(address for _, _, address in self._ranges), *self._seeds])
        share = max(timeout / (len(known) + 1), 0.1)
        for address in known:
            try:
                slots = yield Ask(address, ("CLUSTER", "SLOTS"), share)
            except (Broken, Refused) as error:
                failure = error
                continue
            # An empty host is the one that was asked.
            self._ranges = [
                (first, last, f"{node[0].decode() or address.rpartition(':')[0]}:{node[1]}")
                for first, last, node, *_ in slots
            ]
            self._moved.clear()
            self._seeds = tuple(
                dict.fromkeys([*self._seeds, *(address for _, _, address in self._ranges)])
            )
            return None
        return failure


def slot_of(key: str) -> int:
    """The slot of a queue's key: of what stands in its braces."""
    return crc_hqx(key[key.index("{") + 1 : key.index("}")].encode(), 0) % 16384


# A server that is no cluster, or a hub: it has all queues.
_ALONE = re.compile("cluster support disabled|unknown (sub)?command", re.IGNORECASE)
