"""Messages that end their process among innocent ones, and workers that are killed at random.

    python -m tests.engine.faults.poison --runs 2                 of each engine and pool
    python -m tests.engine.faults.poison --minutes 10 --write     and their figures into CRASHES.md
    python -m tests.engine.faults.poison --engine hub --pool process --seed 7

`interlock worker --processes 2` handles transfers between accounts, each with two keys. Some
messages end their process (`os._exit`, SIGKILL). In half of the runs workers, and children of their
pools, are killed from outside as well. Then, by clauses 2, 3, 9 and 10:

- each transfer was done once and in its order, and none is a dead letter;
- each poison message is a dead letter, at exactly its attempts. Its handler began as often, or once
  more: the end of its first lease is not charged, unless its handler had begun alone;
- no two handlers of one key overlapped, and none began before those before it had ended;
- no innocent message was charged. Where processes are killed from outside each kill may charge one,
  for the engine cannot see that the message that ran alone there is innocent; and so may poison
  begin once more for each kill.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import interlock
from tests import seeds
from tests.engine.faults import bank, poison_app
from tests.engine.faults.bank import Operation
from tests.engine.faults.lines import Line, read
from tests.engine.faults.report import SUMMARY, poisoned
from tests.engine.faults.servers import ENGINES, Server, die_with_parent
from tests.hub.servers import free_port

POOLS = ("thread", "asyncio", "process")
MESSAGES, POISON, ACCOUNTS = 60, 4, 30
LEASE = 1.5
"""Seconds; a killed worker keeps its messages for this long."""
KILL_SECONDS = 1.0
"""Between two kills from outside, in the middle."""
KILL_BEGUN = 5
"""Handlers that begin between two kills, at least: on a loaded machine workers start slowly."""
LIMIT_SECONDS = 200.0
ROOT = Path(__file__).parents[3]


@dataclass
class Run:
    """A run, and what does not hold of it."""

    engine: str
    pool: str
    seed: int
    folder: Path
    kills: bool

    def __post_init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self._chance = random.Random(self.seed)
        self._sent: dict[int, tuple[str, tuple[str, str]]] = {}
        """By id: the name of each message, which poison's begins with, and its keys."""
        self._operations: dict[int, Operation] = {}

    def run(self) -> Run:
        """Everything of it is in the folder."""
        self.folder.mkdir(parents=True)
        bank.make(self.folder / "bank.sqlite", ACCOUNTS)
        server = Server(self.engine, self.folder, free_port())
        server.start()
        try:
            with interlock.connect(f"{server.url}?timeout=20") as client:
                queue = client.queue("default")
                self._send(server.url)
                self._work(server.url, queue)
                self._check(queue)
        finally:
            server.kill()
        return self

    def _send(self, url: str) -> None:
        app, chance = poison_app.make(url), self._chance
        lethal = set(chance.sample(range(MESSAGES), POISON))
        for number in range(MESSAGES):
            source, target = chance.sample(bank.names(ACCOUNTS), 2)
            if number in lethal:
                name = f"poison-{number}"
                id = app.tasks["poison"].send(name, source, target).id
            else:
                name, amount = f"transfer-{number}", chance.randrange(1, 6_000)
                id = app.tasks["transfer"].send(name, source, target, amount).id
                self._operations[id] = Operation(name, "transfer", source, target, amount)
            self._sent[id] = name, (source, target)
        app.close()

    def _work(self, url: str, queue: Any) -> None:
        until = time.monotonic() + LIMIT_SECONDS
        worker = self._worker(url)
        next_kill, killed_at = time.monotonic() + self._chance.expovariate(1 / KILL_SECONDS), 0
        try:
            while queue.stats().unsettled and time.monotonic() < until:
                if worker.poll() is not None:
                    # Children that end before they were ever ready are given up.
                    worker = self._worker(url)
                is_time = self.kills and time.monotonic() >= next_kill
                if is_time and (begun := self._begun()) >= killed_at + KILL_BEGUN:
                    killed_at = begun
                    self._kill(worker.pid)
                    next_kill = time.monotonic() + self._chance.expovariate(1 / KILL_SECONDS)
                # The queue has nothing to wait for that would not change what is tried.
                time.sleep(0.05)
        finally:
            worker.send_signal(signal.SIGTERM)
            try:
                worker.wait(30)
            except subprocess.TimeoutExpired:
                for pid in [*descendants(worker.pid), worker.pid]:
                    os.kill(pid, signal.SIGKILL)
                worker.wait()

    def _worker(self, url: str) -> subprocess.Popen[bytes]:
        command = [
            sys.executable, "-m", "interlock", "worker", "tests.engine.faults.poison_app:app",
            "--url", url, "--pool", self.pool, "--processes", "2", "--lease", str(LEASE),
            "--concurrency", str(self._chance.choice([1, 2, 4, 8])), "--drain-timeout", "5",
        ]  # fmt: skip
        settings = {"POISON_FOLDER": os.fspath(self.folder), "POISON_HOW": self.pool}
        with (self.folder / "worker.out").open("ab") as output:
            return subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, **settings}, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, preexec_fn=die_with_parent,
            )  # fmt: skip

    def _begun(self) -> int:
        """Number of handlers that have begun."""
        return sum(len(some) for some in begins(self.folder).values())

    def _kill(self, supervisor: int) -> None:
        """Kill a worker, or a process of its pool."""
        found = children(supervisor)
        if self.pool == "process" and self._chance.random() < 0.5:
            found = [pid for worker in found for pid in children(worker)]
        if found:
            os.kill(self._chance.choice(found), signal.SIGKILL)
            self.counts["killed from outside"] += 1

    # -- Invariants ---------------------------------------------------------------------------

    def _check(self, queue: Any) -> None:
        stats, letters = queue.stats(), list(queue.dead_letters())
        begun = begins(self.folder)
        self.counts["runs"] = 1
        self.counts["messages"] = len(self._sent)
        self.counts["poison messages dead"] = len(letters)
        self.counts["ended by poison"] = sum(
            len(some) for id, some in begun.items() if self._is_poison(id)
        )
        found = [*self._settled(stats, letters), *self._charged(begun), *self._order(begun)]
        self.violations += [*found, *self._money()]

    def _is_poison(self, id: int) -> bool:
        return self._sent[id][0].startswith("poison")

    def _settled(self, stats: Any, letters: list[Any]) -> Iterator[str]:
        if stats.unsettled or stats.held:
            yield f"{stats.unsettled} messages are not settled, {stats.held} of them held"
        wanted = {id for id in self._sent if self._is_poison(id)}
        if {letter.id for letter in letters} != wanted:
            yield f"dead letters: {sorted(letters, key=lambda one: one.id)}, not {sorted(wanted)}"
        for letter in letters:
            if letter.attempts != poison_app.ATTEMPTS:
                yield f"{self._sent[letter.id][0]} is dead after {letter.attempts} attempts"

    def _charged(self, begun: dict[int, list[Handling]]) -> Iterator[str]:
        kills, charges = self.counts["killed from outside"], 0
        for id, some in begun.items():
            name = self._sent[id][0]
            if not self._is_poison(id):
                charges += some[-1].attempt - 1
            elif not poison_app.ATTEMPTS <= len(some) <= poison_app.ATTEMPTS + 1 + kills:
                yield f"{name} has {poison_app.ATTEMPTS} attempts, and began {len(some)} times"
        self.counts["innocent messages charged"] = charges
        self.counts["innocent messages begun again"] = sum(
            len(some) > 1 for id, some in begun.items() if not self._is_poison(id)
        )
        if charges > kills:
            yield f"innocent messages were charged {charges} times; {kills} kills from outside"

    def _order(self, begun: dict[int, list[Handling]]) -> Iterator[str]:
        for id, (name, keys) in self._sent.items():
            for other, (later, its) in self._sent.items():
                if other <= id or not set(keys) & set(its) or other not in begun:
                    continue
                if id not in begun:
                    yield f"{later} began, and {name} before it never did"
                elif begun[other][0].began < begun[id][-1].ended:
                    yield f"{later} began before {name} had ended"
        for some in begun.values():
            for one, next_one in itertools.pairwise(some):
                if next_one.began < one.ended:
                    yield f"{one.name} began twice at a time"

    def _money(self) -> Iterator[str]:
        book = bank.Bank(self.folder / "bank.sqlite")
        state, applied = book.state(), book.applied()
        book.close()
        wanted = bank.first_state(ACCOUNTS)
        for id in sorted(self._operations):
            what = self._operations[id]
            wanted.update(what.effect(wanted))
            if applied.get(what.name) != id:
                yield f"{what.name} was never done"
        if state != wanted:
            yield f"accounts are {state}; in order they are {wanted}"


