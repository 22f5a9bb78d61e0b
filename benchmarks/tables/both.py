"""Two processes on the same rows, each on a core of its own.

    python -m benchmarks.tables.both STORE PLACE ROLE SEED

opens a store that is there, says `ready`, and after a line on its input does what its role says for
a second; then it prints how many times.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from functools import partial

from benchmarks.row import Sample
from benchmarks.servers import LOAD_CORE, SERVER_CORE, prepare
from benchmarks.tables.local import Lmdb, Sqlite, Ultra
from benchmarks.tables.remote import Memcached, Redis
from benchmarks.tables.store import Store, Table, keys_of

SECONDS = 1.0
ROUND = 200
"""Operations between two looks at the clock."""

KINDS: dict[str, type[Table | Lmdb | Ultra | Sqlite | Memcached | Redis]] = {
    kind.name: kind for kind in (Table, Lmdb, Ultra, Sqlite, Memcached, Redis)
}


def run(store: Store, roles: tuple[str, str], seed: int) -> Sample:
    """Measure both at once: ns of one operation, counted over both.

    What two raised is counted afterwards: a sum that lacks some is lost.
    """
    keys = keys_of(seed)
    place = getattr(store, "place")  # noqa: B009
    before = sum(store.get_column(keys[:5_000]))
    sides = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.tables.both", store.name, place, role, str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=partial(prepare, core),
        )
        for role, core in zip(roles, (LOAD_CORE, SERVER_CORE), strict=True)
    ]
    try:
        for side in sides:
            assert side.stdout is not None
            if side.stdout.readline().strip() != "ready":
                raise RuntimeError(f"{store.name}: a side of two ended before it began")
        for side in sides:
            assert side.stdin is not None
            side.stdin.write("\n")
            side.stdin.flush()
        done, seconds = [], []
        for side in sides:
            assert side.stdout is not None
            count, took = side.stdout.readline().split()
            done.append(int(count))
            seconds.append(float(took))
    finally:
        for side in sides:
            side.kill()
            side.communicate()
    lost = 0
    if roles == ("incr", "incr"):
        lost = sum(done) - (sum(store.get_column(keys[:5_000])) - before)
    # Operations a second of each, added up.
    rate = sum(count / took for count, took in zip(done, seconds, strict=True))
    return Sample(1e9 / rate, sum(done), abs(lost))


def side(name: str, place: str, role: str, seed: int) -> None:
    """Do one side's part."""
    # Few enough keys that both often come to the same ones.
    keys = keys_of(seed)[:5_000]
    store = KINDS[name]((), place)
    rounds = [random.Random(number).choices(keys, k=ROUND) for number in range(50)]
    store.get_column(rounds[0])
    print("ready", flush=True)
    sys.stdin.readline()
    done, start = 0, time.perf_counter()
    while (now := time.perf_counter()) - start < SECONDS:
        batch = rounds[done // ROUND % len(rounds)]
        if role == "incr":
            store.incr(batch)
        elif role == "write":
            store.set_column(batch, done & 255)
        else:
            store.get_column(batch)
        done += ROUND
    print(done, now - start, flush=True)


if __name__ == "__main__":
    side(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
