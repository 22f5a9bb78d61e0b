"""Conversion of a kids store, with the stores inside it, to stores of the hub."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from interlock.hub.kids.grammar import Block

Store = dict[str, object]


@dataclass(frozen=True)
class _Topics:
    """The topics that reach a store."""

    only: str = "*"
    without: tuple[str, ...] = ()


class Stores:
    """A store of kids as one of ours, and the notes on it."""

    def __init__(self, notes: list[str]) -> None:
        self.found: list[Store] = []
        self._notes = notes

    def add(self, store: Block) -> None:
        """Convert the one store of a configuration, and all in it."""
        self._top(store, _Topics())

    def _top(self, store: Block, topics: _Topics) -> None:
        # No failure above this one: each child of a `multiple` gets its topics by itself.
        topics = self._narrowed(store, topics)
        match store.kind:
            case "null":
                return
            case "multiple":
                for child in store.stores:
                    self._top(child, topics)
            case "priority":
                self._priority(store, topics)
            case _:
                self._filtered(self._node(store), topics)

    def _narrowed(self, store: Block, topics: _Topics) -> _Topics:
        own = [setting for setting in store.settings if setting.key == "topic"]
        if len(own) > 1:
            self._note(store, f"of its {len(own)} topics kids used the last one only")
        topic = store.get("topic") or "*"
        if topic in ("*", topics.only):
            return topics
        if topics.only != "*":
            self._note(store, f"kids kept what matches both {topics.only} and {topic}: see that "
                       f"{topic} is the narrower one")  # fmt: skip
        return replace(topics, only=topic)

    def _priority(self, store: Block, topics: _Topics) -> None:
        chain: list[Block] = []
        # A store behind one that takes all topics gets nothing.
        all_taken = (
            number
            for number, child in enumerate(store.stores)
            if child.kind == "null" and (child.get("topic") or "*") == "*"
        )
        children = store.stores[: next(all_taken, None)]
        for number, child in enumerate(children):
            topic = child.get("topic") or "*"
            if child.kind == "null":
                # Its topics reach none of the stores behind it.
                topics = replace(topics, without=(*topics.without, topic))
                if chain:
                    self._note(child, f"{topic} is left out of the stores before it as well")
            elif topic != "*" and not chain and number == len(children) - 1:
                topics = self._narrowed(child, topics)
                chain.append(child)
            else:
                if topic != "*":
                    self._note(child, f"topic {topic} has no counterpart within a priority store: "
                               "it takes what its neighbours take")  # fmt: skip
                chain.append(child)
        if not chain:
            return
        names = [self._node(child) for child in chain]
        if len(names) == 1:
            self._filtered(names[0], topics)
            return
        top = self._new("priority")
        top["stores"] = names
        self._filtered(str(top["name"]), topics)

    def _filtered(self, name: str, topics: _Topics) -> None:
        (store,) = (one for one in self.found if one["name"] == name)
        filters: Store = {}
        if topics.only != "*":
            filters["topics"] = [topics.only]
        if topics.without:
            filters["exclude"] = list(topics.without)
        rest = {key: value for key, value in store.items() if key not in ("name", "kind")}
        head = {"name": store["name"], "kind": store["kind"]}
        store.clear()
        store.update({**head, **filters, **rest})

    def _node(self, store: Block) -> str:
        """Convert a store that others may hold; return its name."""
        match store.kind:
            case "file":
                return self._file(store)
            case "network":
                return self._network(store, "")
            case "buffer":
                return self._buffer(store)
            case "null":
                return str(self._new("null")["name"])
        if store.kind == "multiple" and store.get("success") != "all":
            self._note(store, "success any has no counterpart: each of its stores must have a "
                       "message, however late")  # fmt: skip
        names = [self._child(child) for child in store.stores]
        found = self._new(store.kind)
        found["stores"] = names
        return str(found["name"])

    def _child(self, store: Block) -> str:
        topic = store.get("topic") or "*"
        if topic != "*":
            self._note(store, f"topic {topic} has no counterpart there: it takes what its "
                       "neighbours take")  # fmt: skip
        return self._node(store)

    def _buffer(self, store: Block) -> str:
        (primary,) = (one for one in store.stores if one.role == "primary")
        (secondary,) = (one for one in store.stores if one.role == "secondary")
        folder = secondary.get("path") if secondary.kind == "file" else ""
        if not folder:
            self._note(secondary, "a spool is a folder on disk: it gets one of its own")
        else:
            self._note(secondary, f"what kids left in {folder} is not read: let kids deliver it "
                       "first")  # fmt: skip
        if primary.kind == "network":
            return self._network(primary, folder)
        inner = self._child(primary)
        found = self._new("buffer")
        found["stores"] = [inner]
        self._spool(found, folder)
        return str(found["name"])

    def _network(self, store: Block, folder: str) -> str:
        found = self._new("network")
        host, port, socket = (store.get(key) for key in ("host", "port", "socket"))
        if socket:
            self._note(store, f"an upstream is a host and a port, not the socket {socket}")
        found["upstream"] = f"{host or '127.0.0.1'}:{port or 3388}"
        # Kids supports no numbers and acknowledgements.
        self._note(store, 'while its upstream is still kids itself, add protocol = "publish"')
        self._spool(found, folder)
        return str(found["name"])

    def _spool(self, store: Store, folder: str) -> None:
        if folder:
            # One for each store, separate from kids's files there.
            store["spool"] = posixpath.normpath(f"{folder}/{store['name']}")

    def _file(self, store: Block) -> str:
        found = self._new("file")
        folder, name = store.get("path"), store.get("name")
        if not name:
            self._note(store, "it has no name, so kids wrote nothing; here it is messages.log")
            name = "messages.log"
        if re.search(r"[^.]\.[A-Za-z0-9_-]+$", name) is None or name.endswith(OF_STORES):
            self._note(store, f"a file has an ending of its own: {name}.log")
            name += ".log"
        path = posixpath.normpath(f"{folder or '.'}/{name}")
        found["path"] = path
        rotate = self._rotation(store)
        if rotate:
            found["rotate"] = rotate
        elif "[date]" in path or "[time]" in path:
            self._note(store,
                "kids began a file only with its first message; the hub begins one with each "
                "new [date] in the path")  # fmt: skip
        # Dates are in the machine's time zone.
        found["local"] = True
        return str(found["name"])

    def _rotation(self, store: Block) -> str:
        given = store.get("rotate").lower()
        if not given:
            return ""
        if given in ("daily", "hourly"):
            return {"daily": "day", "hourly": "hour"}[given]
        found = re.fullmatch(r"(\d{1,9})(s|sec|m|min|h|hour|d|day)", given)
        if found is None:
            self._note(store, f"kids did not understand rotate {given}, and never rotated")
            return ""
        seconds = int(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2][0]]
        minutes = min(max(-(-seconds // 60), 1), 1440)
        if minutes * 60 != seconds:
            self._note(store, f"rotate {given} is {minutes} min: a file is of whole minutes, up "
                       "to a day")  # fmt: skip
        return {60: "hour", 1440: "day"}.get(minutes, f"{minutes}min")

    def _new(self, kind: str) -> Store:
        taken = {one["name"] for one in self.found}
        names: Sequence[str] = [kind, *(f"{kind}-{number}" for number in range(2, len(taken) + 3))]
        store: Store = {"name": next(one for one in names if one not in taken), "kind": kind}
        self.found.append(store)
        return store

    def _note(self, store: Block, text: str) -> None:
        note = f"line {store.line}, store {store.kind}: {text}"
        if note not in self._notes:
            self._notes.append(note)


OF_STORES = (".idx", ".idx.old", ".zst", ".new", ".lock")
