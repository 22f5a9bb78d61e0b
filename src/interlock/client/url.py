"""A URL of an engine, read into its parts."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal, NoReturn
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

TIMEOUT = 5.0
CLUSTER_TIMEOUT = 10.0
"""For a cluster of Interlock: another primary is found through it."""
SHOWN = 200
"""Number of characters that an error shows of an invalid URL."""


@dataclass(frozen=True, slots=True)
class Members:
    """The nodes of a cluster of Interlock, which announce themselves in an engine."""

    cluster: str = ""
    """Name of the cluster; empty: the name of the table."""
    dc: str = ""
    """The data centre whose nodes are preferred; empty: no preference."""
    user: str = ""
    password: str | None = None
    tls: bool = False
    ca: str = ""
    timeout: float = 0.0
    linearizable: bool = False
    """A read shows everything that any node answered before it began."""

    @property
    def target(self) -> Target:
        """The address of a node, the user, and everything else for a connection to it."""
        return Target(
            "server",
            "",
            user=self.user,
            password=self.password,
            tls=self.tls,
            ca=self.ca,
            timeout=self.timeout,
        )


@dataclass(frozen=True, slots=True)
class Target:
    """The location of an engine, and how to connect to it."""

    kind: Literal["memory", "server", "cluster"]
    shown: str
    """The URL without its password: for logs and errors."""
    addresses: tuple[str, ...] = ()
    """``HOST:PORT`` or ``unix:PATH``; for a cluster some of its nodes."""
    name: str = ""
    """Name of an engine in memory; empty: private to its client."""
    user: str = ""
    password: str | None = None
    db: int = 0
    tls: bool = False
    ca: str = ""
    """File of the authority that must have signed the server's certificate; empty: the authorities
    that this machine trusts."""
    timeout: float = TIMEOUT
    """Seconds for a call, in addition to its wait."""
    members: Members | None = None
    """For a cluster of Interlock, where its nodes are found."""


def parse(url: str) -> Target:
    """Parse a URL into its parts; ValueError, without the password, if it is invalid."""
    if not isinstance(url, str):
        raise TypeError(f"connect(): url is {type(url).__name__}; allowed: str or None")
    try:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True))
    except ValueError:
        parts, query = None, {}
    try:
        if parts is None or parts.fragment:
            _wrong(url)
        if parts.scheme == "memory":
            return _memory(url, parts, query)
        if parts.scheme in ("unix", "redis+unix", "interlock+unix"):
            return _unix(url, parts, query)
        if parts.scheme in _PORTS:
            return _tcp(url, parts, query)
        if parts.scheme == "interlock+cluster":
            return _members(url, parts, query)
    except ValueError as error:
        if error.args and str(error.args[0]).startswith("connect()"):
            raise
    _wrong(url)


def without_password(url: str) -> str:
    """Return a URL that is safe to show."""
    shown = re.sub(r"(//[^/@]*?):[^/]*@", r"\1:***@", url)
    return re.sub(r"([?&]password=)[^&#]*", r"\1***", shown)


def _memory(url: str, parts: SplitResult, query: dict[str, str]) -> Target:
    name = unquote(parts.netloc + parts.path)
    if "@" in name or "/" in name.strip("/"):
        _wrong(url)
    name = name.strip("/")
    return Target("memory", url, ("memory",), name=name, timeout=_timeout(url, query))


def _unix(url: str, parts: SplitResult, query: dict[str, str]) -> Target:
    path = unquote(parts.path)
    if not path or parts.hostname:
        _wrong(url)
    user, password = _credentials(parts)
    db = _database(url, query.pop("db", "0"))
    return Target(
        "server",
        without_password(url),
        (f"unix:{path}",),
        user=user,
        password=password,
        db=db,
        timeout=_timeout(url, query),
    )


def _tcp(url: str, parts: SplitResult, query: dict[str, str]) -> Target:
    scheme = parts.scheme
    cluster, tls = scheme.endswith("+cluster"), scheme.startswith("rediss")
    _user, _, hosts = parts.netloc.rpartition("@")
    if not hosts:
        _wrong(url, "it names no host")
    addresses = tuple(_address(url, host, _PORTS[scheme]) for host in hosts.split(","))
    if len(addresses) > 1 and not cluster:
        _wrong(url)
    db = _database(url, query.pop("db", parts.path.strip("/") or "0"))
    if cluster and db:
        _wrong(url, "a cluster has one database")
    user, password = _credentials(parts)
    return Target(
        "cluster" if cluster else "server",
        without_password(url),
        addresses,
        user=user,
        password=password,
        db=db,
        tls=tls,
        ca=query.pop("ca", "") if tls else "",
        timeout=_timeout(url, query),
    )


def _members(url: str, parts: SplitResult, query: dict[str, str]) -> Target:
    """Parse the URL of a cluster of Interlock: its engine, and the cluster to look for there."""
    path = [unquote(part) for part in parts.path.strip("/").split("/") if part]
    db = path.pop(0) if path and path[0].isdecimal() else ""
    cluster = path.pop(0) if path else ""
    if path:
        _wrong(url, f"its path is {_short(parts.path)!r}; allowed: /CLUSTER or /DB/CLUSTER")
    dc = query.pop("dc", "")
    for what, name in (("cluster", cluster), ("dc", dc)):
        if name and (not name.isprintable() or any(char in " {}:/" for char in name)):
            _wrong(url, f"its {what} is {_short(name)!r}, no name")
    tls = query.pop("tls", "")
    if tls not in ("", "engine", "nodes", "all"):
        _wrong(url, f"its tls is {_short(tls)!r}; allowed: engine, nodes, all")
    linearizable = query.pop("linearizable", "0")
    if linearizable not in ("0", "1"):
        _wrong(url, f"its linearizable is {_short(linearizable)!r}; allowed: 0, 1")
    user, password = query.pop("user", ""), query.pop("password", None)
    ca = query.pop("ca", "") if tls else ""
    scheme = "rediss" if tls in ("engine", "all") else "redis"
    if "," in parts.netloc.rpartition("@")[2]:
        scheme += "+cluster"
    timeout = query.pop("timeout", str(CLUSTER_TIMEOUT))
    engine = parts._replace(scheme=scheme, path=db)
    known = {"ca": ca} if scheme.startswith("rediss") and ca else {}
    target = _tcp(url, engine, {**query, **known, "timeout": timeout})
    members = Members(
        cluster=cluster,
        dc=dc,
        user=user,
        password=password,
        tls=tls in ("nodes", "all"),
        ca=ca,
        timeout=target.timeout,
        linearizable=linearizable == "1",
    )
    return replace(target, members=members)


def _address(url: str, text: str, port: int) -> str:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        _wrong(url, "it names no host")
    try:
        port = port if parts.port is None else parts.port
    except ValueError:
        port = 0
    if not port:
        _wrong(url, f"its port is {_short(text.rpartition(':')[2])!r}; allowed: 1 to 65535")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}:{port}"


def _credentials(parts: SplitResult) -> tuple[str, str | None]:
    return unquote(parts.username or ""), None if parts.password is None else unquote(
        parts.password
    )


def _database(url: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 6:
        _wrong(url, f"its database is {_short(text)!r}, no number")
    return int(text)


def _timeout(url: str, query: dict[str, str]) -> float:
    """Return the timeout, the last of the options to be taken: any other option is unknown."""
    text = query.pop("timeout", str(TIMEOUT))
    if query:
        _wrong(url, f"it has the unknown option {_short(min(query))!r}")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        _wrong(url, f"its timeout is {_short(text)!r}; allowed: seconds, 0 to 1,000,000")
    return seconds


def _wrong(url: str, why: str = "") -> NoReturn:
    shown = _short(without_password(url))
    raise ValueError(f"connect(): url is {shown!r}{': ' + why if why else ''}; allowed: {ALLOWED}")


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


_PORTS = {
    "interlock": 6399,
    "redis": 6379,
    "rediss": 6379,
    "redis+cluster": 6379,
    "rediss+cluster": 6379,
}
ALLOWED = (
    "memory://NAME, interlock://HOST:PORT, interlock+unix:///PATH, redis://HOST:PORT/DB, "
    "rediss://HOST:PORT, unix:///PATH, redis+cluster://HOST:PORT,HOST:PORT, "
    "interlock+cluster://ENGINE:PORT/DB/CLUSTER?dc=NAME, each with "
    "USER:PASSWORD@ before its host or path, and ?timeout=SECONDS behind, if wanted"
)