@dataclass
class Handling:
    """One beginning of a handler."""

    name: str
    attempt: int
    began: int
    ended: int
    """ns; of one that never ended the last line of its process, which died in it."""


def begins(folder: Path) -> dict[int, list[Handling]]:
    """By message, in the order of time."""
    found: dict[int, list[Handling]] = {}
    for who, lines in read(folder).items():
        if not who.startswith("handler-"):
            continue
        open_: dict[int, Handling] = {}
        for line in lines:
            if line.what == "begin":
                open_[line["id"]] = handling = _handling(line, lines[-1])
                found.setdefault(line["id"], []).append(handling)
            elif line.what == "end":
                open_[line["id"]].ended = line.at
    for some in found.values():
        some.sort(key=lambda one: one.began)
    return found


def _handling(line: Line, last: Line) -> Handling:
    return Handling(line["name"], line["attempt"], line.at, last.at)


def children(pid: int) -> list[int]:
    """The processes that a process has started and that run."""
    found: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    except OSError:
        # It, or that thread, has ended.
        pass
    return found


def descendants(pid: int) -> list[int]:
    below = children(pid)
    return [*below, *(other for one in below for other in descendants(one))]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.engine.faults.poison")
    parser.add_argument("--runs", type=int, default=10_000, help="of each engine and pool")
    parser.add_argument("--engine", choices=[*ENGINES, "all"], default="all")
    parser.add_argument("--pool", choices=[*POOLS, "all", "one"], default="all")
    parser.add_argument("--seed", type=int, help="of the first run; the next one has the next")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no run after that")
    parser.add_argument("--folder", type=Path, help="where the folders of the runs are")
    parser.add_argument("--write", action="store_true", help=f"write into {SUMMARY.name}")
    given = parser.parse_args()
    seed = seeds.seed() if given.seed is None else given.seed
    engines = ENGINES if given.engine == "all" else (given.engine,)
    pools = POOLS if given.pool == "all" else (given.pool,)
    place = Path(tempfile.mkdtemp(prefix="poison-", dir=given.folder))
    print(f"seed {seed}, folders in {place}", flush=True)
    started, failed = time.monotonic(), 0
    counts = {f"{engine} {pool}": Counter[str]() for engine in engines for pool in pools}

    def one(task: tuple[int, str, str]) -> Run | None:
        number, engine, pool = task
        if time.monotonic() - started > given.minutes * 60:
            return None
        chosen = POOLS[number % len(POOLS)] if pool == "one" else pool
        folder = place / f"{engine}-{chosen}-{number}"
        return Run(engine, chosen, number, folder, kills=number // len(POOLS) % 2 == 1).run()

    tasks = [
        (seed + number, engine, pool)
        for number in range(given.runs)
        for engine in engines
        for pool in pools
    ]
    with ThreadPoolExecutor(given.jobs) as pool:
        for (number, engine, kind), run in zip(tasks, pool.map(one, tasks), strict=True):
            if run is None:
                break
            counts[f"{engine} {kind}"].update(run.counts)
            if run.violations:
                failed += 1
                counts[f"{engine} {kind}"]["runs with a violation"] += 1
                found = "\n".join(f"    {text}" for text in run.violations[:8])
                again = f"--engine {engine} --pool {run.pool} --seed {number} --runs 1"
                print(f"{again}\n{found}\n    kept in {run.folder}", flush=True)
            else:
                shutil.rmtree(run.folder)
    for name, figures in counts.items():
        print(name, dict(figures), flush=True)
    if not failed:
        shutil.rmtree(place, ignore_errors=True)
    if given.write and not failed:
        minutes = (time.monotonic() - started) / 60
        before = SUMMARY.read_text(encoding="utf-8")
        SUMMARY.write_text(poisoned(before, seed, minutes, counts), encoding="utf-8")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
