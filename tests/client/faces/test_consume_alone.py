"""A message of which a lease ran out is handled alone, and charged once it began (clause 9)."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from interlock import Retry, connect
from interlock.client.faces import batch as batches
from interlock.client.faces.client import Client
from tests.engine.faults.servers import ENGINES, Server
from tests.hub.servers import free_port, needs_hub, redis_program

THREADS = 3
BEFORE, AFTER = 2, 5
"""Innocent messages, ready before the suspect and after."""
SUSPECTS = 1
PATIENCE = 30.0
LOOKS = 20


@pytest.fixture(params=["redis", "hub"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


class Watched:
    """A handler that notes what else is under way while a suspect is handled."""

    def __init__(self, client: Client) -> None:
        self.queue = client.queue(uuid.uuid4().hex, str, lease=3.0, retry=Retry(first=0))
        kinds = ["innocent"] * BEFORE + ["suspect"] * SUSPECTS + ["innocent"] * AFTER
        self.queue.put_many(kinds)
        # Kept: a lease that is dropped tells the engine that its process lives.
        self.held = held = [self.queue.get() for _ in range(BEFORE + SUSPECTS)]
        for lease in held[BEFORE:]:
            lease.stop_renewing()
            lease.extend(0.001)
        for lease in held[:BEFORE]:
            lease.release()
        self.count = len(kinds)
        while self.queue.stats().leases_expired < SUSPECTS:
            # A call that writes ends what has run out.
            self.queue.put("innocent")
            self.count += 1
        self._lock = threading.Lock()
        self.running = 0
        self.ended = 0
        self.seen: list[tuple[int, int, int]] = []
        self.done = threading.Event()

    def began(self) -> None:
        with self._lock:
            self.running += 1

    def look(self) -> None:
        """Note what runs, what is leased, and what has ended but is not settled."""
        stats = self.queue.stats()
        self.seen.append((self.running, stats.leased, self.ended - stats.acks))

    def left(self) -> None:
        with self._lock:
            self.running -= 1
            self.ended += 1
            if self.ended == self.count:
                self.done.set()

    def check(self) -> None:
        assert self.queue.stats().unsettled == 0
        assert self.seen == [(1, 1, 0)] * (LOOKS * SUSPECTS)


def suspected(client: Client) -> tuple[Any, Any]:
    """A queue whose first message is suspect, and the lease that ran out: if it is dropped, the
    engine learns that its process is alive."""
    queue: Any = client.queue(uuid.uuid4().hex, str, lease=60.0, retry=Retry(first=0))
    queue.put("suspect")
    lease = queue.get()
    lease.stop_renewing()
    lease.extend(0.001)
    until_expired(queue, 1)
    return queue, lease


def until_expired(queue: Any, times: int) -> None:
    while queue.stats().leases_expired < times:
        # A call that writes ends what has run out.
        queue.put("innocent", priority=-1)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_outage_makes_no_message_a_suspect(engine: str, tmp_path: Path) -> None:
    needs_hub() if engine == "hub" else redis_program()
    server = Server(engine, tmp_path, free_port())
    server.start()
    try:
        patient, impatient = f"{server.url}?timeout=20", f"{server.url}?timeout=0.5"
        with connect(patient) as sender, connect(impatient) as own:
            sender.queue("q", str).put("innocent")
            queue: Any = own.queue("q", str, lease=0.5)
            held = queue.get()
            os.kill(server.pid, signal.SIGSTOP)
            until = time.monotonic() + PATIENCE
            # From then on it is not renewed any more, and nobody tells the engine of it.
            while not held._grant.lost:
                assert time.monotonic() < until
                time.sleep(0.01)
            os.kill(server.pid, signal.SIGCONT)
            sender.queue("q", str).stats()
            _, batch = batches.exchange(queue, (), 1, time.monotonic() + PATIENCE)
            assert batch is not None and not batch.alone and batch.grant.out == {held.id}
            batch.grant.stop_renewing()
    finally:
        server.kill()


def test_a_suspect_is_charged_an_attempt_only_when_its_handler_begins(url: str) -> None:
    with connect(url) as dead, connect(url) as client:
        queue, _kept = suspected(dead)
        # Its process dies of another message at once.
        short: Any = client.queue(queue.name, str, lease=0.05, retry=Retry(first=0))
        _, batch = batches.exchange(short, (), 1)
        assert batch is not None and batch.alone
        batch.grant.stop_renewing()
        until_expired(queue, 2)
        again = client.queue(queue.name, str).get()
        assert (again.payload, again.attempt) == ("suspect", 1)


def test_a_suspect_is_charged_an_attempt_once_get_returns_it(url: str) -> None:
    with connect(url) as dead, connect(url) as client:
        queue, _kept = suspected(dead)
        short = client.queue(queue.name, str, lease=0.05, retry=Retry(first=0))
        lease = short.get()
        lease.stop_renewing()
        until_expired(queue, 2)
        again = queue.get()
        assert (again.payload, again.attempt) == ("suspect", 2)


def test_no_other_message_is_leased_while_a_thread_handles_a_suspect(url: str) -> None:
    with connect(url) as client, connect(url) as own:
        watched = Watched(client)

        def handle(kind: str) -> None:
            watched.began()
            if kind == "suspect":
                for _ in range(LOOKS):
                    watched.look()
            watched.left()

        queue: Any = own.queue(watched.queue.name, str, lease=3.0, retry=Retry(first=0))
        with queue.consume(handle, threads=THREADS):
            assert watched.done.wait(PATIENCE)
        watched.check()


def test_no_other_message_is_leased_while_a_task_handles_a_suspect(url: str) -> None:
    async def main() -> None:
        with connect(url) as client:
            watched = Watched(client)

            async def handle(kind: str) -> None:
                watched.began()
                # The other tasks continue meanwhile.
                await asyncio.sleep(0)
                if kind == "suspect":
                    for _ in range(LOOKS):
                        await asyncio.to_thread(watched.look)
                watched.left()

            async with connect(url) as own:
                queue = own.queue(watched.queue.name, str, lease=3.0, retry=Retry(first=0))
                task = asyncio.create_task(queue.consume(handle, threads=THREADS))
                assert await asyncio.to_thread(watched.done.wait, PATIENCE)
                while watched.queue.stats().unsettled:
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
            watched.check()

    asyncio.run(main())
