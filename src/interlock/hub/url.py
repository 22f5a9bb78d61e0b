"""An address or a URL, split into its parts: a server, and the user there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit


@dataclass(frozen=True)
class Address:
    """A server's address. Either the path or the host is empty."""

    path: str = ""
    """Path of a unix socket; an abstract name begins with `@`."""

    host: str = ""
    port: int = 0
    user: str = ""
    """Empty: the default user if there is a password, else none."""

    password: str | None = None
    tls: bool = False
    ca: str = ""
    """File of the authority that must have signed the server's certificate; empty: those that this
    machine trusts."""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"{'rediss://' if self.tls else ''}{shown(self.host, self.port)}"

    @property
    def credentials(self) -> tuple[str, str] | None:
        """User and password as AUTH takes them; None without a user."""
        if not self.user and self.password is None:
            return None
        return self.user or "default", self.password or ""


def parse(address: str) -> Address:
    """Return the parts of an address. Raises ValueError, without the password, if invalid."""
    try:
        found = _unix(address) if address.startswith("unix:") else _tcp(address)
    except ValueError:  # a port that is not a number
        found = None
    if found is None:
        raise ValueError(f"address is {without_password(address)!r}; allowed: {ALLOWED}")
    return found


def shown(host: str, port: int) -> str:
    """Return an address as one types it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def without_password(address: str) -> str:
    """Return an address without its password."""
    return re.sub(r"^((?:\w+:(?=//))?/*).*@", r"\1***@", address)


def _unix(address: str) -> Address | None:
    rest = address.removeprefix("unix:")
    if not rest.startswith("//"):
        return Address(path=rest) if rest else None
    if "@" not in rest[2:].partition("/")[0]:
        path = unquote(rest[2:])
        return Address(path=path) if path else None
    url = urlsplit(address)
    user, password = _credentials(url)
    return Address(path=unquote(url.path), user=user, password=password) if url.path else None


def _tcp(address: str) -> Address | None:
    url = urlsplit(address if "://" in address else f"redis://{address}")
    query = parse_qs(url.query, strict_parsing=True) if url.query else {}
    tls = url.scheme == "rediss"
    known = {"ca"} if tls else set()
    if (
        url.scheme not in ("redis", "interlock", "rediss")
        or not url.hostname
        or not query.keys() <= known
    ):
        return None
    if url.path not in ("", "/", "/0") or url.fragment:
        return None
    user, password = _credentials(url)
    ca = query.get("ca", [""])[0]
    return Address("", url.hostname, url.port or DEFAULT_PORT, user, password, tls, ca)


def _credentials(url: SplitResult) -> tuple[str, str | None]:
    password = None if url.password is None else unquote(url.password)
    return unquote(url.username or ""), password


DEFAULT_PORT = 6399
ALLOWED = (
    "HOST:PORT, interlock://HOST:PORT, redis://HOST:PORT, rediss://HOST:PORT, unix:PATH, "
    "unix:///PATH, each URL with USER:PASSWORD@ before its host or path if wanted"
)
