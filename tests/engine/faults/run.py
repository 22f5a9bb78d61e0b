"""One run: a server, producers and workers, kills and stops by a seed, and what must hold then."""

from __future__ import annotations

import heapq
import os
import random
import signal
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.engine.faults import bank, checks
from tests.engine.faults.checks import Violation
from tests.engine.faults.job import Job
from tests.engine.faults.lines import read
from tests.engine.faults.roles import ROLES
from tests.engine.faults.servers import Server, die_with_parent
from tests.engine.faults.story import Story
from tests.engine.faults.woken import woken
from tests.hub.servers import free_port

WORKERS = 3
PRODUCERS = 2
CHAOS_SECONDS = 2.0
EACH_SECONDS = 0.1
"""Between two faults, in the middle."""
DRAIN_SECONDS = 50.0


@dataclass
class Result:
    """The outcome of a run."""

    seed: int
    violations: list[Violation]
    figures: Counter[str] = field(default_factory=Counter)


class Actor:
    """A process with a role, which is started again after each kill."""

    def __init__(self, job: Job, role: str, number: int) -> None:
        self.job = job
        self.role = role
        self.who = f"{role}-{number}"
        self.lives = 0
        self.pid = 0
        """0: it is dead, or has done all it had to."""
        self.code: int | None = None

    def start(self) -> None:
        self.lives += 1
        pid = os.fork()
        if pid:
            self.pid = pid
            return
        try:
            die_with_parent()
            errors = os.open(
                self.job.folder / f"{self.who}.err", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644
            )
            os.dup2(errors, 2)
            ROLES[self.role](self.job, self.who, self.lives)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
            os._exit(1)
        os._exit(0)

    def ended(self) -> bool:
        """It has ended by itself."""
        if self.pid:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid, self.code = 0, os.waitstatus_to_exitcode(status)
        return not self.pid

    def kill(self) -> None:
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


def run(engine: str, seed: int, folder: Path, mutant: str = "") -> Result:
    """Everything of it is in the folder, and stays there."""
    chance = random.Random(seed)
    answered, bell = os.pipe()
    server = Server(engine, folder, free_port(), keeps=mutant != "forgetful")
    job = Job(
        url=server.url,
        folder=folder,
        seed=seed,
        lease=chance.choice([0.6, 1.0]),
        timeout=chance.choice([1.0, 5.0, 5.0]),
        maxsize=chance.choice([0, 0, 12]),
        messages=chance.randrange(40, 100),
        bell=bell,
        mutant=mutant,
    )
    bank.make(job.bank)
    actors = [Actor(job, "worker", number) for number in range(WORKERS)]
    actors += [Actor(job, "producer", number) for number in range(PRODUCERS)]
    chaos = Chaos(chance, job, server, actors)
    violations: list[Violation] = []
    try:
        server.start()
        for actor in actors:
            actor.start()
        violations += under_way(answered, server)
        chaos.rage()
        violations += drain(job, server, actors)
    finally:
        for actor in actors:
            actor.kill()
        server.kill()
        os.close(answered)
        os.close(bell)
    story = Story(read(folder))
    book = bank.Bank(job.bank)
    state, applied = book.state(), book.applied()
    book.close()
    violations += checks.all_of(story, job.lease, state, applied)
    return Result(seed, violations, chaos.counts + figures(story))


def under_way(answered: int, server: Server) -> list[Violation]:
    """Until the first put is answered: what is killed before has done nothing."""
    in_time = woken(time.monotonic() + DRAIN_SECONDS, server.pid, pipe=answered)
    if not in_time or server.ended() is not None:
        return [Violation("server", f"it did not start: {server.said()}")]
    return []


