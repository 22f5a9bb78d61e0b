"""Random faults of the broker that has the log, and of nodes, while clients write.

Two nodes share a log. The broker is killed, restarted and frozen, and so are nodes. No answered
write may be lost or counted twice: neither one of a node's plain clients, which do not know of a
write without an answer whether it is done, nor one of the cluster's client, which sends it again.
No reader of a node's table sees a counter fall. Afterwards the nodes are equal.

`python -m tests.cluster.streams.test_faults 5 --engine kafka --steps 40` does more runs, and longer
ones. With `--clocks`, broker and nodes have clocks of their own, which are set wrong meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import redis

import interlock
from interlock.errors import EngineUnavailable
from tests import seeds
from tests.cluster.faults import clock
from tests.cluster.node.test_node import client
from tests.cluster.nodes import NodeProcess, Presence
from tests.cluster.streams.engines import ENGINES
from tests.cluster.streams.engines.server import Engine, eventually
from tests.cluster.streams.test_nodes import places, rows, status
from tests.hub.servers import needs_hub, redis_server

KEYS = [f"k{number}" for number in range(8)]
PATIENT = 240
"""Seconds in which a write of the cluster's client is done: a broker may take long to start."""
PROGRESS = 40
"""Writes that are answered between two faults."""
SKEW = 30.0
"""Seconds by which a clock is ahead or behind at most."""


class Writer:
    """A thread that raises counters at one node, and knows what of it is done."""

    def __init__(self, run: Run, name: str) -> None:
        self._run, self._name = run, name
        self._chance = random.Random(name)
        self.done: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()

    def step(self) -> None:
        node = self._run.alive.get(self._name)
        if node is None:
            time.sleep(0.05)
            return
        keys = self._chance.choices(KEYS, k=self._chance.randrange(1, 20))
        with suppress(redis.ConnectionError, redis.TimeoutError), client(node, timeout=10) as one:
            pipe = one.pipeline(transaction=False)
            for key in keys:
                pipe.hincrby(f"presence:{key}", "unread", 1)
            # Until it is known they may be done.
            self.unknown.update(keys)
            for key, found in zip(keys, pipe.execute(raise_on_error=False), strict=True):
                if not isinstance(found, Exception):
                    self.done[key] += 1
                    self.unknown[key] -= 1
                elif "it was not done" in str(found):
                    self.unknown[key] -= 1


class ClusterWriter:
    """A thread that counts, and sets a number, by a client that sends a write until it is done."""

    def __init__(self, run: Run, url: str) -> None:
        self._client = run.stack.enter_context(interlock.connect(f"{url}?timeout={PATIENT}"))
        self._table = self._client.table("presence", Presence)
        self._run = run
        self.done: Counter[str] = Counter()
        self.last = 0
        self._table["once"] = Presence(app_id=0)

    def step(self) -> None:
        last = self.last + 1
        try:
            found = self._table.incr("once", "unread")
            assert found == last, f"{found} after {self.last} writes: one is lost, or counts twice"
            self._table["last"] = Presence(app_id=last)
        except EngineUnavailable as error:
            raise AssertionError(
                f"a write of the cluster's client took {PATIENT} s: {error}"
            ) from None
        self.last = last
        self.done["once"] += 1


