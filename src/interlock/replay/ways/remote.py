"""A queue on an engine, on a hub or a Redis, and N threads that lease from it.

Each run has a queue of its own, which is dropped afterwards. A thread settles its message with the
call that leases its next one.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from interlock.errors import InterlockError, ShutDown
from interlock.replay.trace import Message
from interlock.replay.ways.base import Job, Way, one_lane_a_key, run_threads

if TYPE_CHECKING:
    from interlock.client.faces.client import Client
    from interlock.client.faces.options import QueueOptions
    from interlock.client.faces.queue import RemoteQueue
    from interlock.client.wire.messages import Settlement


def way(url: str) -> Way:
    """Return the way through the engine at a URL.

    Raises ImportError if a dependency is not installed, ValueError if the URL is invalid,
    InterlockError if the engine does not answer.
    """
    from interlock.client.admin.operator import Operator
    from interlock.client.admin.server import Server
    from interlock.client.faces.client import connect

    with connect(url) as client:
        shown = client.url
        # Now, not in the middle of a comparison that has taken minutes.
        Operator(Server(client)).stats(PROBE)
    name = shown.partition(":")[0]
    return Way(name, f"on {shown}", ("thread", "process"), partial(run, url), one_lane_a_key)


def run(url: str, job: Job) -> None:
    """Handle every message that a thread leases, in a queue of this run."""
    from interlock.client.faces.client import connect

    with connect(url) as client:
        name = f"interlock-replay-{uuid.uuid4().hex}"
        options: QueueOptions = {} if job.limits is None else {"limits": job.limits}
        queue = client.queue(name, int, **options)
        try:
            _run(queue, job)
        finally:
            _remove(client, queue.name)


def _run(queue: RemoteQueue[int], job: Job) -> None:
    def work(worker: int) -> None:
        exchange, handle = queue.exchange, job.handle
        settlements: list[Settlement] = []
        while True:
            try:
                answers, leases = exchange(settlements, 1)
            except ShutDown:
                return
            if "lost" in answers:
                raise InterlockError("a lease was lost: this machine stood still for 30 s")
            # Settled in any case: a message that breaks a run must not be redelivered to the next
            # thread.
            settlements = [lease.acking() for lease in leases]
            for lease in leases:
                handle(lease.payload, worker)

    stopped = False
    feeding = threading.Lock()

    def feed() -> None:
        keys = lambda index: job.messages[index].keys  # noqa: E731
        shared = lambda index: job.messages[index].shared  # noqa: E731
        try:
            for some in batches(job.messages):
                for index in some:
                    job.watch.put(index)
                with feeding:
                    if stopped:
                        return
                    queue.put_many(some, keys=keys, shared=shared, limit=job.names, group=job.group)
            queue.seal()
        except ShutDown:
            # It was closed on a thread, whose error is more informative.
            return

    def stop() -> None:
        nonlocal stopped
        stopped = True
        # A put in flight would create the queue again after it was dropped.
        with feeding:
            queue.close()

    run_threads([partial(work, worker) for worker in range(job.workers)], feed, stop)


def batches(messages: Sequence[Message]) -> Iterator[list[int]]:
    """Yield the indexes of the messages of each call."""
    some: list[int] = []
    keys = 0
    for index, message in enumerate(messages):
        more = len(message.keys) + len(message.shared)
        if some and (len(some) == PUT_AT_ONCE or keys + more > KEYS_AT_ONCE):
            yield some
            some, keys = [], 0
        some.append(index)
        keys += more
    if some:
        yield some


def _remove(client: Client, name: str) -> None:
    from interlock.client.admin.operator import Operator
    from interlock.client.admin.server import Server

    # The engine may be the cause of the error.
    with suppress(InterlockError):
        Operator(Server(client)).remove(name)


PROBE = "interlock-replay"
PUT_AT_ONCE = 64
KEYS_AT_ONCE = 1024
