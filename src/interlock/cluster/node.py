"""A node: the threads around a machine, and the hub through which clients reach it."""

from __future__ import annotations

import logging
import os
import secrets
import select
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import interlock
from interlock import _core
from interlock.cluster.appender import Appender
from interlock.cluster.campaign import Campaign
from interlock.cluster.commands import Commands
from interlock.cluster.control import Control
from interlock.cluster.entry import Change, Origin
from interlock.cluster.fence import Mark
from interlock.cluster.figures import NodeFigures
from interlock.cluster.forwarder import Forwarder
from interlock.cluster.links import Link
from interlock.cluster.machine import Machine
from interlock.cluster.membership import Membership
from interlock.cluster.pages import NodePages
from interlock.cluster.projection import Projection
from interlock.cluster.reader import Reader
from interlock.cluster.replica import Replica
from interlock.cluster.settings import BEAT, NodeSettings
from interlock.cluster.stamps import HybridClock
from interlock.cluster.state import TableRules
from interlock.cluster.storage import Storage
from interlock.cluster.streams import ChangeStream, Role, open_stream
from interlock.cluster.transfer import ScanMark, Scans
from interlock.engine.announcements import announcements
from interlock.errors import InterlockError
from interlock.hub.server import Hub
from interlock.hub.url import Address
from interlock.table.table import SharedTable

logger = logging.getLogger("interlock.cluster")
TICK = 0.05
KEPT = 1_000_000
"""Entries that a stream keeps at least."""
TAKEN = 2_000
"""Commands that are taken at once."""
FLUSHED = 5.0
"""Seconds for which the end of a node waits for its database."""
DRAINED = 2.0
"""Seconds for which a node that drains waits for another to be the primary."""