class Reader:
    """A thread that looks at the tables of the nodes, whose counters never fall."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._seen: dict[str, dict[str, int]] = {"a": {}, "b": {}}
        self.done: Counter[str] = Counter()

    def step(self) -> None:
        for name, seen in self._seen.items():
            found = {key: row.unread for key, row in rows(self._run.folder, name).items()}
            fell = {
                key: (old, found.get(key)) for key, old in seen.items() if found.get(key, 0) < old
            }
            assert not fell, f"a reader at {name} went back: {fell}"
            self._seen[name] = found
        time.sleep(0.02)


class Run:
    """One run on an engine, which it starts."""

    def __init__(
        self, stack: ExitStack, folder: Path, engine: Engine, seed: int, *, clocked: bool = False
    ) -> None:
        self._clocked = clocked
        with self._clock("broker", folder):
            engine.start()
        self.chance = random.Random(seed)
        self.stack, self.folder, self.engine = stack, folder, engine
        self.steps = [f"{type(engine).__name__}, seed {seed}"]
        self.kills = 0
        self.alive: dict[str, NodeProcess] = {}
        self._dc = f"dc{seed}"
        _, port = stack.enter_context(redis_server(folder))
        self._cluster = f"redis://127.0.0.1:{port}"
        self._failed: list[BaseException] = []
        self._ends = threading.Event()
        for name in "ab":
            self._start(name)
        url = f"interlock+cluster://127.0.0.1:{port}/presence"
        self._once = ClusterWriter(self, url)
        self._writers = [Writer(self, "a"), Writer(self, "b")]
        self._actors = [*self._writers, self._once, Reader(self)]
        self._threads = [
            threading.Thread(target=self._act, args=(actor,), daemon=True) for actor in self._actors
        ]
        stack.callback(self._end)
        for thread in self._threads:
            thread.start()

    def go(self, steps: int) -> None:
        """Do some faults, then end all and check."""
        ways = {
            self._kill_broker: 5, self._restart_broker: 1, self._freeze_broker: 1,
            self._kill_node: 1, self._freeze_node: 1,
        }  # fmt: skip
        if self._clocked:
            ways[self._step_clock] = 4
        for _ in range(steps):
            self._goes_on()
            (step,) = self.chance.choices(list(ways), list(ways.values()))
            self.steps.append(step.__name__)
            step()
        self._goes_on()
        for file in self.folder.glob("*.clock"):
            clock.set_clock(file, 0.0)
        self._end()
        self._check()
        nodes = list(self.alive.values())
        eventually(lambda: places(nodes[0]) == places(nodes[1]), self._why)
        found = rows(self.folder, "a")
        assert found == rows(self.folder, "b"), self._why()
        for key in KEYS:
            done = sum(one.done[key] for one in self._writers)
            unknown = sum(one.unknown[key] for one in self._writers)
            value = found[key].unread if key in found else 0
            assert done <= value <= done + unknown, f"{key}: {value}\n{self._why()}"
        assert found["once"].unread == found["last"].app_id == self._once.last, self._why()
        for node in nodes:
            now = status(node)
            # The log's time does not fall: to whom it is ahead says so until its clock is there.
            left = [one for one in now["trouble"] if not (self._clocked and one["kind"] == "clock")]
            assert (now["went_back"], left) == (0, []), self._why()

    # -- Faults -------------------------------------------------------------------------------

    def _kill_broker(self) -> None:
        self.kills += 1
        self.engine.kill()
        self._pause()
        self._start_broker()

    def _restart_broker(self) -> None:
        self.engine.stop()
        self._pause()
        self._start_broker()

    def _start_broker(self) -> None:
        with self._clock("broker", self.folder):
            self.engine.start()

    def _step_clock(self) -> None:
        """It stays wrong until it is set again."""
        who = self.chance.choice(("broker", "broker", "a", "b"))
        ahead = self.chance.uniform(-SKEW, SKEW)
        self.steps[-1] += f" of {who} to {ahead:.1f} s"
        clock.set_clock(self.folder / f"{who}.clock", ahead)
        self._pause()

    def _freeze_broker(self) -> None:
        self.engine.freeze()
        self._pause(6.0)
        self.engine.thaw()

    def _kill_node(self) -> None:
        name = self.chance.choice("ab")
        self.alive.pop(name).kill()
        self._pause()
        self._start(name)

    def _freeze_node(self) -> None:
        node = self.alive[self.chance.choice("ab")]
        node.freeze()
        self._pause(6.0)
        node.thaw()

    def _pause(self, most: float = 2.0) -> None:
        """Let clients find out."""
        self._ends.wait(self.chance.uniform(0, most))

    # -- Helpers -----------------------------------------------------------------------------

    @contextmanager
    def _clock(self, who: str, folder: Path) -> Iterator[None]:
        """Give this clock to what is started meanwhile."""
        before = dict(os.environ)
        if self._clocked:
            file = folder / f"{who}.clock"
            if not file.exists():
                clock.set_clock(file, 0.0)
            os.environ.update(clock.environment(file))
        try:
            yield
        finally:
            if self._clocked:
                for name in clock.environment(file):
                    os.environ.pop(name)
                    if name in before:
                        os.environ[name] = before[name]

    def _start(self, name: str) -> None:
        flags = ("--stream", self.engine.url, "--dc", self._dc, "--timeout", "3")
        with self._clock(name, self.folder):
            node = NodeProcess(name, self._cluster, self.folder, *flags)
        self.stack.callback(node.close)
        node.wait()
        self.alive[name] = node

    def _act(self, actor: Writer | ClusterWriter | Reader) -> None:
        try:
            while not self._ends.is_set():
                actor.step()
        except BaseException as error:
            self._failed.append(error)

    def _end(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def _check(self) -> None:
        if self._failed:
            raise AssertionError(f"{self._failed[0]}\n{self._why()}") from self._failed[0]

    def _goes_on(self) -> None:
        """Wait until writes of every client are answered."""
        writers: list[Writer | ClusterWriter] = [*self._writers, self._once]
        before = [one.done.total() for one in writers]

        def is_so() -> bool:
            self._check()
            now = [one.done.total() for one in writers]
            return all(new > old + 3 for new, old in zip(now, before, strict=True)) and (
                sum(now) > sum(before) + PROGRESS
            )

        eventually(is_so, self._why, PATIENT)

    def _why(self) -> str:
        tables = {
            name: {key: row.unread for key, row in rows(self.folder, name).items()} for name in "ab"
        }
        told = []
        for name, node in self.alive.items():
            with suppress(redis.RedisError):
                told.append(f"-- {name} {json.dumps(status(node))}")
            told.append(node.log)
        done = [(dict(one.done), dict(+one.unknown)) for one in self._writers]
        return "\n".join(
            [
                str(tables),
                str(done),
                f"once {self._once.last}",
                str(self.steps),
                *told,
                self.engine.said(),
            ]
        )


def run(kind: str, seed: int, steps: int, *, clocked: bool = False) -> int:
    """Do one run in a folder of its own; return how often the broker was killed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="interlock-brokers-")))
        (folder / "engine").mkdir()
        if clocked:
            # Brokers run as another user.
            for path in (folder, clock.needed().parent):
                path.chmod(0o755)
        engine = ENGINES[kind](folder / "engine")
        stack.callback(engine.close)
        made = Run(stack, folder, engine, seed, clocked=clocked)
        made.go(steps)
        return made.kills


@pytest.mark.watchdog(180)
def test_answered_writes_survive_any_fault_of_a_broker() -> None:
    needs_hub()
    run("nats", seeds.seed(), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=int)
    parser.add_argument("--engine", choices=ENGINES, required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clocks", action="store_true", help="set clocks wrong, too")
    given = parser.parse_args()
    for seed in range(given.seed, given.seed + given.runs):
        began = time.monotonic()
        kills = run(given.engine, seed, given.steps, clocked=given.clocks)
        took = time.monotonic() - began
        print(f"{given.engine}, seed {seed}: {kills} kills in {took:.0f} s", flush=True)


if __name__ == "__main__":
    main()
