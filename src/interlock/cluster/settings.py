"""Settings of a node, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from interlock.client.rows.announcements import check_name
from interlock.cluster.peers import Peers
from interlock.cluster.rules import TOMBSTONE_AGE
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
    """URL of the engine with the announcements, and with the log if `stream` names no other."""
    name: str
    dc: str = "main"
    stream: str = ""
    """URL of the engine with the log; empty: the cluster's."""
    links: Mapping[str, str] = field(default_factory=dict)
    """URLs of the engines of other data centres, by their names."""
    link_streams: Mapping[str, str] = field(default_factory=dict)
    """URLs of their streams, where those are on engines of their own."""
    ack: int = 0
    """Number of other machines that must have a write before its client is answered."""
    machine: str = ""
    """Name of the machine, rack or zone of the node: nodes with the same one count once for `ack`
    and for trimming the log. Empty: the machine it runs on."""
    databases: tuple[str, ...] = ()
    """URLs of databases that rows are written to, behind; several: by the hash of the key."""
    partitions: str | None = None
    from_database: bool = False
    """Merge the rows of a database even if it is old and its history differs from the log's."""
    max_staleness: float | None = None
    """Seconds without reading the log to its end after which reads are refused. None: never."""
    timeout: float = 10.0
    """Seconds within which a write is done, or not at all."""
    keep: int = 0
    """Entries to keep in the log beyond those that nodes need."""
    tombstone_age: float = TOMBSTONE_AGE
    """Seconds to remember a deleted row."""
    tombstones: int = 1_000_000
    """Maximum number of deleted rows to remember."""
    peers: Peers = field(default_factory=Peers)
    """Login and TLS for the other nodes' hubs."""
    capacity: int = 1_000_000
    """Maximum number of rows."""
    key_size: int = 32
    ttl: float | None = None

    def __post_init__(self) -> None:
        check_name("--table", self.table)
        check_name("--name", self.name)
        check_name("--dc", self.dc)
        for dc in self.links:
            check_name("--link", dc)
            if dc == self.dc:
                raise ValueError(f"--link is to {dc!r}, the node's own data centre (--dc)")
        for dc in self.link_streams:
            if dc not in self.links:
                raise ValueError(f"--link-stream is to {dc!r}, and there is no --link {dc}=URL")
        for name, given in (("partitions", self.partitions), ("from-database", self.from_database)):
            if given and not self.databases:
                raise ValueError(f"--{name} is set, and there is no database: set --database URL")
        ack: Any = self.ack
        if not isinstance(ack, int) or isinstance(ack, bool) or not 0 <= ack < 1000:
            raise ValueError(f"--ack is {ack!r}; allowed: a whole number from 0 to 999")
        if len(self.machine.encode()) > MOST_OF_A_MACHINE:
            raise ValueError(
                f"--machine has {len(self.machine.encode())} bytes; allowed: {MOST_OF_A_MACHINE}"
            )
        if not 0.1 <= seconds(self.timeout, "--timeout") <= LONGEST_WRITE:
            raise ValueError(f"--timeout is {self.timeout}; allowed: 0.1 to {LONGEST_WRITE:g} s")
        if self.max_staleness is not None:
            found = seconds(self.max_staleness, "--max-staleness")
            if found < LEAST_STALENESS:
                raise ValueError(
                    f"--max-staleness is {found}; allowed: {LEAST_STALENESS:g} s or more, "
                    f"because a node looks at an idle log once a second"
                )
        for name in ("capacity", "keep", "tombstones"):
            number: Any = getattr(self, name)
            if name == "keep" and number == 0:
                continue
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise ValueError(f"--{name} is {number!r}; allowed: a whole number from 1")

    @property
    def stream_url(self) -> str:
        """URL of the engine with the log."""
        return self.stream or self.cluster

    def link_url(self, dc: str) -> str:
        """URL of the engine with another data centre's log."""
        return self.link_streams.get(dc) or self.links[dc]


MOST_OF_A_MACHINE = 128
LONGEST_WRITE = 60.0
"""Seconds; the state keeps what it needs to tell a late write from a new one for no longer."""
LEAST_STALENESS = 2.0
"""Seconds; an idle log is looked at once a second."""
