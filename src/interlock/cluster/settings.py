"""Settings of a node, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from interlock.cluster.entry import EVERY
from interlock.cluster.peers import Peers
from interlock.engine.announcements import check_name
from interlock.retry import seconds
from interlock.table.row import Row


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """Settings of one node of a cluster.

    Raises:
        TypeError, ValueError: one is of a wrong type or out of its range; the text says which.
    """

    table: str
    """The table's name."""
    row: type[Row]
    """The class of its rows."""
    cluster: str
    """URL of the engine with the lease, the announcements, and the stream if no other has it."""
    name: str
    dc: str = "main"
    stream: str = ""
    """URL of the engine with the change stream; empty: the cluster's."""
    links: Mapping[str, str] = field(default_factory=dict)
    """URLs of the engines of other data centres, by their names."""
    link_streams: Mapping[str, str] = field(default_factory=dict)
    """URLs of their streams, where those are on engines of their own."""
    ack: int | str = 0
    """So many replicas have a change before its client is answered; ``"all"``: each there is."""
    databases: tuple[str, ...] = ()
    """URLs of databases that rows are written to, behind; several: by the hash of the key."""
    partitions: str | None = None
    from_database: bool = False
    """Take what a database has, though it is of another history than the log's, and old."""
    max_staleness: float | None = None
    """Seconds since the primary was heard of, beyond which reads are refused. None: never."""
    timeout: float = 10.0
    """Of a node on a log: seconds within which a write is done, or not at all."""
    lease: float = 3.0
    """Seconds after which a primary that does not renew its lease is one no more."""
    keep: int = 0
    """Entries that the stream keeps at least; 0: a million, of a log those that nodes need."""
    tombstone_age: float = 7 * 86_400.0
    """Seconds for which a deleted row is remembered."""
    tombstones: int = 1_000_000
    """The most that are remembered."""
    peers: Peers = field(default_factory=Peers)
    """The way to the other nodes' hubs."""
    capacity: int = 1_000_000
    """Rows beyond which new ones are refused."""
    key_size: int = 32
    ttl: float | None = None

    def __post_init__(self) -> None:
        check_name("node(): table", self.table)
        check_name("node(): name", self.name)
        check_name("node(): dc", self.dc)
        for dc in self.links:
            check_name("node(): link", dc)
            if dc == self.dc:
                raise ValueError(f"node(): link is to {dc!r}, the node's own data centre")
        for dc in self.link_streams:
            if dc not in self.links:
                raise ValueError(f"node(): link_streams has {dc!r}, which links has not")
        if self.ack != "all" and (not isinstance(self.ack, int) or isinstance(self.ack, bool)
                                  or not 0 <= self.ack < 1000):  # fmt: skip
            raise ValueError(
                f"node(): ack is {self.ack!r}; allowed: a whole number from 0 to 999, 'all'"
            )
        if seconds(self.lease, "node(): lease") < 0.2:
            raise ValueError(f"node(): lease is {self.lease}; allowed: 0.2 s or more")
        if not 0.1 <= seconds(self.timeout, "node(): timeout") <= LONGEST_WRITE:
            raise ValueError(
                f"node(): timeout is {self.timeout}; allowed: 0.1 to {LONGEST_WRITE:g} s"
            )
        if self.max_staleness is not None:
            found = seconds(self.max_staleness, "node(): max_staleness")
            if found < 2 * BEAT:
                raise ValueError(
                    f"node(): max_staleness is {found}; allowed: {2 * BEAT} s or more, for a "
                    f"primary that has nothing to say is heard every {BEAT} s"
                )
        for name in ("capacity", "keep", "tombstones"):
            number: Any = getattr(self, name)
            if name == "keep" and number == 0:
                continue
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise ValueError(f"node(): {name} is {number!r}; allowed: a whole number from 1")

    @property
    def acks(self) -> int:
        """`ack` as a number."""
        return EVERY if isinstance(self.ack, str) else self.ack

    @property
    def stream_url(self) -> str:
        """URL of the engine with the change stream."""
        return self.stream or self.cluster

    def link_url(self, dc: str) -> str:
        """URL of the engine with another data centre's stream."""
        return self.link_streams.get(dc) or self.links[dc]


LONGEST_WRITE = 60.0
"""Seconds; the state keeps what it needs to tell a late write from a new one for no longer."""
BEAT = 0.5
"""Seconds between two entries of a primary at most."""
