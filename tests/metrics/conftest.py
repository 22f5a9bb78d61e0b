"""Engines for the tests of metrics, and an app whose worker has something to tell."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

import interlock
from interlock.outbox.postgres import schema
from tests.hub.servers import needs_hub, redis_server
from tests.worker.process.postgresql import postgresql

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("metrics")) as (host, port):
        yield f"redis://{host}:{port}"


@pytest.fixture(scope="session")
def hub() -> Iterator[interlock.Hub]:
    needs_hub()
    with interlock.Hub(port=0, workers=1, http={"port": 0}) as made:
        yield made


@pytest.fixture(scope="session")
def hub_url(hub: interlock.Hub) -> str:
    return f"interlock://127.0.0.1:{hub.port}"


@pytest.fixture(scope="session")
def outbox_url() -> Iterator[str]:
    """URL of a database with the tables of an outbox."""
    with postgresql("-c", "fsync=off") as url:
        with psycopg.connect(url, autocommit=True) as opened:
            schema.migrate(opened, "interlock")
        yield url


class Program:
    """A command of ours that has said where its metrics are."""

    def __init__(self, *words: str, **environment: str) -> None:
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "interlock", *words],
            env={**os.environ, "PYTHONPATH": path, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said = ""
        self.address = ""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line
            if "http://" in line:
                self.address = line.split("http://")[1].split("/")[0]
                break

    def end(self) -> int:
        self.process.terminate()
        assert self.process.stdout is not None
        with self.process.stdout:
            self.said += self.process.stdout.read()
        return self.process.wait()


Started = Callable[..., Program]


@contextmanager
def programs() -> Iterator[Started]:
    """Starts commands, and ends those that were left."""
    made: list[Program] = []

    def start(*words: str, **environment: str) -> Program:
        made.append(Program(*words, **environment))
        return made[-1]

    try:
        yield start
    finally:
        for one in made:
            if one.process.poll() is None:
                one.end()
            elif one.process.stdout is not None:
                one.process.stdout.close()


@pytest.fixture
def start() -> Iterator[Started]:
    with programs() as started:
        yield started
