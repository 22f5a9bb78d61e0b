"""The ports of a machine: everything that it has done by others, and the leader as it knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from interlock.cluster.entry import Change, Origin
from interlock.cluster.fence import Mark
from interlock.cluster.requests import Asker


class Ports(Protocol):
    """Effects of a node; none of them waits."""

    def append(self, entry: bytes) -> None:
        """Append to the data centre's stream, behind all that was given before."""

    def drop_appends(self) -> None:
        """Forget what is not appended yet."""

    def answer(self, replies: list[tuple[Asker, bytes]]) -> None:
        """Answer clients."""

    def wake_forwarder(self) -> None:
        """Have writes passed on, or what is applied told, to the primary."""

    def resync_from(self, why: str) -> None:
        """Get a snapshot, and hand it to `copied` and `installed`."""

    def resign(self, successor: str) -> None:
        """Give the lease back."""

    def save(self, rows: list[Change], mark: Mark, links: dict[str, Origin]) -> None:
        """Write rows behind, into the database."""

    def leads(self, token: int) -> None:
        """Write rows behind: this is the primary now."""

    def rests(self) -> None:
        """Write no rows behind: another will be the primary."""

    def joined(self) -> None:
        """Show what there is, and nothing else: all that counted is applied."""

    def mismatch(self, theirs: str) -> None:
        """End: the primary's rows have other columns, or it is of another data centre."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The primary as the stream knows it."""

    token: int = 0
    node: str = ""
    address: str = ""
    since: int = 0
    """ms since 1970, by its clock."""
