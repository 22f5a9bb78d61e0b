"""Passes writes of this node's clients on to the primary, and tells it what is applied here."""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from interlock.cluster.entry import Change
from interlock.cluster.machine import Machine
from interlock.cluster.peers import Peers
from interlock.cluster.ports import Leader
from interlock.cluster.requests import Request
from interlock.hub.client import Client
from interlock.hub.resp import ReplyError, Word

logger = logging.getLogger("interlock.cluster")
MOST = 500
"""Writes that are passed on at once."""
MOST_OFFERED = 500
PAUSE = 0.05


class Held(Protocol):
    """A node, as far as this needs it."""

    machine: Machine
    lock: threading.RLock


class Forwarder:
    """A thread with one connection to whoever is the primary."""

    def __init__(self, node: Held, peers: Peers, timeout: float) -> None:
        self._node = node
        self._peers = peers
        self._timeout = timeout
        self._wake = threading.Event()
        self._ends = threading.Event()
        self._client: Client | None = None
        self._leader = Leader()
        self._passing = 0
        """The token of the primary that something is passed on to."""
        self._told = (0, 0)
        self._thread = threading.Thread(target=self._run, name="node-forwarder", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End; what is not passed on is not."""
        self._ends.set()
        self._wake.set()
        client = self._client
        if client is not None:
            client.close()
        self._thread.join()

    def wake(self) -> None:
        """Look again: there is something to pass on, or to tell."""
        self._wake.set()

    def _run(self) -> None:
        while not self._ends.is_set():
            self._wake.wait()
            self._wake.clear()
            try:
                while not self._ends.is_set() and self._step():
                    pass
            except ReplyError as error:
                # Another is the primary by now, or will be: the stream will say who.
                logger.debug("the primary refuses: %s", error)
                self._again()
            except (OSError, ValueError) as error:
                logger.debug("the primary cannot be reached: %s", error)
                self._drop()
                self._again()

    def _again(self) -> None:
        with self._node.lock:
            # Of the primary that failed; a later one was given everything when its term began, this
            # node itself perhaps, which must not do it twice.
            self._node.machine.requests.send_again(self._passing)
        self._ends.wait(PAUSE)
        self._wake.set()

    def _step(self) -> bool:
        """Send what there is; return whether there was something."""
        with self._node.lock:
            machine = self._node.machine
            leader, primary = machine.leader, machine.primary
            if primary is not None and primary.active and primary.token == leader.token:
                machine.offer(MOST_OFFERED)
                return machine.offers.waits
            if not leader.address or machine.joining:
                return False
            self._passing = leader.token
            writes = machine.requests.take_unsent(leader.token, MOST)
            seq = machine.fence.mark.seq
            tells = machine.wants_haves and (leader.token, seq) != self._told
            offers = machine.offers.take(MOST_OFFERED)
        if not writes and not tells and not offers:
            return False
        if offers:
            self._offer(leader, offers)
        client = self._connected(leader)
        if writes:
            client.call("NODE", "WRITE", leader.token, machine.node, *_flat(writes))
        if tells:
            client.call("NODE", "HAVE", leader.token, machine.node, seq)
            self._told = (leader.token, seq)
        return True

    def _offer(self, leader: Leader, changes: list[Change]) -> None:
        offers = self._node.machine.offers
        flat = [word for change in changes for word in change]
        try:
            seq = self._connected(leader).call("NODE", "OFFER", leader.token, *flat)
        except BaseException:
            with self._node.lock:
                offers.back(changes)
            raise
        with self._node.lock:
            offers.given(leader.token, int(str(seq)), changes)

    def _connected(self, leader: Leader) -> Client:
        if self._client is None or leader != self._leader:
            self._drop()
            self._client = Client(
                self._peers.address(leader.address), timeout=self._timeout, name="node"
            )
            self._leader = leader
        return self._client

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


def _flat(writes: list[Request]) -> list[Word]:
    words: list[Word] = []
    for request in writes:
        words += (request.number, int(request.resp3), len(request.arguments), *request.arguments)
    return words
