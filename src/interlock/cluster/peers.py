"""Login and TLS for the hubs of other nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from interlock.hub.url import Address, parse


@dataclass(frozen=True)
class Peers:
    """Settings of the connections to other nodes."""

    user: str = ""
    """A user with the right to ``NODE``; empty for the default user."""
    password: str | None = None
    ca: str = ""
    """File of the authority that signed their certificates; empty: no TLS, unless `tls` is set."""
    tls: bool = False

    def address(self, announced: str) -> Address:
        """Return the address of a node from its announced ``HOST:PORT``."""
        return replace(
            parse(announced),
            user=self.user,
            password=self.password,
            tls=self.tls or bool(self.ca),
            ca=self.ca,
        )

    def own(self, addresses: list[str]) -> str:
        """Return the one of a hub's addresses that its node announces.

        Raises:
            ValueError: other nodes could use none of them.
        """
        wanted = "tls:" if self.tls or self.ca else ""
        for one in addresses:
            plain = one.removeprefix("tls:")
            if not one.startswith("unix:") and one.startswith(wanted) and (wanted or plain == one):
                return plain
        kind = "over TLS" if wanted else "in the clear; with --peer-ca nodes use TLS"
        raise ValueError(
            f"the hub listens on {', '.join(addresses)}: other nodes need a port {kind}"
        )
