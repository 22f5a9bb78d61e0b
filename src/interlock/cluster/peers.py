"""The way to other nodes: with which login, and whether over TLS."""

from __future__ import annotations

from dataclasses import dataclass, replace

from interlock.hub.url import Address, parse


@dataclass(frozen=True)
class Peers:
    """Settings that the nodes of a cluster share, to reach each other's hubs."""

    user: str = ""
    """Of those hubs, with the right of administration; empty: the default user, or nobody."""
    password: str | None = None
    ca: str = ""
    """The file of the authority that signed their certificates; empty: they are reached in the
    clear, unless `tls` says otherwise."""
    tls: bool = False

    def address(self, announced: str) -> Address:
        """Return the place of a node, from the ``HOST:PORT`` that it announced."""
        return replace(
            parse(announced),
            user=self.user,
            password=self.password,
            tls=self.tls or bool(self.ca),
            ca=self.ca,
        )

    def own(self, addresses: list[str]) -> str:
        """Return the address that a hub which listens on these is announced by.

        Raises:
            ValueError: it listens on none that others could use.
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
