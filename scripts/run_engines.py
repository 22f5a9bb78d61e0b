"""Replays a trace through a queue on Redis and on a hub, both started and stopped by it.

    python scripts/run_engines.py TRACE [FLAGS of interlock replay]

A missing engine is skipped with a line that gives the reason: neither redis-server nor
valkey-server is installed, or this build's hub has no queues. The exit code is the replay's; 0 if
every engine is missing.
"""

from __future__ import annotations

import logging
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from interlock.cli import main as interlock
from interlock.errors import InterlockError

PATIENCE = 5


def main(words: list[str]) -> int:
    # Its Redis stores nothing, so the warning about that would only alarm the reader.
    logging.getLogger("interlock.queue").setLevel(logging.ERROR)
    with ExitStack() as running:
        urls = []
        for engine in (redis, hub):
            try:
                url = running.enter_context(engine())
                usable(url)
            except (OSError, InterlockError, ImportError, LookupError) as error:
                print(f"not on {engine.__name__}: {error}", file=sys.stderr, flush=True)
            else:
                urls += ["--url", url]
        return interlock(["replay", *words, *urls]) if urls else 0


@contextmanager
def redis() -> Iterator[str]:
    """Start a Redis or Valkey on loopback that stores nothing, and yield its URL."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise LookupError("neither redis-server nor valkey-server is installed")
    with tempfile.TemporaryDirectory() as folder:
        # Another process may take the port between the check and the start.
        for _ in range(PATIENCE):
            port = free_port()
            command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
            with started([*command, "--save", "", "--appendonly", "no"], "Ready to accept") as line:
                if line:
                    yield f"redis://127.0.0.1:{port}"
                    return
    raise LookupError(f"{program} found no port")


@contextmanager
def hub() -> Iterator[str]:
    """Start a hub on loopback, and yield its URL."""
    with started([sys.executable, "-m", "interlock", "hub", "--port", "0"], "ready on") as line:
        if not line:
            raise LookupError("the hub did not start")
        yield f"interlock://{line.split()[-1]}"


@contextmanager
def started(command: list[str], ready: str) -> Iterator[str]:
    """Start a server, and yield its ready line.

    The line is empty if it ended before.
    """
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        yield next((line.strip() for line in process.stdout if ready in line), "")
    finally:
        process.terminate()
        process.communicate()


def usable(url: str) -> None:
    """Raise an error if the engine has no queues."""
    from interlock.replay.ways import remote

    remote.way(url)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert isinstance(port, int)
        return port


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
