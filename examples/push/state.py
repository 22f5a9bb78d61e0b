"""The state of users and gateways: two tables in memory that all gateways share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from interlock import U32, Row, SharedTable, Size

DAY = 24 * 3600
SESSION = 30 * DAY
"""Seconds after the last login in which a user counts as logged in."""
LIFETIME = 3
"""Seconds after its last heartbeat in which a gateway counts as alive."""


class Presence(Row):
    """A user with a device: set at login, dropped at logout."""

    app_id: U32
    token: Annotated[str, Size(128)]
    gateway: Annotated[str, Size(32)]  # that it is connected to, or was when that one died
    background: bool = False
    unread: U32 = 0


class Gateway(Row):
    """A gateway, as long as it says that it lives."""

    url: Annotated[str, Size(64)]
    pid: U32
    users: U32


@dataclass(frozen=True)
class State:
    """The two tables."""

    users: SharedTable[Presence]
    gateways: SharedTable[Gateway]

    @classmethod
    def open(cls, name: str) -> State:
        """Attach to the tables of a service, or make them."""
        return cls(
            SharedTable.open(f"{name}-users", Presence, capacity=100_000, key_size=64, ttl=SESSION),
            # A gateway that was killed says nothing: its row goes by itself.
            SharedTable.open(f"{name}-gateways", Gateway, capacity=100, ttl=LIFETIME),
        )

    @staticmethod
    def remove(name: str) -> None:
        """Give the memory back."""
        SharedTable.remove(f"{name}-users")
        SharedTable.remove(f"{name}-gateways")

    def is_connected(self, user: Presence) -> bool:
        """Return whether the user is at a gateway, and that one lives."""
        return bool(user.gateway) and user.gateway in self.gateways

    def online(self) -> dict[str, Presence]:
        """Return all who are connected, also those in the background."""
        alive = {name for name, _ in self.gateways.scan()}
        return {str(key): user for key, user in self.users.scan() if user.gateway in alive}
