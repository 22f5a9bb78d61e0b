"""An agent, a proxy and a server, with publishers that continue whatever happens to them.

Each message is a publisher's number and its own. Acknowledged messages must be in the server's
files once and in order; what was not may be there once, or not at all, and is counted."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from interlock.hub import introspection
from interlock.hub.client import Client
from tests.hub.servers import HubProcess
from tests.hub.stores.proxy import Proxy


@dataclass
class Tally:
    """The fate of all messages."""

    acknowledged: int = 0
    unacknowledged: int = 0
    arrived: int = 0
    """Unacknowledged messages that are in the files."""

    runs: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        self.acknowledged += other.acknowledged
        self.unacknowledged += other.unacknowledged
        self.arrived += other.arrived
        for mine, theirs in ((self.runs, other.runs), (self.faults, other.faults)):
            for name, count in theirs.items():
                mine[name] = mine.get(name, 0) + count


class Publisher(threading.Thread):
    """Publishes to a topic of its own and to one of all, several at a time."""

    def __init__(self, address: str, name: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.number = name
        self.acknowledged: dict[str, list[int]] = {}
        self.unknown: dict[str, list[int]] = {}
        self.moved = threading.Event()
        self._address = address
        self._random = random.Random(seed)
        self._ends = threading.Event()

    def run(self) -> None:
        next_ = 0
        while not self._ends.is_set():
            with suppress(OSError), Client(self._address, timeout=100) as client:
                while not self._ends.is_set():
                    count = self._random.choice((1, 3, 50))
                    topics = [
                        self._random.choice((f"own{self.number}", "all")) for _ in range(count)
                    ]
                    numbers = range(next_, next_ + count)
                    next_ += count
                    told = self.unknown
                    try:
                        replies = client.pipeline(
                            [
                                ("PUBLISH", topic, f"{self.number} {number}")
                                for topic, number in zip(topics, numbers, strict=True)
                            ]
                        )
                        assert all(isinstance(reply, int) for reply in replies), replies
                        told = self.acknowledged
                    finally:
                        for topic, number in zip(topics, numbers, strict=True):
                            told.setdefault(topic, []).append(number)
                    self.moved.set()
            # The agent is not there: its next life is.
            self._ends.wait(0.01)

    def end(self) -> None:
        self._ends.set()


class Subscriber(threading.Thread):
    """Sees what the server fans out: within a life of it in order, and nothing twice."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.seen = 0
        self.wrong: list[str] = []
        self._address = address
        self._ends = threading.Event()

    def run(self) -> None:
        while not self._ends.is_set():
            with suppress(OSError), Client(self._address, timeout=100) as client:
                client.psubscribe("*")
                last: dict[tuple[bytes, bytes], int] = {}
                while not self._ends.is_set():
                    message = client.message(0.2)
                    if message is None:
                        continue
                    name, number = message.payload.split()
                    key = (message.topic, name)
                    if int(number) <= last.get(key, -1):
                        self.wrong.append(f"{key}: {number!r} behind {last[key]}")
                    last[key] = int(number)
                    self.seen += 1
            self._ends.wait(0.01)

    def end(self) -> None:
        self._ends.set()
        self.join()


class Tail:
    """`interlock store tail` of the server's files, stopped for a while again and again."""

    def __init__(self, out: Path, folder: Path) -> None:
        out.mkdir()
        self._lines = folder / "tail.json"
        command = [*INTERLOCK, "store", "tail", str(out), "--lines", "1000000", "--json"]
        with self._lines.open("wb") as lines:
            self.process = subprocess.Popen(command, stdout=lines, stderr=subprocess.PIPE)

    def stall(self, seconds: float) -> None:
        """Stop it until then, while everything else continues."""
        self.process.send_signal(signal.SIGSTOP)
        threading.Timer(seconds, self.process.send_signal, (signal.SIGCONT,)).start()

    def read(self, count: int) -> dict[str, list[str]]:
        """End it once it has printed this number of messages; return them by topic."""
        until = time.monotonic() + PATIENCE
        while self._lines.read_bytes().count(b"\n") < count:
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < until, f"it has not printed {count} messages"
            time.sleep(0.05)
        self.process.send_signal(signal.SIGINT)
        told = self.process.communicate()[1].decode()
        assert self.process.returncode == 130, told
        found: dict[str, list[str]] = {}
        for line in self._lines.read_text().splitlines():
            message = json.loads(line)
            found.setdefault(message["topic"], []).append(message["payload"])
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


