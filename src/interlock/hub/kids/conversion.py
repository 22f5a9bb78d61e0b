"""A configuration of kids as one of the hub, with the settings that have no counterpart."""

from __future__ import annotations

import ipaddress
import posixpath
import re
from dataclasses import dataclass, field

from interlock.hub.config.configuration import toml
from interlock.hub.kids.grammar import Block, Setting, last, parsed
from interlock.hub.kids.stores import Stores

HEAD = "# Made of a configuration of kids by interlock hub --convert-kids."


@dataclass
class Converted:
    """A configuration of the hub, with notes for its reader."""

    text: str
    """TOML."""

    notes: list[str]
    """Notes on settings without a counterpart or with another meaning: a line each."""


@dataclass
class _Lines:
    top: list[str] = field(default_factory=list)
    tables: dict[str, list[str]] = field(default_factory=dict)

    def put(self, key: str, value: object) -> None:
        """Write a key; one with dots goes to its table."""
        table, _, name = key.rpartition(".")
        lines = self.tables.setdefault(table, []) if table else self.top
        lines.append(f"{name} = {toml(value)}")


def converted(text: str) -> Converted:
    """Convert a configuration of kids. Raises KidsError if the text is not one."""
    kids = parsed(text)
    notes: list[str] = []
    lines = _Lines()
    _listen(kids, lines, notes)
    _settings(kids, lines, notes)
    log = _merged(kids, "log")
    _log(log, lines, notes)
    stores = Stores(notes)
    if kids.stores:
        stores.add(kids.stores[0])
    whole = [HEAD, *(f"# {note}" for note in notes), *lines.top]
    for table, entries in lines.tables.items():
        whole += ["", f"[{table}]", *entries]
    for store in stores.found:
        whole += ["", "[[store]]", *(f"{key} = {toml(value)}" for key, value in store.items())]
    return Converted("\n".join(whole) + "\n", notes)


def _merged(kids: Block, block: str) -> list[Setting]:
    # The block's settings may also be outside it.
    return [*kids.settings, *(kids.log if block == "log" else kids.listen)]


def _listen(kids: Block, lines: _Lines, notes: list[str]) -> None:
    listen = _merged(kids, "listen")
    host, port, unix = (last(listen, key) for key in ("host", "port", "socket"))
    if not port.isdigit() or not 0 < int(port) < 65536:
        lines.put("host", "")
        if not unix:
            notes.append("kids listened nowhere: give the hub a host and a port")
    elif not host:
        lines.put("host", "0.0.0.0")
        lines.put("unprotected", True)
        notes.append(
            "it listens on all addresses without a password, as kids did: give it a [[user]] "
            "with a password and remove `unprotected`"
        )
    else:
        address = {"localhost": "127.0.0.1"}.get(host, host)
        try:
            loopback = ipaddress.ip_address(address).is_loopback
        except ValueError:
            notes.append(f"listen: {host} is a name; the hub's host is an IP address")
            address, loopback = "127.0.0.1", True
        lines.put("host", address)
        if not loopback:
            lines.put("unprotected", True)
            notes.append(
                "everyone who reaches its address may do everything, as with kids: see [[user]]"
            )
    if port.isdigit() and 0 < int(port) < 65536:
        lines.put("port", int(port))
    if unix:
        lines.put("unix", unix)
        # As kids does.
        lines.put("unix_mode", "666")


def _settings(kids: Block, lines: _Lines, notes: list[str]) -> None:
    threads = kids.get("worker_threads")
    if threads.isdigit():
        lines.put("workers", min(int(threads), 64))
    clients = kids.get("max_clients")
    if clients.isdigit() and int(clients):
        lines.put("max_per_address", min(int(clients), 1_000_000))
    if kids.get("ignore_case") == "on":
        lines.put("ignore_case_topics", True)
        notes.append(
            "ignore_case_topics: kids compared patterns so, and left topics as they were; the hub "
            "puts both into lower case"
        )
    for setting in kids.settings:
        if setting.key == "nlimit":
            _limit(setting, lines, notes)
        elif setting.key not in KNOWN:
            notes.append(f"line {setting.line}: kids ignored the unknown {setting.key}")


def _limit(setting: Setting, lines: _Lines, notes: list[str]) -> None:
    values = setting.values
    if len(values) != 4 or values[0] not in ("normal", "pubsub", "networkstore"):
        notes.append(f"line {setting.line}: nlimit has a kind, two sizes and a time")
        return
    if values[0] == "networkstore":
        notes.append(
            f"line {setting.line}: nlimit networkstore has no counterpart: messages for an "
            "upstream wait in a spool on disk, bounded by `spool_bytes` of its store"
        )
        return
    hard, soft, seconds = size(values[1]), size(values[2]), duration(values[3])
    if hard is None or soft is None or seconds is None:
        notes.append(
            f"line {setting.line}: nlimit {' '.join(values)} has a size or a time without unit"
        )
        return
    head = f"limits.{values[0]}"
    lines.put(f"{head}.soft", min(soft, hard) if hard else soft)
    lines.put(f"{head}.soft_seconds", seconds)
    lines.put(f"{head}.hard", hard)


def _log(log: list[Setting], lines: _Lines, notes: list[str]) -> None:
    level, file = last(log, "level").lower(), last(log, "file")
    if level in LEVELS:
        lines.put("log.level", LEVELS[level])
    elif level:
        notes.append(f"log: there is no level {level}; it is info")
    if file and file not in ("stderr", "stdout"):
        lines.put("log.file", posixpath.normpath(file))


def size(text: str) -> int | None:
    """Return the bytes of a size of kids, `32MB`; None if the text is not one."""
    found = re.fullmatch(r"(\d{1,12})(b|byte|k|kb|m|mb|g|gb)", text, re.IGNORECASE)
    return int(found[1]) * UNITS[found[2][0].lower()] if found else None


def duration(text: str) -> int | None:
    """Return the seconds of a time of kids, `10min`; None if the text is not one."""
    found = re.fullmatch(r"(\d{1,9})(s|sec|m|min|h|hour|d|day)", text, re.IGNORECASE)
    return int(found[1]) * SECONDS[found[2][0].lower()] if found else None


UNITS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30}
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LEVELS = {
    "debug": "info",
    "info": "info",
    "warning": "warning",
    "error": "error",
    "critical": "error",
    "fatal": "error",
}
KNOWN = (
    *("level", "file", "socket", "host", "port"),
    *("max_clients", "worker_threads", "ignore_case", "nlimit"),
)
