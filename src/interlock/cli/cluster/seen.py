"""Find the nodes for `interlock cluster status`: by their engine, or without it.

While the engine does not name the nodes, the command asks those of ``--node`` and those that it has
seen before; each names the others that it knows. What it has seen is in a file for each cluster, in
``interlock/nodes`` under ``$XDG_CACHE_HOME`` (``~/.cache``). The file has no passwords, and may be
deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.cli.cluster.subcommand import Cluster, Refusal

if TYPE_CHECKING:
    from interlock.client.rows.announcements import Announcement


def find(cluster: Cluster, named: Sequence[str]) -> tuple[list[Announcement], str]:
    """Return the nodes by data centre and id, and why the engine does not name them, or "".

    Args:
        cluster: the cluster.
        named: ``HOST:PORT`` of nodes to ask if the engine does not answer.

    Raises:
        Refusal: the engine does not name the nodes, and no node is known.
    """
    from interlock.errors import InterlockError

    seen = _recall(cluster.url)
    within = ENGINE_WAIT if seen or named else None
    try:
        found = cluster.nodes(within)
    except InterlockError as error:
        trouble = str(error)
        found = _ask(cluster, named, seen)
        if not found:
            raise Refusal(f"{trouble}; to see what a node says: --node HOST:PORT") from None
        return found, trouble
    if found:
        _remember(cluster.url, found)
        return found, ""
    found = [one for one in _ask(cluster, named, seen) if one.role == "serving"]
    return found, f"{cluster.url} names no node" if found else ""


def _ask(
    cluster: Cluster, named: Sequence[str], seen: Sequence[Announcement]
) -> list[Announcement]:
    """Return the nodes that are known, as they or others describe them now."""
    found = {one.address: one for one in seen}
    waiting, asked = {*found, *named}, set[str]()
    while waiting:
        places = sorted(waiting)
        asked |= waiting
        waiting = set()
        told = cluster.statuses(places)
        for place, status in zip(places, told, strict=True):
            if not isinstance(status, dict):
                found.setdefault(place, _unknown(place))
                continue
            # A node's own report comes last: it is newer than reports of others about it.
            others = status.get("nodes") or ()
            for node in filter(None, map(_described, (*others, status))):
                if node.address not in asked or node.address == place:
                    found[node.address] = node
                waiting |= {node.address} - asked
    return sorted(found.values(), key=lambda one: (one.dc, one.id))


def _described(told: Any) -> Announcement | None:
    from interlock.client.rows.announcements import Announcement

    try:
        role = told.get("role") or ("serving" if told.get("state") == "serving" else "joining")
        return msgspec.convert({**told, "role": role}, Announcement)
    except (AttributeError, TypeError, ValueError):
        return None


def _unknown(place: str) -> Announcement:
    """Return the node at an address that does not say who it is."""
    from interlock.client.rows.announcements import Announcement

    return Announcement(id=UNKNOWN, dc=UNKNOWN, role="joining", address=place)


def _remember(url: str, nodes: Sequence[Announcement]) -> None:
    place = _place(url)
    # Without a place to write it does without.
    with contextlib.suppress(OSError, RuntimeError):
        place.parent.mkdir(parents=True, exist_ok=True)
        # Others read the old file or the new one.
        with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
            file.write(msgspec.json.encode(nodes))
        os.replace(file.name, place)


def _recall(url: str) -> list[Announcement]:
    from interlock.client.rows.announcements import Announcement

    try:
        return msgspec.json.decode(_place(url).read_bytes(), type=list[Announcement])
    except (OSError, RuntimeError, ValueError):
        return []


def _place(url: str) -> Path:
    given = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
    return cache / "interlock" / "nodes" / f"{hashlib.sha256(url.encode()).hexdigest()[:16]}.json"


UNKNOWN = "-"
"""Id and data centre of a node that does not say them."""
ENGINE_WAIT = 3.0
"""Seconds that the engine has for an answer, if nodes can be asked instead."""