class Chain:
    """The whole of it, in a folder."""

    def __init__(self, folder: Path, seed: int) -> None:
        folder.mkdir()
        self.random = random.Random(seed)
        self.ack = self.random.choice(("disk", "upstream"))
        self.out = folder / "out"
        self.tally = Tally()
        self.tail = Tail(self.out, folder)
        self._folder = folder
        self._sockets = {name: f"{folder}/{name}" for name in ("agent", "server")}
        self.proxy = Proxy(self._sockets["server"], seed)
        written = self.random.choice(("none", "disk"))
        self._write(
            "server",
            f'path = "{self.out}/[topic].log"\nrotate = "64KB"\nack = "{written}"',
        )
        self._write(
            "agent",
            f'kind = "network"\nupstream = "{self.proxy.address}"\ntimeout = 1.0\n'
            f'spool = "{folder}/spool"\nack = "{self.ack}"',
        )
        self.hubs = {name: self._begin(name) for name in ("server", "agent")}
        self.publishers = [
            Publisher(f"unix:{self._sockets['agent']}", number, self.random.randrange(2**32))
            for number in range(3)
        ]
        self.subscriber = Subscriber(f"unix:{self._sockets['server']}")
        for thread in (self.subscriber, *self.publishers):
            thread.start()

    def _write(self, name: str, store: str) -> None:
        (self._folder / f"{name}.toml").write_text(
            f'port = 0\nunix = "{self._sockets[name]}"\nworkers = 2\n'
            f'[log]\nfile = "{self._folder}/{name}.log"\n[[store]]\nname = "kept"\n{store}\n'
        )

    def _begin(self, name: str) -> HubProcess:
        return HubProcess("--config", f"{self._folder}/{name}.toml")

    def run(self, count: int) -> Tally:
        """Number of faults injected while publishers continue; then all is compared."""
        try:
            for _ in range(count):
                self._wait_for_progress()
                time.sleep(self.random.random() * 0.1)
                name = self.random.choice(sorted(self._deeds()))
                self._deeds()[name]()
                self.tally.runs[name] = self.tally.runs.get(name, 0) + 1
            self._wait_for_progress()
            self._come_to_rest()
            self._compare()
        finally:
            self.close()
        return self.tally

    def _deeds(self) -> dict[str, Callable[[], None]]:
        return {
            "kill -9 of the agent": lambda: self._kill("agent"),
            "kill -9 of the server": lambda: self._kill("server"),
            "kill -9 of both": lambda: self._kill("agent", "server"),
            "SIGSTOP of the agent": lambda: self._stop("agent"),
            "SIGSTOP of the server": lambda: self._stop("server"),
            "all connections cut": self.proxy.cut,
            "SIGHUP of both": lambda: self._signal(signal.SIGHUP),
            "SIGUSR1 of both": lambda: self._signal(signal.SIGUSR1),
            "SIGSTOP of the tail": lambda: self.tail.stall(self.random.choice((0.05, 0.5, 2))),
        }

    def _kill(self, *names: str) -> None:
        for name in names:
            self.hubs[name].process.kill()
        for name in names:
            self.hubs[name].process.communicate()
        for name in self.random.sample(names, len(names)):
            self.hubs[name] = self._begin(name)

    def _stop(self, name: str) -> None:
        process = self.hubs[name].process
        process.send_signal(signal.SIGSTOP)
        # Longer than the agent waits for a server, at times.
        time.sleep(self.random.choice((0.05, 0.2, 1.5)) * self.random.random())
        process.send_signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for hub in self.hubs.values():
            hub.process.send_signal(number)

    def _wait_for_progress(self) -> None:
        for publisher in self.publishers:
            publisher.moved.clear()
        # One is enough: another may wait behind what is held.
        until = time.monotonic() + PATIENCE
        while not any(publisher.moved.wait(0.01) for publisher in self.publishers):
            assert time.monotonic() < until, f"no message was acknowledged for {PATIENCE} s"

    def _come_to_rest(self) -> None:
        self.proxy.calm()
        for publisher in self.publishers:
            publisher.end()
        for publisher in self.publishers:
            publisher.join(PATIENCE)
            assert not publisher.is_alive(), "a publish was never answered"
        until = time.monotonic() + PATIENCE
        with Client(f"unix:{self._sockets['agent']}", timeout=60) as client:
            while True:
                figures = introspection.stores(introspection.info(client))["kept"]
                if figures["spooled"] == 0 and figures["in_flight"] == 0:
                    break
                assert time.monotonic() < until, f"it is not delivered: {figures}"
                time.sleep(0.01)
        for name in ("agent", "server"):
            code, _, told = self.hubs[name].end()
            assert code == 0, told
        self.subscriber.end()

    def _compare(self) -> None:
        assert not self.subscriber.wrong, self.subscriber.wrong[:5]
        assert self.subscriber.seen > 0
        stored = [path.read_text() for path in self.out.rglob("*.log")]
        printed = self.tail.read(sum(text.count("\n") for text in stored))
        for topic in ("all", *(f"own{one.number}" for one in self.publishers)):
            paths = [*sorted(self.out.glob(f"{topic}-*.log")), self.out / f"{topic}.log"]
            text = "".join(path.read_text() for path in paths if path.exists())
            assert printed.get(topic, []) == text.splitlines(), f"what tail printed of {topic}"
            there: dict[int, list[int]] = {}
            for line in text.splitlines():
                name, number = line.split()
                there.setdefault(int(name), []).append(int(number))
            for publisher in self.publishers:
                found = there.get(publisher.number, [])
                acknowledged = publisher.acknowledged.get(topic, [])
                unknown = publisher.unknown.get(topic, [])
                place = f"{topic} of {publisher.number}, in {self._folder}"
                ahead = [(a, b) for a, b in pairwise(found) if a >= b]
                assert not ahead, f"{place}: not in order, or twice: {ahead[:5]}"
                lost = set(acknowledged) - set(found)
                assert not lost, f"{place}: {len(lost)} lost, such as {sorted(lost)[:5]}"
                assert set(found) <= {*acknowledged, *unknown}, place
                self.tally.acknowledged += len(acknowledged)
                self.tally.unacknowledged += len(unknown)
                self.tally.arrived += len(found) - len(acknowledged)
        self.tally.faults = dict(self.proxy.faults)

    def close(self) -> None:
        for hub in self.hubs.values():
            hub.process.kill()
            hub.process.communicate()
        for publisher in self.publishers:
            publisher.end()
        if self.subscriber.is_alive():
            self.subscriber.end()
        for publisher in self.publishers:
            publisher.join()
        self.tail.close()
        self.proxy.close()


PATIENCE = 60
INTERLOCK = (sys.executable, "-m", "interlock")
