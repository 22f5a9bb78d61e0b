"""Kills tellers, workers and the hub of bank.py at random, and audits the books at the end.

python storm.py [KILLS]         default 40, half a minute to a minute

BANK_URL names the database: an SQLite file, or a PostgreSQL. The hub has no journal, so it forgets
everything when it is killed.
"""

import collections
import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import bank

FOLDER = Path(__file__).parent
INTERLOCK = str(Path(sys.executable).with_name("interlock"))
PATIENCE = 120.0


class Storm:
    """A hub, two tellers and three workers, which are killed and started again."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.commands = {
            "hub": [INTERLOCK, "hub", "--port", str(self.port)],
            **{f"teller {n}": [sys.executable, str(FOLDER / "bank.py"), "teller"] for n in (1, 2)},
            # The calls of a killed worker are free after two seconds, instead of 30.
            **{
                f"worker {n}": [INTERLOCK, "worker", "bank:app", "--concurrency", "4", "--lease=2"]
                for n in (1, 2, 3)
            },
        }
        self.processes = {name: self.start(name) for name in self.commands}

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Starts a process; its log is of no interest."""
        url = f"interlock://127.0.0.1:{self.port}"
        return subprocess.Popen(
            self.commands[name],
            env={**os.environ, "INTERLOCK_URL": url, "PYTHONPATH": str(FOLDER)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill(self, name: str) -> None:
        """Ends a process at once, as kill -9 does."""
        self.processes[name].kill()
        self.processes[name].wait()


def main(kills: int) -> int:
    """Runs the storm; returns 0 if the books balance."""
    bank.create()
    begun, killed = time.monotonic(), collections.Counter[str]()
    with contextlib.closing(bank.connect()) as db, contextlib.ExitStack() as stack:
        storm = Storm()
        for name in storm.processes:
            stack.callback(storm.kill, name)
        print("   time  killed        sent   done  in the bank  waiting")

        def report(name: str) -> None:
            sent, done, total = bank.counts(db)
            print(
                f"{time.monotonic() - begun:5.1f} s  {name:10}{sent:8}{done:7}{total / 100:13,.2f}"
                f"{sent - done:9}  {'▇' * ((sent - done) // 100)}".rstrip(),
                flush=True,
            )

        for _ in range(kills):
            # Until something was handled, so that there is something to break.
            done, until = bank.counts(db)[1], time.monotonic() + PATIENCE
            time.sleep(random.uniform(0.2, 1))
            while bank.counts(db)[1] == done and time.monotonic() < until:
                time.sleep(0.02)
            name = random.choice([*storm.processes, "hub"])
            storm.kill(name)
            report(name)
            killed[name.split()[0]] += 1
            storm.processes[name] = storm.start(name)
        for name in ("teller 1", "teller 2"):
            storm.kill(name)
        until = time.monotonic() + PATIENCE
        while bank.waiting(db) and time.monotonic() < until:
            time.sleep(0.2)
        report("-")
        print("\nkilled: " + ", ".join(f"{n} × {role}" for role, n in sorted(killed.items())))
        code: int = bank.finish(db)
        return code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 40))
