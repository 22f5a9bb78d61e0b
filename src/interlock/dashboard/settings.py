"""Settings of a dashboard: its engine, its address, its users' rights."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Login = Literal["none", "token", "user"]

LOOPBACK = ("localhost", "127.0.0.1", "::1")
STATIC = Path(__file__).with_name("static")
PORT = 8787


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings at the dashboard's start."""

    url: str
    """URL of the engine."""

    host: str = "127.0.0.1"
    port: int = PORT
    """0: any free port."""

    write: bool = False
    """True if its users may also operate."""

    login: Login = "none"
    """``token``: by one secret; ``user``: by a user of the engine, with that user's rights."""

    token: str = ""
    """The secret of ``token``."""

    allowed_hosts: tuple[str, ...] = ()
    """Accepted host names, in addition to those of loopback and ``host``."""

    base_path: str = ""
    """Path under which a proxy shows it: ``/ops/queues``; empty: the root."""

    static: Path = STATIC

    def check(self) -> None:
        """Raise ValueError for settings that would admit unauthorised users."""
        if self.login == "none" and not is_loopback(self.host):
            raise ValueError(
                f"host is {self.host!r}, which others can reach; allowed without a login: "
                f"{', '.join(LOOPBACK)}; with --token-file or --login engine: any"
            )
        if self.login == "token" and len(self.token) < SHORTEST_TOKEN:
            raise ValueError(
                f"the token has {len(self.token)} characters; allowed: {SHORTEST_TOKEN} or more"
            )
        path = self.base_path
        plain = all(part and part not in (".", "..") for part in path.split("/")[1:])
        if path and not (path.startswith("/") and plain and PATH.issuperset(path)):
            raise ValueError(
                f"base path is {path!r}; allowed: '/NAME' or '/NAME/NAME', of letters, digits, "
                f"'.', '_' and '-'"
            )
        for name in self.allowed_hosts:
            if not name or "/" in name or "@" in name or " " in name:
                raise ValueError(f"allowed host is {name!r}; allowed: a name, or NAME:PORT")


def is_loopback(host: str) -> bool:
    """Return whether an address is only reachable from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


SHORTEST_TOKEN = 16
PATH = frozenset("/._-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
