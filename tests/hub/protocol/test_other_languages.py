"""The workers of examples/other-languages: Node, Go and Java call the functions, on both servers.

docs/howto/other-languages.md contains them unchanged.
"""

from __future__ import annotations

import queue
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

import interlock
from interlock.client.lua.library import load
from tests.docs.running import ROOT
from tests.docs.snippets import fenced
from tests.hub.protocol.foreign import LIBRARIES, java
from tests.hub.protocol.foreign_builds import (
    OWN,
    SPOKEN,
    folder_of,
    go,
    go_build,
    java_compile,
    javac,
    node,
)

# The first test waits for the builds.
pytestmark = pytest.mark.watchdog(300)

PROGRAMS = ROOT / "examples" / "other-languages"
PAGE = ROOT / "docs" / "howto" / "other-languages.md"
LIMIT_SECONDS = 20.0
LOST = "lost: somebody else has it now, so nothing was settled"
Words = list[Path | str]


WORKER = f"worker-{OWN}"


def of_node(folder: Path) -> Words:
    return [node(), shutil.copy(PROGRAMS / "worker.mjs", folder / f"{WORKER}.mjs")]


def of_go(folder: Path) -> Words:
    (folder / WORKER).mkdir(exist_ok=True)
    shutil.copy(PROGRAMS / "worker.go", folder / WORKER)
    go_build(go(), folder, f"./{WORKER}", f"{WORKER}/program")
    return [folder / WORKER / "program"]


def of_java(folder: Path) -> Words:
    (folder / WORKER).mkdir(exist_ok=True)
    java_compile(javac(), folder, [PROGRAMS / "Worker.java"], WORKER)
    return java(folder, WORKER, "Worker")


LANGUAGES: dict[str, Callable[[Path], Words]] = {"node": of_node, "go": of_go, "java": of_java}


@pytest.fixture(scope="module", params=SPOKEN)
def program(request: pytest.FixtureRequest, builds: dict[str, Future[Path]]) -> Words:
    """The command of a worker, built beside what was fetched for its language."""
    language = str(request.param)
    return LANGUAGES[language](folder_of(language, builds))


@pytest.fixture
def orders(port: int, request: pytest.FixtureRequest) -> Iterator[interlock.RemoteQueue[str]]:
    """The queue that the workers know, empty, for a client in Python."""
    scheme = "interlock"
    if request.node.callspec.params["port"] == "redis":
        scheme = "redis"
        with redis.Redis(port=port) as server:
            server.flushall()
            load(server)
    with interlock.connect(f"{scheme}://127.0.0.1:{port}") as client:
        yield client.queue("orders", str)


class Worker:
    """A running one."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.strip())

    def line(self) -> str:
        try:
            return self.lines.get(timeout=LIMIT_SECONDS)
        except queue.Empty:
            raise AssertionError(f"no line came in {LIMIT_SECONDS:g} s") from None

    def end(self) -> None:
        """Whatever happened to it, it is gone."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def enter(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()


@contextmanager
def working(program: Words, port: int) -> Iterator[Worker]:
    process = subprocess.Popen(
        [*program, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    worker = Worker(process)
    try:
        yield worker
    finally:
        worker.end()


def test_it_puts_with_keys_handles_in_order_and_is_told_of_a_lost_lease(
    program: Words, port: int, orders: interlock.RemoteQueue[str]
) -> None:
    with working(program, port) as worker:
        ids = [int(word) for word in worker.line().removeprefix("put ").split()]
        opening, paying, closing = ids
        assert worker.line() == f"handling {opening} open ann attempt 1"
        # Each waits for the one before it: they share a key.
        found = orders.explain(closing)
        assert [one.id for one in found.nodes] == [closing, paying, opening]
        worker.enter()
        assert worker.line() == "ACKED"
        assert worker.line() == f"handling {paying} ann to bob attempt 1"
        assert orders.revoke(paying)
        worker.enter()
        assert worker.line() == LOST
        # After its backoff, at its place; the messages behind it have waited.
        assert worker.line() == f"handling {paying} ann to bob attempt 2"
        worker.enter("fail")
        assert worker.line() == "RETRIED"
        assert worker.line() == f"handling {paying} ann to bob attempt 3"
        worker.enter()
        assert worker.line() == "ACKED"
        assert worker.line() == f"handling {closing} close bob attempt 1"
        worker.enter()
        assert worker.line() == "ACKED"
        # It waits by now, or will: both servers tell it.
        orders.put("from Python", keys=["account:é"])
        assert worker.line().endswith(" from Python attempt 1")
        worker.enter()
        assert worker.line() == "ACKED"
        stats = orders.stats()
        assert (stats.puts, stats.acks, stats.revoked, stats.unsettled) == (4, 4, 1, 0)
        orders.seal()
        assert worker.process.wait(LIMIT_SECONDS) == 0


def test_the_page_shows_the_programs_as_they_are() -> None:
    shown = ["\n".join(block.code) + "\n" for block in fenced(PAGE)]
    for file in sorted(PROGRAMS.iterdir()):
        assert file.read_text() in shown, file.name


def test_the_page_names_the_versions_that_are_built() -> None:
    versions = dict(
        re.findall(r"^\| \w+ \| ([\w-]+) \| ([\d.]+) \|$", PAGE.read_text(), re.MULTILINE)
    )
    assert len(versions) == len(LANGUAGES)
    pins = {library.name: library.pins() for library in LIBRARIES}
    for name, version in versions.items():
        assert re.search(rf"(?<![\d.]){re.escape(version)}(?!\d)", pins[name]), name
