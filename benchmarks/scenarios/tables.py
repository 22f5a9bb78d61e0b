"""The state table beside what a program would use instead, all in the same run.

A round takes a seed of its own, fills each store with keys and rows drawn by it, and has each do
the same operations in the same order, one store after the other, beginning with another each time.
So one round gives a ratio beside every peer.
"""

from __future__ import annotations

import atexit
import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.drive import Clock, pinned
from benchmarks.interpreters import NotPrepared
from benchmarks.row import Pair, Row, Sample
from benchmarks.tables import both
from benchmarks.tables import store as stores
from benchmarks.tables.local import Lmdb, Sqlite, Ultra
from benchmarks.tables.remote import Memcached, Redis
from benchmarks.tables.store import Device, Dict, Objects, Store, Table, keys_of
from interlock import SharedTable

TABLE = "State table"
LONGEST = 280.0
BATCH = 100
PEERS: tuple[type[Store], ...] = (Dict, Lmdb, Ultra, Sqlite, Memcached, Redis)
SERVERS: tuple[type[Store], ...] = (Memcached, Redis)
_KEPT: dict[str, Store] = {}


class Timed:
    """A store's operation, timed; `wrong` counts what it should not have found."""

    def __init__(self, store: Store, keys: Sequence[str]) -> None:
        self.store, self.keys, self.wrong = store, keys, 0

    def seconds(self, what: str) -> float:
        """Do it, and return how long it took."""
        store, keys = self.store, self.keys
        rows = store.rows_of(keys) if what == "set_row" else []
        if what == "miss":
            # No user id has ten digits.
            keys = [f"{key}0" for key in keys]
        argument: Any = keys
        if what == "get_many":
            argument = [list(keys[at : at + BATCH]) for at in range(0, len(keys), BATCH)]
        if what in ("incr", "set_column"):
            before = store.get_column(keys)
        call: Any = getattr(store, what)
        more: tuple[Any, ...] = {"set_column": (7,), "set_row": (rows,)}.get(what, ())
        with pinned():
            clock = Clock()
            found = call(argument, *more)
            seconds = clock.seconds()
        if what == "incr":
            after = store.get_column(keys)
            self.wrong = sum(then + 1 != now for then, now in zip(before, after, strict=True))
        elif what == "set_column":
            self.wrong = sum(value != 7 for value in store.get_column(keys))
        elif what == "get_column":
            self.wrong = sum(value != 0 for value in found)
        elif what == "get_many":
            self.wrong = sum(value != 0 for values in found for value in values)
        elif what == "set_row":
            self.wrong = sum(value != 0 for value in store.get_column(keys))
        elif what == "get_row":
            self.wrong = sum(not row for row in found)
        elif what == "miss":
            self.wrong = sum(value is not None for value in found)
        return seconds


def kept(kind: type[Store]) -> Store:
    """Return a server with its rows, which this process starts once."""
    if kind.name not in _KEPT:
        _KEPT[kind.name] = kind(keys_of(1))
        atexit.register(_KEPT[kind.name].close)
    return _KEPT[kind.name]


