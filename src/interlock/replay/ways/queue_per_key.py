"""A queue and a thread for each key, made when its first message comes.

The solution of a chat server with a queue and a thread for each user. With one key a message it
keeps order, and a key waits for no other; it costs a thread for each. From the 1,001st key on they
share the existing threads, or no machine could run a large trace. Handlers take one of `workers`
slots while they run, so that concurrency is the same as in the other ways. A message of several
keys has no queue that would be right for all of them: it goes to its first key's queue, and the
auditor counts the violations for the others. A shared key counts as any other. Unkeyed messages
have one queue, and as many threads as there are workers.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from queue import SimpleQueue

from interlock.replay.trace import Message
from interlock.replay.ways.base import Job, Pool, Shape, Way, lane_of, run_threads, with_processes

Line = SimpleQueue[int | None]


def run(job: Job) -> None:
    """Handle every message on the thread of its first key."""
    lines: dict[str, Line] = {}
    own: list[Line] = []
    places: SimpleQueue[int] = SimpleQueue()
    for worker in range(job.workers):
        places.put(worker)
    unkeyed: Line = SimpleQueue()
    made: list[threading.Thread] = []
    raised: list[BaseException] = []

    def work(line: Line) -> None:
        while (index := line.get()) is not None:
            worker = places.get()
            try:
                job.handle(index, worker)
            finally:
                places.put(worker)

    def guarded(line: Line) -> None:
        try:
            work(line)
        except BaseException as error:
            raised.append(error)
            stop()

    def line_of(key: str) -> Line:
        line = lines.get(key)
        if line is None and len(own) >= MOST:
            line = lines[key] = own[lane_of(key, MOST)]
        elif line is None:
            line = lines[key] = SimpleQueue()
            own.append(line)
            thread = threading.Thread(target=guarded, args=(line,), daemon=True)
            made.append(thread)
            thread.start()
        return line

    def feed() -> None:
        for index, message in enumerate(job.messages):
            if raised:
                break
            keys = message.keys or message.shared
            job.watch.put(index)
            (line_of(keys[0]) if keys else unkeyed).put(index)
        stop()
        for thread in made:
            while thread.is_alive():
                thread.join(0.2)
        if raised:
            raise raised[0]

    def stop() -> None:
        for line in list(own):
            line.put(None)
        for _ in range(job.workers):
            unkeyed.put(None)

    run_threads(
        [partial(work, unkeyed) for _ in range(_others(job.messages, job.workers))], feed, stop
    )


def _others(messages: Sequence[Message], workers: int) -> int:
    return workers if any(not message.keys and not message.shared for message in messages) else 0


def shape(messages: Sequence[Message], workers: int, pool: Pool) -> Shape:
    """Return the shape: a lane and a thread for each distinct first key."""
    first = {keys[0] for message in messages if (keys := message.keys or message.shared)}
    lanes = max(min(len(first), MOST), 1)
    return with_processes(lanes + _others(messages, workers), lanes, workers, pool)


WAY = Way("per-key", "a queue and a thread per key", ("thread", "process"), run, shape)

MOST = 1000
"""Maximum threads for keys."""
