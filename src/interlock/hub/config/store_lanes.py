"""Top-level stores, each with those below it, as settings of the native server.

A store that another one names is reached through that one alone. A top-level store has topics; a
top-level `multiple` is only a group of its stores, each of which gets its topics.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from interlock.hub import url
from interlock.hub.config.invalid_value import InvalidValue
from interlock.hub.config.store_values import duration, rotation
from interlock.hub.config.stores import STORES, Store

DEEPEST = 16
"""Maximum levels of stores below a top-level one."""


@dataclass
class Lane:
    """A store with a queue and a thread of its own, and the topics that reach it."""

    store: Store
    filters: list[tuple[tuple[str, ...], tuple[str, ...]]] = field(default_factory=list)
    """Globs of topics, and of the exceptions among them."""


def checked(value: object) -> tuple[Store, ...]:
    """Return the stores of a list of tables, checked each and all together. Raises InvalidValue."""
    found = STORES.checked(value)
    named = {store.name: store for store in found}
    parents = Counter(child for store in found for child in store.stores)
    completed = []
    for index, store in enumerate(found):
        for child in store.stores:
            if child not in named:
                others = ", ".join(name for name in named if name != store.name)
                raise InvalidValue(f"[{index}].stores", child, f"names of other stores: {others}")
        if cycle := _cycle(store, named):
            allowed = f"stores that do not contain it ({' -> '.join(cycle)})"
            raise InvalidValue(f"[{index}].stores", list(store.stores), allowed)
        if parents[store.name] and store.topics:
            above = next(other.name for other in found if store.name in other.stores)
            allowed = f"none: it gets the messages of {above}, which lists it in its stores"
            raise InvalidValue(f"[{index}].topics", list(store.topics), allowed)
        if _is_deeper(store, named):
            allowed = f"stores that are at most {DEEPEST} below each other"
            raise InvalidValue(f"[{index}].stores", list(store.stores), allowed)
        topics = store.topics
        if topics is None:
            topics = () if parents[store.name] else ("*",)
        completed.append(replace(store, topics=topics))
    named = {store.name: store for store in completed}
    for index, store in enumerate(completed):
        if not parents[store.name]:
            _check_top(index, store, named)
    _check_lanes(completed, named, parents)
    return tuple(completed)


def _cycle(store: Store, named: Mapping[str, Store]) -> list[str]:
    """Return the names on a cycle from a store to itself; empty without one."""
    above = dict.fromkeys(store.stores, store.name)
    trail = list(store.stores)
    while trail:
        name = trail.pop()
        if name == store.name:
            path = [name, above[name]]
            while path[-1] != store.name:
                path.append(above[path[-1]])
            return path[::-1]
        for child in named[name].stores if name in named else ():
            if child not in above:
                above[child] = name
                trail.append(child)
    return []


def _is_deeper(store: Store, named: Mapping[str, Store]) -> bool:
    """Return whether there are more than `DEEPEST` levels of stores below one."""
    level = {store.name}
    for _ in range(DEEPEST + 1):
        level = {child for name in level if name in named for child in named[name].stores}
    return bool(level)


def _check_top(index: int, top: Store, named: Mapping[str, Store]) -> None:
    counts = Counter(store.name for store in _below(top, named))
    for name, count in counts.items():
        if count > 1:
            allowed = f"stores that reach {name} once: below {top.name} it is reached {count} times"
            raise InvalidValue(f"[{index}].stores", list(top.stores), allowed)


def _below(store: Store, named: Mapping[str, Store]) -> Iterator[Store]:
    for name in store.stores:
        yield named[name]
        yield from _below(named[name], named)


def _check_lanes(
    stores: Sequence[Store], named: Mapping[str, Store], parents: Mapping[str, int]
) -> None:
    places = {store.name: index for index, store in enumerate(stores)}
    folders: dict[str, str] = {}
    inner: dict[str, str] = {}
    found = lanes(stores)
    for lane in found:
        for store in _below(lane.store, named):
            place = f"[{places[store.name]}]"
            if parents[store.name] > 1:
                allowed = (
                    f"a name in the stores of one alone: it is below {lane.store.name}, and others"
                )
                raise InvalidValue(f"{place}.name", store.name, allowed)
            inner[store.name] = lane.store.name
            for key, default in LANE_DEFAULTS.items():
                value = getattr(store, key)
                if value != default and not (key.startswith("spool") and store.kind == "buffer"):
                    allowed = f"{default}: below {lane.store.name} it has no queue of its own"
                    raise InvalidValue(f"{place}.{key}", value, allowed)
    for lane in found:
        _check_lane(f"[{places[lane.store.name]}]", lane.store, named)
    for store in stores:
        if store.spool:
            folder = os.path.abspath(store.spool)
            if folder in folders:
                allowed = f"a folder that no other store uses: {folders[folder]} uses it"
                raise InvalidValue(f"[{places[store.name]}].spool", store.spool, allowed)
            folders[folder] = store.name


def _check_lane(place: str, store: Store, named: Mapping[str, Store]) -> None:
    leaves = [leaf for leaf in (store, *_below(store, named)) if not leaf.stores]
    if store.ack == "upstream":
        if all(leaf.kind != "network" for leaf in leaves):
            allowed = "none, memory, disk: there is no network store below"
            raise InvalidValue(f"{place}.ack", "upstream", allowed)
        for below in _below(store, named):
            if below.kind == "buffer":
                allowed = (
                    f"none, memory, disk: {below.name} accepts messages before they arrive there"
                )
                raise InvalidValue(f"{place}.ack", "upstream", allowed)
    if not has_spool(store, named):
        if store.ack == "disk" and any(leaf.kind == "null" for leaf in leaves):
            raise InvalidValue(f"{place}.ack", "disk", "none, memory: a null store writes nothing")
        if store.spool:
            allowed = '"": it has no spool (full = "spool", or a network store below, make one)'
            raise InvalidValue(f"{place}.spool", store.spool, allowed)


def lanes(stores: Sequence[Store]) -> list[Lane]:
    """Return the stores with queues of their own, in the order of their tables."""
    named = {store.name: store for store in stores}
    children = {child for store in stores for child in store.stores}
    found: dict[str, Lane] = {}

    def reach(store: Store, topics: tuple[str, ...], exclude: tuple[str, ...]) -> None:
        if store.kind != "multiple":
            found.setdefault(store.name, Lane(store)).filters.append((topics, exclude))
            return
        for child in store.stores:
            # Topics that a child excludes still reach its siblings.
            reach(named[child], topics, (*exclude, *named[child].exclude))

    for store in stores:
        if store.name not in children:
            reach(store, store.topics or (), store.exclude)
    return [found[store.name] for store in stores if store.name in found]


def has_spool(store: Store, named: Mapping[str, Store]) -> bool:
    """Return whether a store with a queue of its own has a spool behind it."""
    return store.kind == "buffer" or store.full == "spool" or _has_network(store, named)


def _has_network(store: Store, named: Mapping[str, Store]) -> bool:
    if store.kind == "buffer":
        # It has a spool itself.
        return False
    return store.kind == "network" or any(_has_network(named[n], named) for n in store.stores)


def for_server(stores: Sequence[Store], root: Path | None) -> list[dict[str, Any]]:
    """Return the native server's settings; `root` is the folder of spools without one of their own.

    Raises InvalidValue, its place with the index of the store, if a file cannot be read, or a spool
    has no folder.
    """
    named = {store.name: store for store in stores}
    places = {store.name: index for index, store in enumerate(stores)}

    def node(store: Store, spooled: bool, synced: bool) -> dict[str, Any]:
        given: dict[str, Any] = {"name": store.name, "kind": store.kind}
        if store.kind == "file":
            given |= _file(store, synced)
        elif store.kind == "network":
            given |= _network(store, f"[{places[store.name]}]")
        elif store.stores:
            given["children"] = [
                node(child, child.kind == "buffer", synced)
                for child in (named[name] for name in store.stores)
            ]
        if spooled:
            if not store.spool and root is None:
                place = f"[{places[store.name]}].spool"
                raise InvalidValue(
                    place, "missing", "the path of a folder: there is no home folder"
                )
            folder = store.spool or str((root or Path()) / store.name)
            sync = "always" if synced else store.sync
            given["spool"] = {"folder": folder, "bytes": store.spool_bytes, "sync": sync}
        return given

    return [
        {
            **node(lane.store, has_spool(lane.store, named), lane.store.ack == "disk"),
            "filters": [
                ([topic.encode() for topic in topics], [topic.encode() for topic in exclude])
                for topics, exclude in lane.filters
            ],
            "queue": lane.store.queue,
            "full": lane.store.full,
            "ack": lane.store.ack,
        }
        for lane in lanes(stores)
    ]


def nodes(given: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield each store of the native server's settings, including nested ones."""
    for node in given:
        yield node
        yield from nodes(node.get("children", ()))


