"""Presence in a cluster: three nodes, a login service, two push services, and a page.

python examples/cluster/online.py           serves until Ctrl-C; open the URLs that it prints
python examples/cluster/online.py --demo    without a browser; a node is killed, all is checked

It starts everything on this machine, an engine too (redis-server). A node that dies is started anew
after a while, as a supervisor would.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from users import TABLE

HERE = Path(__file__).parent
NODES = ("a1", "a2", "a3")
USERS = ("ann", "bob", "cleo", "dan")
PATIENT = 300.0
"""Seconds of silence after which a user is gone: longer than anything takes here."""
SHORT = 2.0
MESSAGES = 200
PATIENCE = 60.0


class Cluster:
    """Everything, as processes; what each prints is in a file of the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._engine = self.url = ""
        self.login = ""
        self.pushes: list[str] = []

    def __enter__(self) -> Self:
        try:
            self._start_all()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _start_all(self) -> None:
        server = shutil.which("redis-server")
        if server is None:
            raise SystemExit("no redis-server: install Redis")
        self._start_engine(server)
        for name in NODES:
            self.start_node(name, wait=False)
        for name in NODES:
            self._ready(name, "ready on ")
        login = self._run("login", [*python("login_service.py"), "--cluster", self.url])
        self.login = login
        for node in NODES[:2]:
            # Beside its node, on the same machine: it reads that node's memory.
            words = ["--table", str(self._folder / f"{node}.table"), "--login", login]
            command = [*python("push_service.py"), "--cluster", self.url, *words]
            self.pushes.append(self._run(f"push-{node}", command))

    def _start_engine(self, server: str) -> None:
        while True:
            port = free_port()
            engine = [server, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
            try:
                self._run("engine", engine, "Ready to accept")
            except SystemExit as error:
                if "Address already in use" not in str(error):
                    raise
                continue  # somebody else took the port meanwhile
            self._engine = f"127.0.0.1:{port}"
            self.url = f"interlock+cluster://{self._engine}/{TABLE}"
            return

    def start_node(self, name: str, *, wait: bool = True) -> None:
        """Start a node, under its name and with its table's file."""
        command = [
            *(sys.executable, "-m", "interlock", "node"),
            *("--table", f"{TABLE}={HERE / 'users.py'}:Presence"),
            *("--cluster", f"redis://{self._engine}", "--name", name),
            *("--port", "0", "--capacity", "10000"),
            *(
                "--path",
                str(self._folder / f"{name}.table"),
                "--data",
                str(self._folder / f"{name}.data"),
            ),
        ]
        self._run(name, command, "ready on " if wait else "")

    def _run(self, name: str, command: Sequence[str], ready: str = "ready on ") -> str:
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=self._folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        self._processes[name] = process
        return self._ready(name, ready) if ready else ""

    def _ready(self, name: str, said: str) -> str:
        """Wait until a process has said something, and return the rest of that line."""
        log, process = self._folder / f"{name}.log", self._processes[name]
        until = time.monotonic() + PATIENCE
        while True:
            text = log.read_text(errors="replace")
            if said in text and "\n" in (rest := text.partition(said)[2]):
                return rest.partition("\n")[0].strip()
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{name} does not become ready:\n{text}")
            time.sleep(0.02)

    def lives(self, name: str) -> bool:
        """Return whether a process is there."""
        return self._processes[name].poll() is None

    def pid(self, name: str) -> int:
        """Return a process's number."""
        return self._processes[name].pid

    def kill(self, name: str) -> None:
        """Kill a process as ``kill -9`` does."""
        self._processes[name].kill()
        self._processes[name].wait()

    def close(self) -> None:
        """End all, the engine last."""
        engine = self._processes.pop("engine", None)
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            process.kill()
            process.wait()
        if engine is not None:
            engine.kill()
            engine.wait()


class Screen:
    """A page at a push service, as it shows users."""

    def __init__(self, push: str) -> None:
        self.users: dict[str, dict[str, Any]] = {}
        self._stream = urlopen(f"http://{push}/online", timeout=PATIENCE)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with suppress(OSError, ValueError):
            for line in self._stream:
                if line.startswith(b"data: "):
                    self.users = {one["user"]: one for one in json.loads(line[6:])}


class Apps:
    """Apps of users: they say again and again that they are there."""

    def __init__(self, login: str) -> None:
        self._login = login
        self._there: dict[str, float] = {}
        # Or a user would be renewed once more who has just been forgotten.
        self._renews = threading.Lock()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._thread.start()

    def enter(self, user: str, session: float = PATIENT) -> None:
        """Log a user in; without renewals the login ends after `session` seconds."""
        with self._renews:
            so(f"{user} is logged in", lambda: self._call("login", user, session) == 200)
            self._there[user] = session

    def forget(self, user: str) -> None:
        """Be gone without a word."""
        with self._renews:
            del self._there[user]

    def close(self) -> None:
        """End."""
        self._ends.set()
        self._thread.join()

    def _renew(self) -> None:
        while not self._ends.wait(SHORT / 4):
            for user in USERS:
                with self._renews:
                    self._renew_one(user)

    def _renew_one(self, user: str) -> None:
        session = self._there.get(user)
        if session is not None and self._call("renew", user, session) == 404:
            self._call("login", user, session)

    def _call(self, name: str, user: str, session: float) -> int:
        words = {"user": user, "device": f"{user}-phone", "session": str(session)}
        return call(self._login, name, **words)


def demo(cluster: Cluster) -> None:
    """Have users log in and get messages, and kill a node meanwhile."""
    screens = [Screen(push) for push in cluster.pushes]
    apps = Apps(cluster.login)
    try:
        for user in USERS:
            apps.enter(user)
        for screen in screens:
            so("all see all users", lambda screen=screen: set(screen.users) == set(USERS))  # type: ignore[misc]
        print(f"{len(USERS)} users are online, at both push services")

        call(cluster.login, "ground", user="bob", background="1")
        so("bob is in the background", lambda: all(s.users["bob"]["background"] for s in screens))

        killed = NODES[-1]
        counted, unknown = messages(cluster, at=MESSAGES // 3, then=lambda: cluster.kill(killed))
        print(f"{killed} was killed; the other nodes continued")
        cluster.start_node(killed)
        print(f"{counted} messages counted, {unknown} with an unknown outcome")

        def shown(screen: Screen) -> int:
            return sum(one["unread"] for one in screen.users.values())

        so(
            "both push services show what was counted",
            lambda: (
                shown(screens[0]) == shown(screens[1])
                and counted <= shown(screens[0]) <= counted + unknown
            ),
        )
        print(f"{shown(screens[0])} unread, at both push services")

        # His app asks for a short session, and says nothing more.
        apps.enter("dan", SHORT)
        apps.forget("dan")
        so("dan is gone by himself", lambda: all("dan" not in s.users for s in screens))
        # Or her app would log her in again.
        apps.forget("cleo")
        call(cluster.login, "logout", user="cleo")
        so("cleo has logged out", lambda: all("cleo" not in s.users for s in screens))
        so("ann and bob are there", lambda: all(set(s.users) == {"ann", "bob"} for s in screens))
        print("dan's app said nothing more, cleo logged out: ann and bob are online")
    finally:
        apps.close()


def messages(cluster: Cluster, at: int, then: Callable[[], None]) -> tuple[int, int]:
    """Write messages to all users by both push services; return those that were counted.

    And those of which that is not known: an increment is not sent twice.
    """
    counted = unknown = 0
    for number in range(MESSAGES):
        if number == at:
            then()
        push, user = cluster.pushes[number % 2], USERS[number % len(USERS)]
        status = call(push, "message", user=user)
        counted += status == 200
        unknown += status == 503
        assert status in (200, 503), status
    return counted, unknown


def call(service: str, name: str, **words: str) -> int:
    """Call a service, and return the status of its answer."""
    query = "&".join(f"{word}={value}" for word, value in words.items())
    try:
        with urlopen(
            Request(f"http://{service}/{name}?{query}", method="POST"), timeout=PATIENCE
        ) as reply:
            reply.read()
            return int(reply.status)
    except HTTPError as error:
        error.read()
        return error.code


def so(what: str, look: Callable[[], bool]) -> None:
    """Wait until something is so."""
    until = time.monotonic() + PATIENCE
    while not look():
        if time.monotonic() > until:
            raise SystemExit(f"it is not so that {what}")
        time.sleep(0.05)


def python(name: str) -> list[str]:
    """Return the words that run a service."""
    return [sys.executable, str(HERE / name)]


def free_port() -> int:
    """Return a port that is free just now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def serve(cluster: Cluster) -> None:
    """Start nodes anew that are killed, until Ctrl-C."""
    for push in cluster.pushes:
        print(f"open http://{push}/")
    print(f"export INTERLOCK_URL={cluster.url}   # for interlock cluster status", flush=True)
    for name in NODES:
        print(f"node {name}: end it by kill -9 {cluster.pid(name)}", flush=True)
    while True:
        for name in NODES:
            if not cluster.lives(name):
                print(f"{name} is gone", flush=True)
                time.sleep(5)  # so that one sees that the others do without it
                cluster.start_node(name)
                print(f"{name} is back: kill -9 {cluster.pid(name)}", flush=True)
        time.sleep(0.5)


def main() -> None:
    """Run the services, or the demo."""
    parser = argparse.ArgumentParser(
        prog="online.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--demo", action="store_true", help="without a browser, and ends")
    given = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    with (
        suppress(KeyboardInterrupt),
        TemporaryDirectory(prefix="online-") as folder,
        Cluster(Path(folder)) as cluster,
    ):
        demo(cluster) if given.demo else serve(cluster)


if __name__ == "__main__":
    main()