class Chaos:
    """Kills and stops, each undone later, as a seed says."""

    def __init__(
        self, chance: random.Random, job: Job, server: Server, actors: list[Actor]
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._chance = chance
        self._job = job
        self._server = server
        self._actors = actors
        self._undo: list[tuple[float, int, Actor | Server, str]] = []
        self._busy: set[int] = set()

    def rage(self) -> None:
        """For the time that it has; then everything runs again."""
        until = time.monotonic() + CHAOS_SECONDS
        following = time.monotonic()
        while (now := time.monotonic()) < until:
            while self._undo and self._undo[0][0] <= now:
                self._mend()
            if now >= following:
                self._break()
                following = now + self._chance.expovariate(1 / EACH_SECONDS)
            soonest = min(following, until, *(one[0] for one in self._undo[:1]))
            # The length of a fault, and the pause to the next one: not a wait for anything.
            time.sleep(max(soonest - time.monotonic(), 0))
        while self._undo:
            self._mend()

    def _break(self) -> None:
        chance = self._chance
        victim: Actor | Server
        draw = chance.random()
        workers, producers = self._actors[:WORKERS], self._actors[WORKERS:]
        if draw < 0.55:
            victim = chance.choice(workers)
        elif draw < 0.7:
            victim = chance.choice(producers)
        else:
            victim = self._server
        kill, long = chance.random() < 0.5, chance.random() < 0.4
        length = chance.uniform(0, 0.4)
        if not kill and long:
            # Beyond the lease, and beyond what some clients wait for.
            length = self._job.lease * chance.uniform(1.0, 1.5)
        if id(victim) in self._busy:
            return
        if isinstance(victim, Actor) and victim.ended():
            return
        name = victim.role if isinstance(victim, Actor) else "server"
        if kill:
            victim.kill()
        else:
            os.kill(victim.pid, signal.SIGSTOP)
        what = "kill" if kill else "stop"
        self.counts[f"{what} {name}"] += 1
        if not kill and long:
            self.counts[f"beyond the lease {name}"] += 1
        self._busy.add(id(victim))
        heapq.heappush(self._undo, (time.monotonic() + length, id(victim), victim, what))

    def _mend(self) -> None:
        _, _, victim, what = heapq.heappop(self._undo)
        self._busy.remove(id(victim))
        if what == "kill":
            victim.start()
        else:
            os.kill(victim.pid, signal.SIGCONT)


def drain(job: Job, server: Server, actors: list[Actor]) -> list[Violation]:
    """Producers put what they have, then the queue is sealed, and workers end when it is empty."""
    until = time.monotonic() + DRAIN_SECONDS
    found = _wait(actors[WORKERS:], server, until)
    # It is to see the end, however long the server takes.
    sealer = Actor(replace(job, timeout=DRAIN_SECONDS), "sealer", 0)
    sealer.start()
    actors.append(sealer)
    found += _wait([sealer], server, until)
    return found or _wait(actors[:WORKERS], server, until)


def _wait(actors: list[Actor], server: Server, until: float) -> list[Violation]:
    found: list[Violation] = []
    for actor in actors:
        while not actor.ended():
            if server.ended() is not None:
                text = f"the server ended with {server.ended()}: {server.said()}"
                return [*found, Violation("server", text)]
            if not woken(until, actor.pid, server.pid):
                return [*found, Violation("stuck", f"{actor.who} does not end")]
        if actor.code:
            errors = (actor.job.folder / f"{actor.who}.err").read_text()
            found.append(Violation("broken", f"{actor.who}: {errors[-3000:]}"))
    return found


def figures(story: Story) -> Counter[str]:
    counts: Counter[str] = Counter()
    counts["puts"] = len(story.puts)
    counts["puts answered"] = sum(one.answered is not None for one in story.puts.values())
    counts["messages handled"] = len(story.messages)
    counts["grants"] = len(story.grants)
    counts["messages granted more than once"] = sum(
        len(one.grants) > 1 for one in story.messages.values()
    )
    for grant in story.grants:
        for one in grant.settlings:
            counts[f"settled {one.said}"] += 1
    return counts