class Node:
    """One node of a cluster: ``with Node(settings, hub) as node:``.

    The hub must declare the table and be given `keeper` for it; it is started and stopped with the
    node.
    """

    def __init__(
        self,
        settings: NodeSettings,
        hub: Hub,
        keeper: _core.TableKeeper,
        table: SharedTable[Any],
        *,
        advertise: str = "",
    ) -> None:
        self.settings = settings
        self.hub = hub
        self.lock = threading.RLock()
        self.ended = threading.Event()
        """It cannot go on; its figures say why."""
        self._advertise = advertise
        self._keeper = keeper
        rules = TableRules.of(settings.row, tombstone_age=settings.tombstone_age)
        clock = HybridClock(settings.dc, now_ms=_now_ms)
        ttl_ms = None if settings.ttl is None else round(settings.ttl * 1000)
        self.rules = rules
        self._replica = Replica(rules, Projection(table, rules))
        self._commands = Commands(
            rules, table_name=settings.table, key_size=settings.key_size, default_ttl_ms=ttl_ms
        )
        self._clock = clock
        self.machine = Machine(
            node=f"{settings.name}/{secrets.token_hex(4)}",
            dc=settings.dc,
            ack=settings.acks,
            replica=self._replica,
            commands=self._commands,
            clock=clock,
            ports=self,
            now_ms=_now_ms,
            monotonic=time.monotonic,
            beat=BEAT,
            write_timeout=settings.lease + 2.0,
            capacity=settings.capacity,
        )
        self._storage = Storage(settings, rules, clock)
        self.scans = Scans(self._replica.states, self._scan_mark)
        self._control = Control(self)
        self._client = interlock.connect(settings.cluster)
        self._link_clients = {dc: interlock.connect(url) for dc, url in settings.links.items()}
        self.figures: NodeFigures
        self._membership = Membership(
            self._client, settings.table, settings.dc,
            lambda: self.figures.announcement(hub.http_address),
        )  # fmt: skip
        self.machine.replicas = self._membership.replicas
        self._reader = Reader(
            self.machine, self.lock, lambda: self._stream("read"), self._membership.near,
            self._fresh,
            settings.peers, 2 * settings.lease,
        )  # fmt: skip
        self._appender = Appender(lambda: self._stream("append"), self.lock, self.machine.flush)
        self._forwarder = Forwarder(self, settings.peers, settings.lease)
        self._campaign = Campaign(
            self._client, f"node-{settings.table}", self.machine, self.lock, settings.lease,
            self._may_stand, lambda: self.address, settings.name,
        )  # fmt: skip
        self._links = [
            Link(dc, self.machine, self.lock, self._flush, partial(self._link_stream, dc),
                 partial(self._link_nodes, dc), time.monotonic, _now_ms)
            for dc in settings.links
        ]  # fmt: skip
        self.figures = NodeFigures(
            settings, self.machine, self._membership, self._reader, self._appender,
            self._campaign, self._storage, self._links, lambda: self.address,
        )  # fmt: skip
        hub.on_broken = lambda: self._fail("a thread of its hub has ended")
        hub.pages = NodePages(self.figures.standing)
        self._successor_until = 0.0
        self._cleared = False
        self._ends = threading.Event()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        names = (("node-commands", self._take), ("node-clock", self._run_clock))
        self._threads = [
            threading.Thread(target=self._guarded, args=(n, run), name=n, daemon=True)
            for n, run in names
        ]

    # -- Life ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Load what is in the database, and take part. Raises as ``Hub.start``."""
        # Threads hand work to each other, and none computes for long.
        sys.setswitchinterval(0.0005)
        self._keeper.set_fresh(0)
        self.hub.start()
        try:
            self._storage.load(self.machine, self.lock)
            self._membership.start()
        except BaseException:
            self.hub.stop()
            self._storage.close()
            raise
        for thread in self._threads:
            thread.start()
        self._reader.start()
        self._appender.start()
        self._forwarder.start()
        self._campaign.start()
        for link in self._links:
            link.start()

    def close(self) -> None:
        """Hand over, withdraw, and end."""
        self._storage.flush(FLUSHED)
        self.drain()
        self._ends.set()
        os.eventfd_write(self._wake, 1)
        for link in self._links:
            link.close()
        self._campaign.close()
        self._forwarder.close()
        self._appender.close()
        self._reader.close()
        for thread in self._threads:
            thread.join()
        self._storage.close()
        self._membership.close()
        self._keeper.close()
        self.hub.stop()
        self._client.close()
        for client in self._link_clients.values():
            client.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """``HOST:PORT`` at which others reach its hub."""
        if self._advertise:
            return self._advertise
        return self.settings.peers.own(self.hub.addresses)

    # -- Threads ------------------------------------------------------------------------------

    def _guarded(self, name: str, run: Callable[[], None]) -> None:
        # A node that answers nothing, or whose time stands still, must not hold on to its role.
        try:
            run()
        except Exception as error:
            logger.exception("the thread %s has ended", name)
            self._fail(f"its thread {name} has ended: {type(error).__name__}: {error}")

    def _take(self) -> None:
        poll = select.poll()
        poll.register(self._keeper.fileno(), select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        while not self._ends.is_set():
            poll.poll()
            calls = self._keeper.take(TAKEN)
            if not calls:
                continue
            replies = []
            with self.lock:
                for asker, _user, resp3, arguments in calls:
                    if arguments[0].upper() == b"NODE":
                        replies.append((asker, self._answered(arguments)))
                    else:
                        self.machine.write(asker, arguments, resp3)
                self.machine.perform()
                if self._appender.is_idle:
                    self.machine.flush()
            if replies:
                self._keeper.answer(replies)

    def _answered(self, arguments: list[bytes]) -> bytes:
        try:
            return self._control.answer(arguments)
        except Exception:
            logger.exception("a command of NODE")
            return b"-ERR the node could not do it; its log says why\r\n"

    def _run_clock(self) -> None:
        while not self._ends.wait(TICK):
            with self.lock:
                self.machine.tick()
                self._flush()
                self._replica.sweep(_now_ms(), self.settings.tombstones)

    # -- What the machine asks for ------------------------------------------------------------

    def append(self, entry: bytes) -> None:
        """See ``Ports``."""
        self._appender.append(entry)

    def drop_appends(self) -> None:
        """See ``Ports``."""
        self._appender.drop()

    def answer(self, replies: list[tuple[int, bytes]]) -> None:
        """See ``Ports``."""
        self._keeper.answer(replies)

    def wake_forwarder(self) -> None:
        """See ``Ports``."""
        self._forwarder.wake()

    def resync_from(self, why: str) -> None:
        """See ``Ports``."""
        if self.settings.max_staleness is not None:
            self._keeper.set_fresh(0)
        self._reader.resync(why)

    def resign(self, successor: str) -> None:
        """See ``Ports``."""
        if successor != self.settings.name:
            self._successor_until = time.monotonic() + 2 * self.settings.lease
        self._campaign.resign()

    def save(self, rows: list[Change], mark: Mark, links: dict[str, Origin]) -> None:
        """See ``Ports``."""
        self._storage.save(rows, mark, links)

    def leads(self, token: int) -> None:
        """See ``Ports``."""
        self._storage.leads(token)
        self._membership.wake()

    def rests(self) -> None:
        """See ``Ports``."""
        self._storage.rests()
        self._membership.wake()

    def joined(self) -> None:
        """See ``Ports``."""
        if not self._cleared:
            # Rows of an earlier life, which were deleted since.
            self._cleared = True
            self._replica.projection.clear_others(self._replica.states, _now_ms())
        self._membership.wake()

    def mismatch(self, theirs: str) -> None:
        """See ``Ports``."""
        self._fail(f"the primary has {theirs}; this node has {self.machine.identity}")

    def _fail(self, why: str) -> None:
        if not self.figures.fault:
            logger.critical("node %s cannot go on: %s", self.settings.name, why)
            self.figures.fault = why
        self.ended.set()

    # -- Operating ----------------------------------------------------------------------------

    def fail_over(self, successor: str = "") -> str:
        """Have another node, or the one that is named, be the primary; return why it cannot be."""
        names = [one.id for one in self._membership.near()]
        if not self.machine.is_primary:
            return f"not the primary: ask {self.machine.leader.node.partition('/')[0] or 'it'}"
        if successor == self.settings.name:
            return f"{successor} is the primary"
        if successor and successor not in names:
            return f"there is no node {successor!r}; there are {', '.join(names) or 'none'}"
        if not names:
            return "there is no other node in this data centre"
        self.machine.hand_over(successor)
        return ""

    def drain(self) -> None:
        """Be no primary, and tell clients and balancers to go."""
        with self.lock:
            self.figures.draining = True
            if self.machine.is_primary:
                self.machine.hand_over()
        until = time.monotonic() + DRAINED
        while self.machine.primary is not None and time.monotonic() < until:
            if threading.current_thread().name.startswith("node-"):
                break
            time.sleep(0.01)

    def resync(self) -> str:
        """Take a snapshot of another node; return why that cannot be."""
        if self.machine.is_primary:
            return "it is the primary; the others follow it"
        if not self._membership.near():
            return "there is no other node"
        self.machine.resync("an operator asked for it")
        return ""

    def _may_stand(self) -> bool:
        machine = self.machine
        if machine.joining or self.figures.draining or self.ended.is_set():
            return False
        named = machine.successor
        if named and named != self.settings.name:
            if not self._successor_until:
                self._successor_until = time.monotonic() + 2 * self.settings.lease
        elif named == self.settings.name:
            return True
        if time.monotonic() < self._successor_until:
            return False
        self._successor_until = 0.0
        return True

    # -- Helpers ------------------------------------------------------------------------------

    def _flush(self) -> None:
        with self.lock:
            if self._appender.is_idle:
                self.machine.flush()

    def _fresh(self) -> None:
        self._keeper.set_fresh(self.settings.max_staleness)

    def _stream(self, role: Role) -> ChangeStream:
        settings = self.settings
        return open_stream(
            settings.stream_url, settings.table, keep=settings.keep or KEPT, role=role,
            timeout=settings.lease,
        )  # fmt: skip

    def _link_stream(self, dc: str) -> ChangeStream:
        settings = self.settings
        return open_stream(
            settings.link_url(dc), settings.table, role="read", timeout=settings.lease
        )

    def _link_nodes(self, dc: str) -> list[Address]:
        try:
            found = announcements(self._link_clients[dc], self.settings.table)
        except (InterlockError, OSError) as error:
            logger.warning("nodes of data centre %s: %s", dc, error)
            return []
        found = [one for one in found if one.role != "joining" and one.dc == dc]
        found.sort(key=lambda one: (one.role != "primary", -one.seq))
        return [self.settings.peers.address(one.address) for one in found]

    def _scan_mark(self) -> ScanMark:
        mark = self.machine.fence.mark
        return ScanMark(
            node=self.settings.name, token=mark.token, number=mark.number, seq=mark.seq,
            lineage=mark.lineage,
            position=mark.position, clock=self._clock.next()[0],
            links=list(self.machine.links.values()),
        )  # fmt: skip


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