def spools(given: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the name and the folder of each spool in the native server's settings."""
    return ((node["name"], node["spool"]["folder"]) for node in nodes(given) if "spool" in node)


def _file(store: Store, synced: bool) -> dict[str, Any]:
    rotate_bytes, rotate_minutes = rotation(store.rotate)
    return {
        "path": store.path,
        "host": socket.gethostname(),
        "local": store.local,
        "rotate_bytes": rotate_bytes,
        "rotate_minutes": rotate_minutes,
        "sync": "always" if synced else store.sync,
        "compress": store.compress or None,
        "keep": duration(store.keep) * 1_000_000 if store.keep else None,
        "keep_bytes": store.keep_bytes or None,
    }


def _network(store: Store, place: str) -> dict[str, Any]:
    address = url.parse(store.upstream)
    ca = store.ca or address.ca

    def read(key: str, path: str) -> bytes | None:
        try:
            return Path(path).read_bytes() if path else None
        except OSError as error:
            allowed = f"a file that can be read ({error.strerror})"
            raise InvalidValue(f"{place}.{key}", path, allowed) from None

    password = address.password
    if store.password_file:
        text = (read("password_file", store.password_file) or b"").decode(errors="surrogateescape")
        # A line break that an editor adds is not part of the line.
        password = text.rstrip("\r\n")
        if not password or "\n" in password or not password.isprintable():
            allowed = "a file with a password on a line"
            raise InvalidValue(f"{place}.password_file", store.password_file, allowed)
    return {
        "address": f"unix:{address.path}"
        if address.path
        else url.shown(address.host, address.port),
        "shown": str(address),
        "tls": address.host if address.tls else None,
        "ca": read("ca", ca),
        "cert": read("cert", store.cert),
        "key": read("key", store.key),
        "user": address.user or None,
        "password": password,
        "protocol": store.protocol,
        "timeout": store.timeout,
    }


def spool_root(journal: str, environment: Mapping[str, str]) -> Path | None:
    """Return the folder of spools: below the journal's, else in the state folder of a service or a
    user; None if there is none."""
    if journal:
        return Path(journal) / "spool"
    service = environment.get("STATE_DIRECTORY", "").partition(":")[0]
    if service:
        return Path(service) / "spool"
    state = environment.get("XDG_STATE_HOME", "")
    home = environment.get("HOME", "")
    if not state and not home:
        return None
    return (Path(state) if state else Path(home) / ".local/state") / "interlock" / "spool"


LANE_DEFAULTS = {
    key.name: key.default
    for key in STORES.keys
    if key.name in ("exclude", "queue", "full", "ack", "spool", "spool_bytes")
}
