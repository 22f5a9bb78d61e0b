"""The outbox in PostgreSQL beside other queues in it, and beside a plain insert.

The figure is processor time of the server, of all its processes; that of clients does not count.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cache, partial
from importlib.util import find_spec
from statistics import median, quantiles
from typing import Any

from benchmarks.interpreters import NotPrepared
from benchmarks.row import Pair, Row, Sample
from benchmarks.servers import kept
from benchmarks.workers import postgresql

TABLE = "Outbox in PostgreSQL"
ROUND = 1_000
"""Messages that are put before they are taken."""
ROUNDS = {1: 5, 100: 20}
"""By batch: a second or so of a server."""
PUTS = {1: 3_000, 100: 20_000}
SENDS = 500

_STACK = ExitStack()
atexit.register(_STACK.close)


@cache
def _server() -> tuple[int, str]:
    """Start a PostgreSQL for this process; return its process and its URL."""
    if find_spec("psycopg") is None:
        raise NotPrepared("no psycopg: pip install '.[postgresql]'")
    import psycopg

    pid, url = _STACK.enter_context(postgresql.cluster(postgresql.free_port()))
    with psycopg.connect(url, autocommit=True) as db:
        # It would start during some samples, and not during others.
        db.execute("alter system set autovacuum = off")
        db.execute("select pg_reload_conf()")
    return pid, url


def beside_peers(batch: int, number: int) -> Pair:
    """Put, take and delete messages in batches, on each side in turn."""
    from benchmarks.workers import outbox_sides as sides

    pid, url = _server()
    kinds: list[Any] = [sides.Ours, *sides.PEERS]
    found: dict[str, Sample] = {}
    missing: dict[str, str] = {}
    for kind in kinds[number % len(kinds) :] + kinds[: number % len(kinds)]:
        try:
            side = kind(url)
        except NotPrepared as error:
            missing[kind.name] = str(error)
            continue
        with closing(side):
            found[kind.name] = _cycle(side, pid, batch)
    ours = found.pop("ours")
    figures = {name: sample.value for name, sample in found.items()}
    parts = {f"{name}_{part}": value for name, sample in found.items()
             for part, value in sample.details.items()}  # fmt: skip
    return Pair(
        replace(ours, details=ours.details | dict.fromkeys(figures, ours.value)),
        Sample(
            figures["pgmq"],
            ours.messages,
            sum(sample.lost for sample in found.values()),
            sum(sample.misordered for sample in found.values()),
            figures | parts | {"vacuumed": found["pgmq"].details["vacuumed"]},
        ),
        missing,
    )


def _cycle(side: Any, pid: int, batch: int) -> Sample:
    """Measure µs of a message on one side, of all and of each step."""
    from benchmarks.workers.outbox_sides import calls, server_seconds

    used = {"put": 0.0, "take": 0.0, "delete": 0.0}
    # The functions of Procrastinate take jobs one by one, in a millisecond or more.
    rounds = 2 if side.name == "procrastinate" else ROUNDS[batch]
    deleted = misordered = number = 0
    for turn in range(rounds + 1):
        if turn == 1:
            # One round was to warm up, and gives the planner its statistics.
            side.db.execute(f"vacuum analyze {side.tables}".encode())
            used = dict.fromkeys(used, 0.0)
            deleted = misordered = 0
        start = server_seconds(pid)
        for _ in range(ROUND // batch):
            side.put(calls(number, batch))
            number += batch
        put = server_seconds(pid)
        ids: list[int] = []
        while len(ids) < ROUND and (some := side.take(batch)):
            ids += some
        taken = server_seconds(pid)
        for first in range(0, len(ids), batch):
            deleted += side.delete(ids[first : first + batch])
        end = server_seconds(pid)
        misordered += ids != sorted(ids)
        for step, seconds in zip(used, (put - start, taken - put, end - taken), strict=True):
            used[step] += seconds
    count = rounds * ROUND
    start = server_seconds(pid)
    side.db.execute(f"vacuum {side.tables}".encode())
    details = {step: seconds / count * 1e6 for step, seconds in used.items()}
    value = sum(details.values())
    details["vacuumed"] = value + (server_seconds(pid) - start) / count * 1e6
    return Sample(value, count, count - deleted, misordered, details)


PLAIN = """
drop table if exists plain;
create table plain (
    id bigint generated always as identity primary key,
    queue text not null, task text not null, payload bytea not null, keys bytea[] not null,
    shared bytea[] not null, delay double precision, dedup text, options text not null,
    created timestamptz not null default clock_timestamp())"""
COLUMNS = "queue, task, payload, keys, shared, delay, dedup, options"


def beside_insert(batch: int, number: int) -> Pair:
    """Put calls, and insert the same values into a table with a primary key and nothing else."""
    from benchmarks.workers.outbox_sides import Ours, calls, server_seconds

    pid, url = _server()
    with closing(Ours(url)) as side:
        side.db.execute(PLAIN)

        def insert(some: Any) -> None:
            rows = [side.values(one) for one in some]
            if batch == 1:
                side.ask(f"insert into plain ({COLUMNS}) values (%s, %s, %s, %s, %s, %s, %s, %s) "
                         "returning id", rows[0])  # fmt: skip
                return
            queue, task = rows[0][:2]
            payload, keys, _, delay, dedup, options = zip(*(row[2:] for row in rows), strict=True)
            side.ask(
                f"insert into plain ({COLUMNS}) select %s, %s, payload, array[key], '{{}}', delay, "
                "dedup, options from unnest(%s::bytea[], %s::bytea[], %s::float8[], %s::text[], "
                "%s::text[]) t (payload, key, delay, dedup, options) returning id",
                (queue, task, list(payload), [one[0] for one in keys], list(delay), list(dedup),
                 list(options)),
            )  # fmt: skip

        def measured(put: Callable[[Any], None], table: str) -> Sample:
            put(calls(0, batch))
            start = server_seconds(pid)
            for first in range(0, PUTS[batch], batch):
                put(calls(first, batch))
            used = server_seconds(pid) - start
            ((count,),) = side.ask(f"select count(*) from {table}")
            return Sample(used / PUTS[batch] * 1e6, PUTS[batch], PUTS[batch] + batch - count)

        both = [partial(measured, side.put, "interlock.outbox"), partial(measured, insert, "plain")]
        if number % 2:
            peer, ours = both[1](), both[0]()
        else:
            ours, peer = both[0](), both[1]()
        return Pair(ours, peer)


def handled(engine: str, _: int) -> Pair:
    """Measure ms from before a send until its handler runs, one at a time."""
    import psycopg

    from interlock.app import App
    from interlock.outbox import Outbox

    _, url = _server()
    hub = kept("hub") if engine == "hub" else None
    app = App("memory://" if hub is None else f"interlock://127.0.0.1:{hub.port}")
    outbox = Outbox(app, url)
    outbox.migrate()
    began: list[float] = []
    done = threading.Event()

    @app.task(keys="key", transaction=outbox)
    def effect(db: Any, key: str, number: int) -> None:
        began.append(time.perf_counter())
        done.set()

    taken = []
    with psycopg.connect(url, autocommit=True) as db, app.worker(threads=2):
        for number in range(SENDS + 20):
            done.clear()
            start = time.perf_counter()
            outbox.send(db, effect, f"key-{number}", number)
            if not done.wait(20):
                raise RuntimeError("a call was not handled within 20 s")
            taken.append((began[-1] - start) * 1e3)
    del taken[:20]
    p99 = quantiles(taken, n=100)[98]
    return Pair(Sample(median(taken), SENDS, SENDS + 20 - len(began), details={"p99": p99}))


def _row(batch: int, name: str, title: str, bar: float | None) -> Row:
    return Row(
        name=f"outbox/{name}",
        title=f"put, relay, delete, {title}: CPU of the server",
        table=TABLE,
        peer="",
        bar=bar,
        judged="value",
        unit="µs",
        unseen=False,
        pair=partial(beside_peers, batch),
        longest=400,
    )


def _beside(row: Row, name: str, peer: str, bar: float | None, figure: str = "") -> Row:
    return replace(row, name=f"{row.name}-{name}", title=row.title if not figure else
                   f"{row.title}, with a vacuum of their tables", peer=peer, judged="ratio",
                   figure=figure or name, bar=bar, shares=row.name, pair=None)  # fmt: skip


def _put(batch: int, title: str) -> Row:
    return Row(
        name=f"outbox/put-{batch}",
        title=f"put {title}: CPU of the server",
        table=TABLE,
        peer="a plain insert of the same values",
        bar=1.5,
        unit="µs",
        pair=partial(beside_insert, batch),
    )


def _handled(engine: str, title: str) -> Row:
    return Row(
        name=f"outbox/handled-{engine}",
        title=f"from the send to its handler, {title}: p50",
        table=TABLE,
        peer="",
        bar=5,
        judged="value",
        unit="ms",
        unseen=False,
        pair=partial(handled, engine),
    )


_PGMQ = "pgmq's statements (it is not in Debian)"
_BATCHES = _row(100, "batches", "batches of 100", 27)
_SINGLE = _row(1, "single", "one by one", None)
ROWS = (
    _BATCHES,
    _beside(_BATCHES, "pgmq", _PGMQ, 0.6),
    _beside(_BATCHES, "river", "River's statements", None),
    _beside(_BATCHES, "procrastinate", "Procrastinate's functions", None),
    _beside(_BATCHES, "vacuum", _PGMQ, None, "vacuumed"),
    _SINGLE,
    _beside(_SINGLE, "pgmq", _PGMQ, None),
    _beside(_SINGLE, "river", "River's statements", None),
    _beside(_SINGLE, "procrastinate", "Procrastinate's functions", None),
    _put(100, "in batches of 100"),
    _put(1, "one by one"),
    _handled("memory", "memory://"),
    _handled("hub", "a hub"),
)
