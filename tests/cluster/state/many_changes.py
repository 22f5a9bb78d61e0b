"""Many changes through two data centres that are cut apart and joined again.

    python -m tests.cluster.state.many_changes 10000000               that many, as fast as possible
    python -m tests.cluster.state.many_changes 10000000 --seconds 600 and no more after that

Each data centre has two nodes. Clients write at all four with pipelines: increments of rows that
all of them write, of rows of their own, and values of these. In the end all nodes have the same
checksums and the same rows, each sum is exact and each value is the last that was written.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.node.test_node import client
from tests.cluster.nodes import NodeProcess, eventually
from tests.cluster.test_links import OTHERS, Two

SHARED = 100
"""Rows that everybody increments."""
OWN = 50
"""Rows of each client."""
PIPELINE = 500
"""Commands that are sent at once."""
NOT_DONE = b"-TRYAGAIN"


def command(*words: object) -> bytes:
    parts = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(p), p) for p in parts)


@dataclass
class Written:
    """The outcome of the writes of one client."""

    sums: Counter[str] = field(default_factory=Counter)
    values: dict[str, int] = field(default_factory=dict)
    done: int = 0
    refused: int = 0
    unknown: list[bytes] = field(default_factory=list)


class Writer(threading.Thread):
    """Writes this number of changes at one node."""

    def __init__(self, name: str, node: NodeProcess, changes: int, ends: threading.Event) -> None:
        super().__init__(daemon=True)
        self.written = Written()
        self.error: BaseException | None = None
        self._name, self._changes, self._ends = name, changes, ends
        self._chance = random.Random(name)
        host, _, port = node.address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 60)
        self._replies = self._socket.makefile("rb", 1 << 20)

    def run(self) -> None:
        try:
            with self._socket:
                left = self._changes
                while left > 0 and not self._ends.is_set():
                    left -= self._write(min(left, PIPELINE))
        except BaseException as error:
            self.error = error

    def _write(self, count: int) -> int:
        asked = [self._one() for _ in range(count)]
        self._socket.sendall(b"".join(words for *_, words in asked))
        written = self.written
        for key, by, value, _ in asked:
            reply = self._replies.readline()
            if reply.startswith(NOT_DONE):
                written.refused += 1
            elif reply.startswith(b":"):
                written.done += 1
                written.sums[key] += by
                if value:
                    written.values[key] = value
            else:
                written.unknown.append(reply)
        return count

    def _one(self) -> tuple[str, int, int, bytes]:
        """A row, by how much its sum is raised, the value it is given, and the command."""
        chance = self._chance
        if chance.random() < 0.6:
            key, by = f"s-{chance.randrange(SHARED)}", chance.randrange(1, 10)
            return key, by, 0, command("HINCRBY", f"presence:{key}", "unread", by)
        key = f"{self._name}-{chance.randrange(OWN)}"
        if chance.random() < 0.5:
            return key, 1, 0, command("HINCRBY", f"presence:{key}", "unread", 1)
        value = chance.randrange(1, 1 << 32)
        return key, 0, value, command("HSET", f"presence:{key}", "app_id", value)


@dataclass
class Outcome:
    changes: int
    seconds: float
    agreed: float
    """Seconds from the last write until all nodes were equal."""
    cuts: int
    refused: int
    rows: int
    checksum: str

    def __str__(self) -> str:
        return (
            f"{self.changes:,} changes in {self.seconds:.1f} s ({self.changes / self.seconds:,.0f} "
            f"a second), {self.cuts} cuts, {self.refused} refused, agreed after "
            f"{self.agreed:.1f} s: {self.rows} rows, checksum {self.checksum} everywhere"
        )


def run(folder: Path, changes: int, seconds: float, every: float, wait: float = 300) -> Outcome:
    """Write this number of changes within this many seconds, with a cut or its end about `every` s.

    Raises AssertionError where nodes differ, or have not what was written.
    """
    with ExitStack() as stack:
        two = Two(stack, folder)
        nodes = [two.nodes[dc] for dc in OTHERS]
        for dc in OTHERS:
            nodes.append(two.start(dc, f"{dc}2"))
            nodes[-1].wait()
        begin, ends = time.monotonic(), threading.Event()
        share = -(-changes // len(nodes))
        writers = [Writer(node.name, node, share, ends) for node in nodes]
        for writer in writers:
            writer.start()
        cuts = _cut(two, writers, begin + seconds, every)
        ends.set()
        for writer in writers:
            writer.join()
            assert writer.error is None, repr(writer.error)
        written = [writer.written for writer in writers]
        done = time.monotonic()
        two.heal()
        eventually(lambda: _are_equal(nodes), lambda: str([_status(one) for one in nodes]), wait)
        agreed = time.monotonic() - done
        sums, values = Counter[str](), dict[str, int]()
        for one in written:
            assert not one.unknown, one.unknown[:3]
            sums.update(one.sums)
            values |= one.values
        for node in nodes:
            _check(node, sums, values)
        status = _status(nodes[0])
        return Outcome(
            sum(one.done for one in written), done - begin, agreed, cuts,
            sum(one.refused for one in written), len(sums), status["rows_checksum"],
        )  # fmt: skip


def _cut(two: Two, writers: Sequence[Writer], until: float, every: float) -> int:
    """Cut the data centres apart and join them, until all is written; returns how often."""
    chance, cuts, is_cut = random.Random(27), 0, False
    while any(one.is_alive() for one in writers) and time.monotonic() < until:
        time.sleep(chance.uniform(0.5, 1.5) * every)  # The pace of the cuts.
        is_cut = not is_cut
        (two.cut if is_cut else two.heal)()
        cuts += is_cut
    return cuts


def _status(node: NodeProcess) -> Any:
    with client(node) as asked:
        return json.loads(asked.execute_command("NODE", "STATUS"))


def _are_equal(nodes: Sequence[NodeProcess]) -> bool:
    found = [_status(node) for node in nodes]
    quiet = all(
        not one["lag_entries"] and not one["waiting"] and one["state"] == "serving" for one in found
    )
    places = {(one["dc"], one["position"], one["log_checksum"]) for one in found}
    return quiet and len(places) == 2 and len({one["rows_checksum"] for one in found}) == 1


def _check(node: NodeProcess, sums: Counter[str], values: dict[str, int]) -> None:
    """Every row as a client reads it."""
    keys = sorted({*sums, *values})
    with client(node) as asked:
        for key, row in zip(keys, _rows(asked, keys), strict=True):
            found = (int(row[b"unread"]), int(row[b"app_id"]))
            wanted = (sums[key], values.get(key, 0))
            assert found == wanted, f"{key} is {found} at {node.name}, and {wanted} is right"


def _rows(asked: Any, keys: Sequence[str]) -> Iterator[dict[bytes, bytes]]:
    for key in keys:
        found = asked.hgetall(f"presence:{key}")
        yield {_bytes(name): _bytes(text) for name, text in found.items()}


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.state.many_changes")
    parser.add_argument("changes", type=int)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--every", type=float, default=3.0, help="seconds from a cut to its end")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(run(Path(folder), given.changes, given.seconds, given.every), flush=True)


if __name__ == "__main__":
    main()
