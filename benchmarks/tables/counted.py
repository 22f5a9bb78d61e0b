"""The operations of the state table and of a dict as loops, to count their instructions."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import Any

from benchmarks.row import Sample
from benchmarks.tables.store import Dict, Objects, Store, Table, keys_of

ROWS = 10_000
"""Rows of each store: Valgrind takes a minute to load 100,000. The slots are as full."""

BATCH = 100
NAMES = {
    "get": "get_column",
    "set-column": "set_column",
    "incr": "incr",
    "row": "get_row",
    "set-row": "set_row",
    "miss": "miss",
    "batch": "get_many",
}
"""The methods of a store, by the names of the rows of `make bench`."""

OBJECTS = {"object": "get_row", "set-object": "set_row"}
"""The same for rows as objects; the dict has bytes in their place."""


def ours(name: str) -> Callable[[int], Sample]:
    """Return a loop that does this operation on a shared table."""
    return _loop(Objects, OBJECTS[name]) if name in OBJECTS else _loop(Table, NAMES[name])


def of_dict(name: str) -> Callable[[int], Sample]:
    """Return the same for a dict of dicts, or of bytes for whole rows."""
    return _loop(Dict, NAMES[name])


Loaded = tuple[Store, list[str], list[str], list[Any]]
"""A store, the keys of its rows, as many others, and a row to set for each."""

_KEPT: dict[str, Loaded] = {}


def _loaded(kind: type[Store]) -> Loaded:
    if kind.name not in _KEPT:
        _KEPT[kind.name] = _load(kind)
    return _KEPT[kind.name]


def _load(kind: type[Store]) -> Loaded:
    keys = keys_of(1)[:ROWS]
    store = kind(keys)
    atexit.register(store.close)
    return store, keys, [f"{key}0" for key in keys], store.rows_of(keys)


def _loop(kind: type[Store], what: str) -> Callable[[int], Sample]:
    def run(messages: int) -> Sample:
        store, keys, others, rows = _loaded(kind)
        keys = keys[:messages]
        call: Any = getattr(store, what)
        wrong = 0
        if what == "get_many":
            found = call([keys[at : at + BATCH] for at in range(0, messages, BATCH)])
            wrong = messages - sum(map(len, found))
        elif what == "set_row":
            call(keys, rows[:messages])
        elif what == "set_column":
            call(keys, 7)
            wrong = int(store.get_column(keys[-1:]) != [7])
        elif what == "incr":
            before = store.get_column(keys[-1:])[0]
            call(keys)
            wrong = int(store.get_column(keys[-1:]) != [before + 1])
        else:
            found = call(others[:messages] if what == "miss" else keys)
            wrong = abs(found.count(None) - (messages if what == "miss" else 0))
        return Sample(0, messages, wrong)

    return run