def taking(what: str, ours: type[Store] = Table, peers: tuple[type[Store], ...] = PEERS
) -> Callable[[int], Pair]:  # fmt: skip
    """Return what takes rounds of one operation beside all peers."""

    def pair(number: int) -> Pair:
        seed = random.SystemRandom().getrandbits(32)
        keys = keys_of(seed)
        order = random.Random(seed + 1).sample(keys, len(keys))
        figures: dict[str, float] = {}
        missing: dict[str, str] = {}
        wrong = {"ours": 0, "peer": 0}
        kinds = [ours, *peers]
        for kind in kinds[number % len(kinds) :] + kinds[: number % len(kinds)]:
            try:
                store = kept(kind) if kind in SERVERS else kind(keys)
            except NotPrepared as error:
                missing[kind.name] = str(error)
                continue
            own = random.Random(seed).sample(keys_of(1), stores.ROWS) if kind in SERVERS else order
            timed = Timed(store, own[: round(stores.ROWS * kind.share) // BATCH * BATCH])
            figures[kind.name] = timed.seconds(what) / len(timed.keys) * 1e9
            wrong["ours" if kind is ours else "peer"] += timed.wrong
            if kind not in SERVERS:
                store.close()
            elif what in ("incr", "set_column"):
                store.set_column(timed.keys, 0)
        return _pair(figures, missing, ours, wrong, seed)

    return pair


def together(roles: tuple[str, str]) -> Callable[[int], Pair]:
    """Return what takes rounds of two processes on the same rows."""

    def pair(number: int) -> Pair:
        seed = random.SystemRandom().getrandbits(32)
        figures: dict[str, float] = {}
        missing: dict[str, str] = {}
        wrong = {"ours": 0, "peer": 0}
        kinds: list[type[Store]] = [Table, Lmdb, Ultra, Sqlite, Memcached, Redis]
        for kind in kinds[number % len(kinds) :] + kinds[: number % len(kinds)]:
            try:
                store = kind(keys_of(seed))
            except NotPrepared as error:
                missing[kind.name] = str(error)
                continue
            sample = both.run(store, roles, seed)
            figures[kind.name] = sample.value
            wrong["ours" if kind is Table else "peer"] += sample.lost
            store.close()
        return _pair(figures, missing, Table, wrong, seed)

    return pair


def _pair(
    figures: dict[str, float], missing: dict[str, str], ours: type[Store], wrong: dict[str, int],
    seed: int,
) -> Pair:  # fmt: skip
    """Return a round: each peer's figure by its name, and ours under the same."""
    mine = figures.pop(ours.name)
    own = dict.fromkeys(figures, mine) | {"seed": float(seed)}
    return Pair(
        Sample(mine, stores.ROWS, wrong["ours"], details=own),
        Sample(
            next(iter(figures.values()), 0.0), stores.ROWS, wrong["peer"], details=dict(figures)
        ),
        missing,
    )


def free_at_first_overwrite(_: int) -> Pair:
    """Measure the slots that are free when the first live row is overwritten, in percent of all."""
    seed = random.SystemRandom().getrandbits(32)
    numbers = random.Random(seed).sample(range(10**8, 10**9), stores.ROWS * 2)
    name = f"bench-{uuid.uuid4().hex}"
    table = SharedTable.open(name, Device, capacity=stores.ROWS)
    try:
        row = Device(app_id=666, unread=0, background=False, token="")
        slots = table.stats().slots
        for done, number in enumerate(numbers, 1):
            table[number] = row
            # To count takes as long as to look at all slots.
            if done > slots * 0.97 and done % 20 == 0 and table.stats().overwritten:
                return Pair(Sample(100 * (1 - done / slots), done, details={"seed": float(seed)}))
    finally:
        SharedTable.remove(name)
    raise RuntimeError("twice the capacity went in, and nothing was overwritten")


def _rows(
    name: str,
    title: str,
    pair: Callable[[int], Pair],
    bars: dict[str, tuple[float | None, float | None]],
    peers: Sequence[str],
) -> list[Row]:
    """Return a row beside each peer, of one round's samples; bars and prototypes by peer.

    That of dict is a ceiling, of ours ÷ dict; all others are floors.
    """
    rows: list[Row] = []
    for peer in peers:
        bar, prototype = bars.get(peer, (None, None))
        row = Row(
            name=f"table/{name}" if not rows else f"table/{name}-{peer.lower().replace(' ', '-')}",
            title=title,
            table=TABLE,
            peer=peer,
            judged="ratio" if peer == "dict" else "times",
            bar=bar,
            prototype=prototype,
            figure=peer,
            unseen=False,
            longest=LONGEST,
            pair=pair,
        )
        rows.append(replace(row, shares=rows[0].name, pair=None) if rows else row)
    return rows


_ALL = [kind.name for kind in PEERS]
_SHARED = [name for name in _ALL if name != "dict"]

_OPERATIONS = (
    ("get", "get one column", taking("get_column"), (0.6, 0.77), (4, 8.1), _ALL),
    ("set-column", "set one column", taking("set_column"), (0.6, 0.6), (None, None), _ALL),
    ("incr", "incr", taking("incr"), (0.45, 0.51), (9, 18.5), _ALL),
    ("row", "get a row as bytes", taking("get_row"), (1.9, 1.12), (3.6, 6.6), _ALL),
    ("set-row", "set a row as bytes", taking("set_row"), (1.35, 1.12), (6, 10.4), _ALL),
    ("miss", "a key that is not there", taking("miss"), (0.95, 0.76), (10, 16), _ALL),
    ("batch", f"one column of {BATCH} keys, per key", taking("get_many"), (0.35, 0.56), (6, 7.7),
     _ALL),
    ("object", "get a row as an object", taking("get_row", Objects, (Dict, Lmdb)), (None, None),
     (None, None), ["dict", "lmdb"]),
    ("set-object", "set a row from an object", taking("set_row", Objects, (Dict, Lmdb)),
     (None, None), (None, None), ["dict", "lmdb"]),
    ("reader-writer", "two processes: 1 writes, 1 reads a column", together(("write", "read")),
     (None, None), (8, 9.3), _SHARED),
    ("two-writers", "two processes: both incr", together(("incr", "incr")), (None, None),
     (30, 36), _SHARED),
)  # fmt: skip

ROWS = (
    *(
        row
        for name, title, pair, dict_bar, lmdb_bar, peers in _OPERATIONS
        for row in _rows(name, title, pair, {"dict": dict_bar, "lmdb": lmdb_bar}, peers)
    ),
    Row(
        name="table/first-overwrite",
        title="slots still free when the first live row is overwritten",
        table=TABLE,
        peer="",
        bar=0.8,
        prototype=0.7,
        unit="%",
        unseen=False,
        longest=LONGEST,
        pair=free_at_first_overwrite,
    ),
)
