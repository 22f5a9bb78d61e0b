"""A hub with everything at once for a long time: does it stay as it was?

    python -m tests.hub.faults.soak 3600 --write

Publishers send at a steady rate to subscribers of all kinds (RESP3, TLS, patterns, one that is
slow and would rather miss messages, one that never reads and is disconnected); strangers come and
go with wrong passwords, half frames and noise; the configuration is reloaded every second. Each
subscriber checks the order of each publisher and that nothing is missing except what was reported.
Each minute a line says what the process is made of; at the end the last quarter may not be above
the first."""

from __future__ import annotations

import argparse
import json
import random
import signal
import socket
import ssl
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from interlock.hub import passwords
from interlock.hub.client import Client
from interlock.hub.resp import command
from tests.hub.faults.measures import MIB, Measured
from tests.hub.protocol.certificates import Authority
from tests.hub.servers import HubProcess, hub_process

PUBLISHERS = 3
BATCH = 10
PAUSE = 0.05
SUMMARY = Path(__file__).parents[1] / "SOAK.md"


class Soak:
    """One run."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.stop = threading.Event()
        self.faults: list[str] = []
        self.counts: dict[str, int] = defaultdict(int)
        self.config = folder / "hub.toml"
        self.authority = Authority(folder)
        self.pair = self.authority.sign("server")
        self.hash = passwords.hashed("secret")
        self.configure()

    def configure(self, *, bad: bool = False) -> None:
        text = (
            f"maxclients = {'0' if bad else self.chance.randrange(200, 2000)}\n"
            f"login_timeout = 20\n"
            f'[tls]\ncert = "{self.pair.cert}"\nkey = "{self.pair.key}"\nport = 0\n'
            f'[log]\nfile = "{self.folder}/log"\nlevel = "error"\n'
            f"[limits.pubsub]\nsoft = 200000\nsoft_seconds = 3600\nhard = 400000\n"
            f'[[user]]\nname = "soak"\npasswords = ["{self.hash}"]\n'
            f'topics = ["t*"]\ncommands = ["@all"]\n'
        )
        # Whole or not at all: half of it may be a good file without users.
        fresh = self.config.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.config)

    def run(self, seconds: float) -> list[dict[str, float]]:
        flags = ("--config", str(self.config), "--port", "0", "--workers", "2")
        with hub_process(*flags) as process:
            self.plain = f"redis://soak:secret@{process.addresses[0]}"
            tls = process.addresses[1].removeprefix("tls:")
            self.tls_port = int(tls.rpartition(":")[2])
            self.port = int(process.addresses[0].rpartition(":")[2])
            self.tls = f"rediss://soak:secret@{tls}?ca={self.authority.cert}"
            bodies: list[Callable[[], None]] = [
                lambda: self.subscribe(self.plain, "topic"),
                lambda: self.subscribe(self.plain, "topic"),
                lambda: self.subscribe(self.tls, "topic"),
                lambda: self.subscribe(self.tls, "pattern"),
                lambda: self.subscribe(self.plain, "pattern"),
                lambda: self.subscribe(self.plain, "slow"),
                self.never_read,
                self.strangers,
                lambda: self.reload(process),
            ]
            threads = [threading.Thread(target=self.kept, args=(body,)) for body in bodies]
            self.ready = threading.Barrier(7)
            for thread in threads:
                thread.start()
            self.ready.wait(60)
            publishing = [
                threading.Thread(target=self.kept, args=(lambda n=number: self.publish(n),))
                for number in range(PUBLISHERS)
            ]
            for thread in publishing:
                thread.start()
            lines = self.watch(process, seconds)
            self.stop.set()
            for thread in publishing + threads:
                thread.join()
            code, _, errors = process.end(signal.SIGTERM)
            if code or "Traceback" in errors:
                self.faults.append(f"ended with {code}: {errors[-500:]}")
        return lines

    def kept(self, body: Callable[[], None]) -> None:
        try:
            body()
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[1]
            self.faults.append(f"{type(error).__name__} in {place.name}: {error}")
            self.stop.set()

    def watch(self, process: HubProcess, seconds: float) -> list[dict[str, float]]:
        hub = Measured.__new__(Measured)
        hub.hub, hub.pid = process, process.process.pid
        begin = time.monotonic()
        lines: list[dict[str, float]] = []
        with Client(self.plain, timeout=30) as client:
            hub.control = client
            while not self.stop.wait(min(60.0, seconds / 20)):
                figures = hub.figures()
                line: dict[str, float] = {
                    "seconds": round(time.monotonic() - begin),
                    "resident MB": round(hub.resident() / MIB, 1),
                    "descriptors": hub.descriptors(),
                    "threads": hub.threads(),
                }
                shown = ("connected_clients", "messages_published", "messages_delivered",
                         "messages_dropped", "total_connections_received",
                         "client_output_buffer_limit_disconnections", "login_failures",
                         "tls_errors", "permission_disconnections", "login_timeouts",
                         "configurations_applied")  # fmt: skip
                line |= {name: figures[name] for name in shown}
                lines.append(line)
                print(json.dumps(line), flush=True)
                if line["seconds"] >= seconds:
                    break
        return lines

    def publish(self, number: int) -> None:
        count = 0
        with Client(self.plain, timeout=30) as client:
            while not self.stop.wait(PAUSE):
                calls = [
                    ("PUBLISH", f"t{number}", f"{number} {count + n} ".encode() + b"x" * 200)
                    for n in range(BATCH)
                ]
                replies = client.pipeline(calls)
                assert all(isinstance(reply, int) and reply >= 6 for reply in replies), replies
                count += BATCH
        self.counts["published"] += count

    def subscribe(self, url: str, kind: str) -> None:
        expected = [0] * PUBLISHERS
        gap = 0
        chance = random.Random(self.chance.random())
        with Client(url, timeout=30) as client:
            if kind == "slow":
                client.call("CLIENT", "SLOW", "drop")
            topics = [f"t{number}" for number in range(PUBLISHERS)]
            if kind == "pattern":
                client.psubscribe("t*")
            else:
                client.subscribe(*topics)
            self.ready.wait(60)
            while not self.stop.is_set():
                missed = client.missed
                found = client.message(0.5)
                if found is not None:
                    number, count = (int(word) for word in found.payload.split()[:2])
                    gap += count - expected[number]
                    expected[number] = count + 1
                    if gap and kind != "slow":
                        raise AssertionError(f"a {kind} subscriber missed {gap}")
                    if gap > client.missed:
                        raise AssertionError(f"missed {gap}, told of {client.missed}")
                    self.counts[f"received, {kind}"] += 1
                if kind == "slow" and chance.random() < 0.0005:
                    # A socket's buffers take much before the hub sees that it is slow.
                    self.stop.wait(chance.uniform(5, 40))
                self.counts["reported as missed"] += client.missed - missed

    def never_read(self) -> None:
        while not self.stop.is_set():
            with Client(self.plain, timeout=30) as client:
                client.psubscribe("t*")
                client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                self.stop.wait(20)
            self.counts["subscribers that never read"] += 1

    def strangers(self) -> None:
        chance = random.Random(self.chance.random())
        ways: list[Callable[[socket.socket], None]] = [
            lambda s: s.sendall(command("AUTH", "soak", str(chance.random()))),
            lambda s: s.sendall(b"*3\r\n$4\r\nAUTH\r\n$4\r\nso"),
            lambda s: s.sendall(chance.randbytes(chance.randrange(1, 2000))),
            lambda s: s.sendall(b"\x16\x03\x01" + chance.randbytes(200)),
            lambda s: s.sendall(command("AUTH", "soak", "secret") + command("SUBSCRIBE", "t9")),
            lambda s: None,
        ]
        while not self.stop.wait(0.05):
            port = chance.choice((self.port, self.tls_port))
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5) as stranger:
                if port == self.tls_port and chance.random() < 0.5:
                    context = ssl.create_default_context(cafile=str(self.authority.cert))
                    with context.wrap_socket(stranger, server_hostname="localhost") as inside:
                        chance.choice(ways)(inside)
                else:
                    chance.choice(ways)(stranger)
                if chance.random() < 0.1:
                    stranger.settimeout(4)
                    with suppress(OSError):
                        stranger.recv(1000)
            self.counts["strangers"] += 1

    def reload(self, process: HubProcess) -> None:
        count = 0
        while not self.stop.wait(1):
            count += 1
            self.configure(bad=count % 3 == 0)
            process.process.send_signal(signal.SIGHUP)
        self.counts["reloads requested"] = count


def judge(lines: list[dict[str, float]]) -> list[str]:
    """Tell what has grown: the last quarter's least against the first quarter's most, which leaves
    out what is only there while somebody is slow."""
    quarter = max(1, len(lines) // 4)
    first, last = lines[:quarter], lines[-quarter:]
    faults = []
    for name, slack in (("resident MB", 2.0), ("descriptors", 0), ("threads", 0)):
        most, least = max(line[name] for line in first), min(line[name] for line in last)
        if least > most + slack:
            faults.append(f"{name} rose from {most} to {least}")
    return faults


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.hub.faults.soak")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--write", action="store_true", help="the summary into tests/hub/SOAK.md")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), given.seed)
        lines = soak.run(given.seconds)
    faults = soak.faults + judge(lines)
    text = [f"# A soak of {lines[-1]['seconds']:,.0f} seconds", ""]
    text += [f"Result of `python -m tests.hub.faults.soak`, seed {given.seed}.", ""]
    text += [f"- {name}: {count:,}" for name, count in sorted(soak.counts.items())]
    text += [f"- FAULT: {fault}" for fault in faults] or ["- faults: none"]
    text += ["", "| " + " | ".join(lines[0]) + " |", "|" + "---|" * len(lines[0])]
    step = max(1, len(lines) // 12)
    for line in [*lines[:-1:step], lines[-1]]:
        text.append("| " + " | ".join(f"{value:,}" for value in line.values()) + " |")
    summary = "\n".join(text) + "\n"
    print(summary)
    if given.write:
        SUMMARY.write_text(summary, encoding="utf-8")
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()
