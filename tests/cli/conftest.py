"""The engines on which the commands are tried, a queue for each test, and the command."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.cli import main
from interlock.client.admin.operator import Operator
from interlock.client.admin.server import Server
from interlock.client.faces.client import Client, connect
from interlock.client.faces.queue import RemoteQueue
from interlock.retry import Retry
from tests.hub.servers import needs_hub, redis_server

AT_ONCE = Retry(attempts=3, first=0)


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("cli")) as (host, port):
        yield f"redis://{host}:{port}"


@pytest.fixture(scope="session")
def hub_url() -> Iterator[str]:
    needs_hub()
    with interlock.Hub(port=0, workers=2) as hub:
        yield f"interlock://127.0.0.1:{hub.port}"


@pytest.fixture
def memory_url() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture(params=["redis", "hub", "memory"])
def url(request: pytest.FixtureRequest) -> str:
    """URL of each engine."""
    found = request.getfixturevalue(f"{request.param}_url")
    assert isinstance(found, str)
    return found


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with connect(url) as opened:
        yield opened


@pytest.fixture
def queue(client: Client) -> RemoteQueue[bytes]:
    return client.queue(f"q{uuid.uuid4().hex}", bytes, retry=AT_ONCE)


@pytest.fixture
def operator(client: Client) -> Operator:
    return Operator(Server(client))


@dataclass(frozen=True)
class Said:
    """The answer of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object that was printed."""
        (found,) = self.lines
        return found

    @property
    def lines(self) -> list[Any]:
        """The objects that were printed."""
        return [json.loads(line) for line in self.out.splitlines()]


class Command:
    """`interlock queue` on one engine."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url = url
        self._capsys = capsys

    def __call__(self, *words: object) -> Said:
        self._capsys.readouterr()
        try:
            code = main(["queue", *map(str, words), "--url", self.url])
        except SystemExit as ended:
            code = int(ended.code or 0)
        return Said(code, *self._capsys.readouterr())


@pytest.fixture
def cli(url: str, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(url, capsys)


@pytest.fixture
def other(client: Client, queue: RemoteQueue[bytes]) -> RemoteQueue[bytes]:
    """The queue to which messages are carried."""
    return client.queue(f"{queue.name}-new", bytes)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "queue.jsonl"


def moved(cli: Command, queue: RemoteQueue[bytes], file: Path) -> list[dict[str, Any]]:
    """The lines that --move exports; they are in the file too."""
    said = cli("export", queue.name, "--move")
    assert said.code == 0, said.err
    file.write_text(said.out)
    lines = said.lines
    assert all(isinstance(line, dict) for line in lines)
    return lines
