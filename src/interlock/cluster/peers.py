"""Login and TLS for the hubs of other nodes."""

from __future__ import annotations

import sys
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
        kind = (
            "over TLS, which --peer-ca asks for: give the hub a certificate ([tls] in --config)"
            if wanted
            else "in the clear; with --peer-ca nodes use TLS"
        )
        raise ValueError(
            f"the hub listens on {', '.join(addresses)}: other nodes need a port {kind}"
        )


def broken(error: OSError, address: Address) -> str:
    """Return why a node cannot be reached, and what to do about it."""
    text = (error.strerror or str(error)) if not _is_of_tls(error) else str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text:
        # As OpenSSL says it, behind the names of its error.
        why = text.partition("certificate verify failed: ")[2].partition(" (_ssl")[0]
        return f"its certificate is refused: {why or text}; {OF_CERTIFICATES}"
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text:
        return "it does not speak TLS at this port: give its hub a certificate ([tls] in --config)"
    if isinstance(error, ConnectionResetError) and not address.tls:
        return f"{text}; {OF_TLS}"
    return text or type(error).__name__


def _is_of_tls(error: OSError) -> bool:
    # Without ssl loaded, no such error has occurred.
    ssl = sys.modules.get("ssl")
    return ssl is not None and isinstance(error, ssl.SSLError)


OF_CERTIFICATES = (
    "the file of its authority is that of --peer-ca (ca=FILE in a URL), and its name that of "
    "--advertise"
)
OF_TLS = "if it wants TLS, name its authority (--peer-ca FILE, or ?tls=nodes&ca=FILE in a URL)"
