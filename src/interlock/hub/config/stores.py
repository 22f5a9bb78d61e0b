"""Stores of a hub, declared as `[[store]]` tables, which keep messages or forward them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from interlock import _core
from interlock.hub import url
from interlock.hub.config import store_values as check
from interlock.hub.config.checks import file, one_of, truth
from interlock.hub.config.invalid_value import InvalidValue
from interlock.hub.config.table_lists import WORDS, Key, ListOf, words


@dataclass(frozen=True)
class Store:
    """A store and the topics that it keeps."""

    name: str
    kind: str
    topics: tuple[str, ...] | None
    """Globs of its topics. Until all stores are known, None means all topics, or none if another
    store has this one."""

    exclude: tuple[str, ...]
    """Globs of the exceptions among them."""

    stores: tuple[str, ...]
    """Names of the stores that it puts messages into."""

    queue: int
    """Maximum bytes that wait to be written."""

    full: str
    ack: str
    upstream: str
    ca: str
    cert: str
    key: str
    password_file: str
    protocol: str
    timeout: float
    spool: str
    """Folder of its spool; empty: a default folder."""

    spool_bytes: int
    """Maximum bytes that wait in it."""

    path: str
    rotate: str
    """Empty: only as the path requires."""

    sync: str
    compress: int
    """The level of zstd; 0: closed files stay as they are."""

    keep: str
    """Time that a closed file is kept; empty: for ever."""

    keep_bytes: int
    """Maximum bytes of all its files; 0: unlimited."""

    local: bool

    def table(self) -> dict[str, object]:
        """Return it as a `[[store]]` table with the same meaning."""
        return {name: value for name, value in asdict(self).items() if name in KEYS[self.kind]}

    def describe(self) -> str:
        """Return a line for people."""
        where = f" in {self.path}" if self.path else ""
        if self.upstream:
            where = f" to {url.parse(self.upstream)} by {self.protocol}"
        if self.stores:
            where = f" of {', '.join(self.stores)}"
        topics = f": {' '.join(self.topics)}" if self.topics else ""
        without = f" without {' '.join(self.exclude)}" if self.exclude else ""
        return f"store {self.name}: {self.kind}{where}{topics}{without}"


def _made(values: Mapping[str, Any], given: frozenset[str]) -> Store:
    kind = values["kind"]
    for name in values:
        if name in given and name not in KEYS[kind]:
            raise InvalidValue(f".{name}", _shown(name, values), f"no {name}: {WHY_NOT[kind]}")
    if kind == "file":
        if not values["path"]:
            raise InvalidValue(".path", "missing", PATH)
        refused = _core.HubServer.refused_path(values["path"], values["name"])
        if refused is not None:
            raise InvalidValue(".path", values["path"], f"{PATH} ({refused})")
    if kind == "network":
        _check_network(values)
    if kind in ("multiple", "priority", "buffer"):
        _check_children(values)
    if kind != "file" and values["full"] == "spool":
        raise InvalidValue(".full", "spool", f"wait, drop: {SPOOLED.get(kind, 'it is for files')}")
    if kind == "null" and values["ack"] == "disk":
        raise InvalidValue(".ack", "disk", "none, memory: a null store writes nothing")
    if values["ack"] == "disk" and "sync" in given and values["sync"] != "always":
        raise InvalidValue(".sync", values["sync"], 'always, where ack is "disk"')
    if values["ack"] != "none" and values["full"] == "drop":
        raise InvalidValue(
            ".full", "drop", "wait, where ack is not none: what is dropped cannot be acknowledged"
        )
    if values["ack"] == "disk":
        values = {**values, "sync": "always"}
    return Store(**values)


def _check_network(values: Mapping[str, Any]) -> None:
    if not values["upstream"]:
        raise InvalidValue(".upstream", "missing", url.ALLOWED)
    place = url.parse(values["upstream"])
    for name in ("ca", "cert", "key"):
        if values[name] and not place.tls:
            raise InvalidValue(f".{name}", values[name], '"" without rediss://')
    if bool(values["cert"]) != bool(values["key"]):
        raise InvalidValue(".key", values["key"], "the path of a file, together with cert")
    if values["password_file"] and place.password is not None:
        allowed = '"" where the address has a password'
        raise InvalidValue(".password_file", values["password_file"], allowed)


def _check_children(values: Mapping[str, Any]) -> None:
    stores, kind = values["stores"], values["kind"]
    if not stores:
        raise InvalidValue(".stores", list(stores), "a list of names of other stores")
    if len(set(stores)) < len(stores):
        raise InvalidValue(".stores", list(stores), "each store once")
    if kind == "buffer" and len(stores) > 1:
        raise InvalidValue(".stores", list(stores), "the name of one other store")


def _shown(name: str, values: Mapping[str, Any]) -> object:
    value = values[name]
    if name == "upstream":
        return url.without_password(value)
    return list(value) if isinstance(value, tuple) else value


OF_ALL = ("name", "kind", "topics", "exclude")
OF_LANE = ("queue", "full", "ack")
OF_SPOOL = ("spool", "spool_bytes")
OF_FILE = ("path", "rotate", "sync", "compress", "keep", "keep_bytes", "local")
OF_NETWORK = ("upstream", "ca", "cert", "key", "password_file", "protocol", "timeout")
KEYS = {
    "file": (*OF_ALL, *OF_LANE, *OF_SPOOL, *OF_FILE),
    "null": (*OF_ALL, *OF_LANE),
    "network": (*OF_ALL, *OF_LANE, *OF_SPOOL, *OF_NETWORK, "sync"),
    "multiple": (*OF_ALL, "stores"),
    "priority": (*OF_ALL, *OF_LANE, *OF_SPOOL, "stores", "sync"),
    "buffer": (*OF_ALL, *OF_LANE, *OF_SPOOL, "stores", "sync"),
}
WHY_NOT = {
    "file": "a file store has none",
    "null": "a null store has none",
    "network": "a network store has none",
    "multiple": "a multiple store has none, each of its stores has its own",
    "priority": "a priority store has none, its stores do",
    "buffer": "a buffer store has none",
}
SPOOLED = {
    "network": "a network store always has a spool; this applies when the spool is full",
    "buffer": "a buffer store is a spool; this applies when the spool is full",
}
PATH = "the path of a file such as out/[topic]/[date].log"
BYTES = 'a number of bytes, or a text such as "64MB"'
FILE = "the path of a file"

STORES = ListOf(
    "store",
    (
        Key(
            "name",
            check.name,
            f"a text of up to {check.LONGEST_NAME} letters, digits, `.`, `_` and `-`, no dot first",
            "name, used by its files and by other stores",
            required=True,
        ),
        Key("kind", one_of(*KEYS), ", ".join(KEYS), "destination of messages", "file"),
        Key(
            "topics",
            check.globs,
            WORDS,
            "globs of its topics; default: all, or none if it is part of another store",
        ),
        Key("exclude", check.globs, WORDS, "globs of topics to leave out", ()),
        Key(
            "stores",
            words,
            WORDS,
            "names of other stores: multiple writes each message to all of them, priority to the "
            "first that works, buffer spools messages that its one store cannot accept yet",
            (),
        ),
        Key("queue", check.size, BYTES, "maximum bytes waiting to be written", 64 * 2**20),
        Key(
            "full",
            one_of("wait", "drop", "spool"),
            "wait, drop, spool",
            "when the queue is full, let the publisher wait, or drop and count the message; "
            "spool: a file store spools messages that it cannot write yet",
            "wait",
        ),
        Key(
            "ack",
            one_of("none", "memory", "disk", "upstream"),
            "none, memory, disk, upstream",
            "when a PUBLISH is answered: immediately, once it is in the queue, once it is on disk, "
            "or once the upstream has acknowledged it",
            "none",
        ),
        Key(
            "upstream",
            check.upstream,
            url.ALLOWED,
            "server to send messages to",
            "",
        ),
        Key("ca", file, FILE, 'PEM file with the authority of the server\'s certificate; "" for '
            "the authorities that this machine trusts", ""),
        Key("cert", file, FILE, "PEM file with a certificate to show to the server", ""),
        Key("key", file, FILE, "PEM file with the key of that certificate", ""),
        Key("password_file", file, FILE, "file with the password for the server, on one line", ""),
        Key(
            "protocol",
            one_of("relay", "publish", "xadd"),
            "relay, publish, xadd",
            "protocol: relay to another hub, each message once; publish or xadd to a Redis or "
            "Valkey, at least once",
            "relay",
        ),
        Key(
            "timeout",
            check.timeout,
            "a number of seconds above 0, up to 3600",
            "maximum seconds to connect, and to wait for any acknowledgement",
            10.0,
        ),
        Key(
            "spool",
            file,
            "the path of a folder",
            'folder of undelivered messages; "" for one in the journal\'s folder, or without a '
            "journal in the state folder of the service or user",
            "",
        ),
        Key("spool_bytes", check.at_least(2**20), f"{BYTES}, at least 1MB",
            "maximum bytes in the spool; when it is full, the queue fills", 2**30),
        Key("path", file, PATH, "files to write; [topic], [date], [hour] and so on vary", ""),
        Key(
            "rotate",
            check.rotate,
            '"64MB", "10min", "hour", "day"',
            "when to close a file and begin the next, in addition to changes of the path",
            "",
        ),
        Key(
            "sync",
            one_of("always", "everysec", "no"),
            "always, everysec, no",
            "when data written to files or the spool is synced to disk",
            "everysec",
        ),
        Key(
            "compress",
            check.compress,
            "true, false, or a level of zstd from 0 (none) to 19",
            "compress closed files",
            0,
        ),
        Key("keep", check.keep, '"30d", "12h", ""', 'how long to keep a closed file; "" forever',
            ""),
        Key("keep_bytes", check.size, BYTES, "maximum bytes of all its files; 0: unlimited", 0),
        Key("local", truth, "true, false", "use local time for dates and hours, not UTC", False),
    ),
    _made,
    Store,
)  # fmt: skip
