"""A storm: producers, workers with their relay, the engine and the database are killed or frozen
while they work, and the database says afterwards what was sent, in which order, and what was done.

The processes are forked from a parent that has imported everything, so that thousands of them can
be killed in minutes.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from interlock.cli import main
from tests.hub.servers import hub_process, redis_server

LEASE = 1.0
KEYS = 16
PATIENCE = 150.0
"""Seconds without an effect after which the storm fails."""
BACKLOG = 200
"""Rows after which producers pause."""

FAULTS = {
    "lost": "select call, k from sent except select call, k from effect",
    "handled without a send": "select call, k from effect except select call, k from sent",
    "handled twice": "select call, k from effect group by call, k having count(*) > 1",
    "out of order": """
        select * from (
            select s.call, s.k, s.n, e.at,
                lag(e.at) over (partition by s.k order by s.n) as before
            from sent s join effect e on e.call = s.call and e.k = s.k where s.ordered
        ) x where before > at""",
}

MIX = os.environ.get("INTERLOCK_OUTBOX_MIX", "")
"""Weights and probabilities that differ from the usual ones: ``relay=40,serializable=1``."""


def mixed(usual: dict[str, float]) -> dict[str, float]:
    """Return weights or probabilities, changed by ``MIX``."""
    given = dict(part.split("=") for part in MIX.split(",") if part)
    return {name: float(given.get(name, value)) for name, value in usual.items()}


_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    ["__main__", "tests.outbox.storms.bank", "interlock.cli.worker", "interlock.worker"]
)


def run(role: str, program: str, seed: int, environment: dict[str, str], log: str) -> None:
    """Be a producer or a worker of a program, until killed."""
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in (1, 2):
        os.dup2(output, number)
    random.seed(seed)
    if role == "worker":
        main(["worker", f"{program}:app", "--concurrency", "4", "--lease", str(LEASE)])
    else:
        importlib.import_module(program).produce(random.Random(seed))


def hub(folder: Path, port: int) -> AbstractContextManager[Any]:
    # Without a journal: it forgets everything when it is killed.
    return hub_process("--port", str(port))


def memory_redis(folder: Path, port: int) -> AbstractContextManager[Any]:
    return redis_server(folder, wanted=port)


Engine = Callable[[Path, int], AbstractContextManager[Any]]


class Storm:
    """The processes, and the database that they share.

    A subclass says what is special to a database: how it is asked, killed and tended.
    """

    program = ""
    """The module with the app, and a function `produce`."""
    rows = ""
    """The table of rows."""

    def __init__(
        self,
        folder: Path,
        chance: random.Random,
        engine: Engine,
        environment: dict[str, str],
    ) -> None:
        self.folder, self.chance = folder, chance
        self._engine, self._port = engine, quiet_port(chance)
        scheme = "redis" if engine is memory_redis else "interlock"
        self.url = f"{scheme}://127.0.0.1:{self._port}"
        self._environment = {**environment, "INTERLOCK_URL": self.url}
        self.kinds: dict[str, tuple[float, Callable[[], None]]] = {
            "producer": (70, lambda: self.replace("producer")),
            "worker": (10, lambda: self.replace("worker")),
            "relay": (8, self.replace_relay),
            "engine": (3, self.restart_engine),
            "freeze": (3, self.freeze),
        }
        """The usual weight of each kind of failure."""
        self.failures: Counter[str] = Counter()
        self.processes: list[tuple[str, BaseProcess]] = []
        self._frozen: list[tuple[float, BaseProcess]] = []
        self._running = contextlib.ExitStack()
        self.start_engine()

    # -- Questions to the database ----------------------------------------------------------------

    def ask(self, query: str) -> list[Any]:
        """Return the rows of a query."""
        raise NotImplementedError

    def relay(self) -> int | None:
        """Return the process id of the relay."""
        return None

    def tend(self, last: bool = False) -> None:
        """Do what becomes due while the storm runs; the rest of it after the last kill."""
        now = time.monotonic()
        for until, process in self._frozen[:]:
            if last or now >= until:
                os.kill(process.ident or 0, signal.SIGCONT)
                self._frozen.remove((until, process))

    def why(self) -> str:
        """Return what the rows that are left wait for, as far as the database knows."""
        rows = self.ask(f"select id, attempts, state, error from {self.rows} order by id limit 20")
        return "\n".join(map(str, [*self.ask(f"select * from {self.rows}_meta"), *rows]))

    def summary(self) -> str:
        """Return in a line what the oldest rows wait for."""
        return ""

    def one(self, query: str) -> int:
        ((found,),) = self.ask(query)
        return int(found)

    # -- Failures ---------------------------------------------------------------------------------

    def spawn(self, role: str) -> None:
        log, seed = str(self.folder / "log"), self.chance.getrandbits(32)
        values = (role, self.program, seed, self._environment, log)
        made = _context.Process(target=run, args=values, daemon=True)
        made.start()
        self.processes.append((role, made))

    def kill(self, process: BaseProcess) -> str:
        at = next(at for at, (_, each) in enumerate(self.processes) if each is process)
        role, _ = self.processes.pop(at)
        self._frozen = [each for each in self._frozen if each[1] is not process]
        assert process.is_alive(), f"a {role} ended by itself; see {self.folder / 'log'}"
        process.kill()
        process.join()
        process.close()
        return role

    def replace(self, role: str) -> None:
        self.failures[role] += 1
        found = [process for each, process in self.processes if each == role]
        self.spawn(self.kill(self.chance.choice(found)))

    def replace_relay(self) -> None:
        relay = self.relay()
        for _, process in self.processes:
            if process.pid == relay:
                self.failures["relay"] += 1
                self.spawn(self.kill(process))
                return
        self.replace("worker")

    def freeze(self) -> None:
        frozen = [process for _, process in self._frozen]
        found = [each for role, each in self.processes if role == "worker" and each not in frozen]
        if len(found) > 1:
            process = self.chance.choice(found)
            os.kill(process.ident or 0, signal.SIGSTOP)
            until = time.monotonic() + LEASE * self.chance.uniform(1.2, 2.5)
            self._frozen.append((until, process))
            self.failures["freeze"] += 1

    def start_engine(self) -> None:
        repeat(lambda: self._running.enter_context(self._engine(self.folder, self._port)))

    def restart_engine(self) -> None:
        self.failures["engine"] += 1
        self._running.close()
        time.sleep(self.chance.random() * 0.3)
        self.start_engine()

    # -- The storm --------------------------------------------------------------------------------

    def rage(self, kills: int, seconds: float = float("inf")) -> None:
        """Kill processes; until the number is reached, or the time has passed."""
        for role in ["producer"] * 4 + ["worker"] * 3:
            self.spawn(role)
        weights = mixed({name: weight for name, (weight, _) in self.kinds.items()})
        end = time.monotonic() + seconds
        while self.kills < kills and time.monotonic() < end:
            self.await_effects()
            # Not only one at a time.
            for name in self.chance.choices(
                list(weights), list(weights.values()), k=self.chance.randint(1, 24)
            ):
                self.kinds[name][1]()
                self.tend()
                time.sleep(self.chance.random() * 0.05)

    @property
    def kills(self) -> int:
        return sum(self.failures.values()) - self.failures["freeze"] - self.failures["flush"]

    def await_effects(self) -> None:
        """Return when something was done: a process killed at its start shows nothing."""
        done, until = self.one("select count(*) from effect"), time.monotonic() + PATIENCE
        while self.one("select count(*) from effect") == done:
            assert time.monotonic() < until, f"nothing happens any more\n{self.why()}"
            self.tend()
            time.sleep(0.01)

    def calm(self) -> None:
        """End the producers, and wait until all is handled."""
        for role, process in self.processes[:]:
            if role == "producer":
                self.kill(process)
        self.tend(last=True)
        begun, rows = time.monotonic(), self.one(f"select count(*) from {self.rows}")
        print(f"{rows} rows are left; {self.summary()}")
        left, until = -1, begun + PATIENCE
        while found := self.one(f"select count(*) from {self.rows}"):
            if found != left:
                left, until = found, time.monotonic() + PATIENCE
            assert time.monotonic() < until, f"{left} rows are left\n{self.why()}"
            time.sleep(0.05)
        print(f"they were handled within {time.monotonic() - begun:.1f} s")

    def audit(self) -> None:
        """Compare what was sent with what was done."""
        sent = self.one("select count(*) from sent")
        unordered = self.one("select count(*) from sent where not ordered")
        effects = self.one("select count(*) from effect")
        print(f"{self.kills} kills: {dict(self.failures)}")
        print(f"{sent} sent, {unordered} of them without a promised order; {effects} effects")
        faults = {name: self.ask(f"{query} limit 20") for name, query in FAULTS.items()}
        assert not any(faults.values()), faults
        assert sent > self.kills / 10

    def end(self) -> None:
        for _, process in self.processes:
            process.kill()
        for _, process in self.processes:
            process.join()
        self._running.close()


def repeat(start: Callable[[], object]) -> None:
    """Start a server; again if a client that tries to connect has its port."""
    for left in reversed(range(20)):
        try:
            start()
            return
        except AssertionError:
            if not left:
                raise
            time.sleep(0.2)


def quiet_port(chance: random.Random) -> int:
    """A free port that the system gives to no client: one would connect to itself."""
    while True:
        port = chance.randrange(20_000, 32_000)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
