"""Follows calls through the package, and counts the files that they enter.

    python scripts/walks.py           prints a table; exits with 1 if a walk is over its limits
    python scripts/walks.py --json    prints it as JSON

A walk is one call, with connections open and declarations made. It counts the files of the package
in which a function called from another file begins, the number of such beginnings (each an
*entry*), and the changes of file, including returns and the steps of generators.

Each walk has a limit, which a test holds, and a goal. A walk over its goal is printed with the
number of files that it is over; its limit is what it has now, so it can only become shorter.

The hub's Rust code cannot be traced: those walks are counted by hand, and are in COUNTED. In them a
file counts if the call passes through it: it has a function on the stack at a station of the walk.
Files that are only queried on the way (rights, the time, sizes) do not count.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import interlock

PACKAGE = str(Path(interlock.__file__).parent) + "/"
CRATES = Path(__file__).resolve().parents[1] / "crates"


@dataclass(frozen=True)
class Limit:
    """The limits of a walk."""

    files: int
    twice: bool = False
    """A file may be entered more than once."""
    goal: int | None = None
    """Files it should have; None: the limit is the goal."""


LIMITS = {
    "put on an engine": Limit(6),
    "awaited put on an engine": Limit(6),
    # Beyond a put: the lease, its renewal, and the log of handled messages. The goal would need the
    # renewal of all leases in the file of one lease's state.
    "get on an engine": Limit(9, twice=True, goal=7),
    # Beyond a put: the lease's state, which both faces share, and its renewal; as for a get.
    "ack on an engine": Limit(8, twice=True, goal=6),
    # A put, and the task, its keys, its hooks, the envelope and the job. The goal would need the
    # templates of keys and the values of their fields in one file, and the hooks in the app's.
    "send of a task": Limit(15, twice=True, goal=10),
    # Ten files are the engine's and three the app's. The owner and the threads of the source and of
    # the pool take turns.
    "message of a worker": Limit(21, twice=True, goal=12),
    # One batch is settled and another leased by two calls, one of which is always in flight.
    "first message of a batch": Limit(13, twice=True, goal=12),
    # The files of the dashboard; what it asks the engine is the client's walk.
    "page of the dashboard": Limit(8, twice=True),
    "put from the hub's socket to the disk": Limit(15, twice=True),
    "PUBLISH from the hub's socket to a store": Limit(14, twice=True),
    # To the loop 9, through the log in Redis 6, applied 6, shown 2.
    "write to a table on a cluster": Limit(23, twice=True, goal=14),
}
ROUNDS, MESSAGES, TRIES = 8, 1500, 10
COUNTED: dict[str, tuple[str, ...]] = {
    # Stations: bytes are received, they are parsed, the message takes its place, the reply is
    # written, the record appended. Then the worker ends its turn, with one commit for all requests
    # in it: so the journal is entered again for its pending writes.
    "put from the hub's socket to the disk": (
        "interlock-hub/src/net/reactor/worker.rs",
        "interlock-hub/src/net/socket.rs",
        "interlock-hub/src/session.rs",
        "interlock-hub/src/resp/parse.rs",
        "interlock-hub/src/command/queues.rs",
        "interlock-engine/src/lib.rs",
        "interlock-engine/src/calls/mod.rs",
        "interlock-engine/src/calls/put.rs",
        "interlock-core/src/queue/scheduler.rs",
        "interlock-engine/src/values/reply.rs",
        "interlock-engine/src/durable.rs",
        "interlock-journal/src/journal.rs",
        "interlock-journal/src/record.rs",
        "interlock-engine/src/durable.rs",
        "interlock-journal/src/journal.rs",
        "interlock-journal/src/writer.rs",
        "interlock-journal/src/storage/disk.rs",
    ),
    # Stations: bytes are received, they are parsed, the message is offered and copied, the turn's
    # messages are handed over, the store's thread takes them, appends them, and writes the file.
    "PUBLISH from the hub's socket to a store": (
        "interlock-hub/src/net/reactor/worker.rs",
        "interlock-hub/src/net/socket.rs",
        "interlock-hub/src/session.rs",
        "interlock-hub/src/resp/parse.rs",
        "interlock-hub/src/command/topics/mod.rs",
        "interlock-hub/src/stores/offers.rs",
        "interlock-hub/src/stores/batch.rs",
        "interlock-hub/src/stores/offers.rs",
        "interlock-hub/src/stores/queue.rs",
        "interlock-hub/src/stores/writer.rs",
        "interlock-hub/src/stores/file_sink.rs",
        "interlock-stores/src/file/writing/store.rs",
        "interlock-stores/src/file/writing/chain.rs",
        "interlock-stores/src/file/writing/store.rs",
        "interlock-stores/src/file/writing/segment.rs",
        "interlock-journal/src/storage/disk.rs",
    ),
    # Stations: bytes are received, they are parsed, the write is kept for the loop and handed over,
    # the loop takes it, makes an entry, sends it, reads it, applies it, shows the row, and replies.
    "write to a table on a cluster": (
        "interlock-hub/src/net/reactor/worker.rs",
        "interlock-hub/src/net/socket.rs",
        "interlock-hub/src/session.rs",
        "interlock-hub/src/resp/parse.rs",
        "interlock-hub/src/command/tables/node_calls.rs",
        "interlock-hub/src/tables/writes.rs",
        "interlock-node/src/hub.rs",
        "interlock-node/src/node.rs",
        "interlock-node/src/node/taking.rs",
        "interlock-node/src/hub.rs",
        "interlock-log/src/replica.rs",
        "interlock-log/src/entry.rs",
        "interlock-node/src/redis.rs",
        "interlock-node/src/redis/link.rs",
        "interlock-node/src/connection.rs",
        "interlock-node/src/redis/link.rs",
        "interlock-node/src/redis/reader.rs",
        "interlock-node/src/node.rs",
        "interlock-log/src/replica.rs",
        "interlock-log/src/apply.rs",
        "interlock-log/src/rows/drive.rs",
        "interlock-log/src/rows/table.rs",
        "interlock-rows/src/parse.rs",
        "interlock-log/src/rows/table.rs",
        "interlock-rows/src/decide.rs",
        "interlock-log/src/rows/table.rs",
        "interlock-log/src/rows/store.rs",
        "interlock-node/src/projection.rs",
        "interlock-table/src/table/batch.rs",
        "interlock-node/src/hub.rs",
        "interlock-hub/src/tables/writes.rs",
    ),
}
"""Walks that are counted by hand: the files in the order in which they are entered."""


@dataclass
class Walk:
    """The files that one call entered."""

    name: str
    entries: list[str] = field(default_factory=list)
    """File of each function that was called from another file, in order."""
    changes: int | None = 0
    """None if it was counted by hand."""

    @property
    def files(self) -> int:
        """Number of different files."""
        return len(set(self.entries))

    @property
    def over(self) -> int:
        """Number of files that it is over its goal."""
        limit = LIMITS.get(self.name)
        goal = None if limit is None else limit.goal or limit.files
        return max(self.files - goal, 0) if goal is not None else 0

    @property
    def fault(self) -> str:
        """The exceeded limit, or the missing file; empty if there is neither."""
        if self.changes is None:
            missing = sorted({one for one in self.entries if not (CRATES / one).is_file()})
            if missing:
                return f"no such file: {', '.join(missing)}"
        limit = LIMITS.get(self.name)
        if limit is None:
            return ""
        if self.files > limit.files:
            return f"{self.files} files; allowed: {limit.files}"
        again = sorted({one for one in self.entries if self.entries.count(one) > 1})
        return f"entered twice: {', '.join(again)}" if again and not limit.twice else ""


class Steps:
    """A profiler that notes each change of file."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._begun: set[FrameType] = set()

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        file = of_package(frame.f_code)
        if event not in ("call", "return") or not file:
            return
        caller = frame.f_back
        while caller is not None and not of_package(caller.f_code):
            caller = caller.f_back
        from_elsewhere = caller is None or of_package(caller.f_code) != file
        # A generator that resumes has the same frame.
        if event == "call" and frame not in self._begun:
            self._begun.add(frame)
            if from_elsewhere:
                self._walk.entries.append(file)
        if from_elsewhere and caller is not None and self._walk.changes is not None:
            self._walk.changes += 1


def of_package(code: CodeType) -> str:
    """Return the file of a function, as a path in the package; empty if it is elsewhere."""
    name = code.co_filename
    return name.removeprefix(PACKAGE) if name.startswith(PACKAGE) else ""


def follow(name: str, call: Callable[[], object], threads: bool = False) -> Walk:
    """Make a call and record the files it enters; with `threads` also on threads that it starts."""
    walk = Walk(name)
    steps = Steps(walk)
    if threads:
        threading.setprofile(steps)
    sys.setprofile(steps)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return walk


class Rounds:
    """Traces all threads that start from now on, from one handler to the next.

    Between the middles of two handlers each step of a message happens once: one message is settled
    as the next is leased. Periodic work, such as the worker's owner looking around, falls into some
    rounds: the most frequent round is that of a message.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._steps: Steps | None = None
        self._found: list[Walk] = []

    def __enter__(self) -> Rounds:
        threading.setprofile(self._step)
        return self

    def __exit__(self, *_: object) -> None:
        self._steps = None
        threading.setprofile(None)

    def turn(self) -> None:
        """End a round, and begin the next."""
        self._found.append(Walk(self._name))
        self._steps = Steps(self._found[-1])

    def rest(self) -> None:
        """Trace nothing until the next turn."""
        self._steps = None

    @property
    def last(self) -> Walk:
        """The round that was begun last."""
        return self._found[-1]

    @property
    def engine_calls(self) -> list[Walk]:
        """The rounds in which the engine was called."""
        return [one for one in self._found[:-1] if "client/faces/batch.py" in one.entries]

    def usual(self) -> Walk:
        """Return the most frequent of those."""
        found = collections.Counter(tuple(one.entries) for one in self.engine_calls)
        (entries, _), *_ = found.most_common(1)
        return next(one for one in self.engine_calls if tuple(one.entries) == entries)

    def _step(self, frame: FrameType, event: str, argument: Any) -> None:
        if self._steps is not None:
            self._steps(frame, event, argument)


def shortest(walks: Sequence[Walk]) -> Walk:
    """Return the walk of a call without other work, such as a look at the queue."""
    return min(walks, key=lambda one: len(one.entries))


def got(url: str) -> Walk:
    """Trace a get of a message that is ready."""
    return _leased(url)[0]


def acked(url: str) -> Walk:
    """Trace its ack."""
    return _leased(url)[1]


def _leased(url: str) -> tuple[Walk, Walk]:
    with interlock.connect(url) as client:
        queue = client.queue(f"walk-{uuid.uuid4().hex}")
        for number in range(TRIES + 2):
            queue.put({"n": 1}, keys=f"k{number}")
        for _ in range(2):
            queue.get().ack()
        leases: list[interlock.RemoteLease[Any]] = []
        gets = [
            follow("get on an engine", lambda: leases.append(queue.get())) for _ in range(TRIES)
        ]
        acks = [follow("ack on an engine", lease.ack) for lease in leases]
        queue.drop(force=True)
    return shortest(gets), shortest(acks)


def sent(url: str) -> Walk:
    """Trace a send, from the task to the socket, or to the engine of this process."""
    queue = f"walk-{uuid.uuid4().hex}"
    with interlock.App(url) as app:

        @app.task(name="walk", queue=queue, keys="k:{n}")
        def walk(n: int) -> None:
            pass

        for _ in range(2):
            walk.send(1)
        walks = [follow("send of a task", lambda: walk.send(1)) for _ in range(TRIES)]
        with interlock.connect(url) as client:
            client.queue(queue).drop(force=True)
    return shortest(walks)


def page(url: str) -> Walk:
    """Trace the request for a queue's page through the dashboard."""
    import http.client
    from unittest import mock
    from urllib.parse import urlsplit

    from interlock.dashboard.polling import roster, watcher
    from interlock.dashboard.service import Service
    from interlock.dashboard.settings import Settings

    tried: list[Walk] = []
    # A look of its own would fall into each round on a busy machine.
    seldom = mock.patch.multiple
    with (
        seldom(watcher, EVERY=3600.0),
        seldom(roster, EVERY=3600.0),
        Rounds("page of the dashboard") as rounds,
        interlock.Hub(port=0, workers=1) as hub,
    ):
        url = f"interlock://{hub.addresses[0]}"
        with interlock.connect(url) as client:
            client.queue("walk").put({"n": 1}, keys="k")
        service, ready = Service(Settings(url=url, port=0)), threading.Event()
        serving = threading.Thread(target=service.run, args=(lambda _: ready.set(),))
        serving.start()
        ready.wait()
        place = urlsplit(service.url)
        for _ in range(TRIES):
            asked = http.client.HTTPConnection(place.hostname or "", place.port)
            rounds.turn()
            asked.request("GET", "/api/queues/walk")
            if asked.getresponse().status == 200:
                tried.append(rounds.last)
            rounds.rest()
            asked.close()
        service.stop()
        serving.join()
    found = shortest(tried)
    found.entries = [one for one in found.entries if one.startswith("dashboard/")]
    return found


def put(url: str) -> Walk:
    """Trace a put from the public method to the socket, or to the engine of this process."""
    with interlock.connect(url) as client:
        queue = client.queue(f"walk-{uuid.uuid4().hex}")
        for _ in range(2):
            queue.put({"n": 1}, keys="k")
        walks = [
            follow("put on an engine", lambda: queue.put({"n": 1}, keys="k")) for _ in range(TRIES)
        ]
        queue.drop(force=True)
    return shortest(walks)


def awaited_put(url: str) -> Walk:
    """Trace the same in asyncio."""
    import asyncio

    async def main() -> Walk:
        async with interlock.connect(url) as client:
            queue = client.queue(f"walk-{uuid.uuid4().hex}")
            for _ in range(2):
                await queue.put({"n": 1}, keys="k")
            walks = [Walk("awaited put on an engine") for _ in range(TRIES)]
            for walk in walks:
                sys.setprofile(Steps(walk))
                try:
                    await queue.put({"n": 1}, keys="k")
                finally:
                    sys.setprofile(None)
            await queue.drop(force=True)
        return shortest(walks)

    return asyncio.run(main())


def handled(url: str) -> Walk:
    """Trace a message through a worker whose handlers take long, each in a place of its own."""
    return _worked("message of a worker", url, "interlock-handler", 0.001)


def handled_in_batch(url: str) -> Walk:
    """Trace a message that is the first of its batch, of a worker whose handlers are quick."""
    return _worked("first message of a batch", url, "interlock-batches", 0.0)


def _worked(name: str, url: str, thread: str, seconds: float) -> Walk:
    """Trace handlers of this duration, on threads of this name."""
    queue = f"walk-{uuid.uuid4().hex}"
    with Rounds(name) as rounds, interlock.App(url) as app:

        @app.task(name="walk", queue=queue)
        def walk(all_done: bool) -> None:
            if threading.current_thread().name.startswith(thread):
                rounds.turn()
            else:
                rounds.rest()
            if seconds:
                time.sleep(seconds)
            if all_done:
                done.set()

        # Under load it may take a while until the worker recognises them as quick.
        for _ in range(TRIES):
            done = threading.Event()
            for n in range(1, MESSAGES + 1):
                walk.send(n == MESSAGES)
            with app.worker(queues=[queue], threads=1):
                done.wait()
            if len(rounds.engine_calls) >= ROUNDS:
                break
    return rounds.usual()


WALKS: dict[str, Callable[[str], Walk]] = {
    "put on an engine": put,
    "awaited put on an engine": awaited_put,
    "get on an engine": got,
    "ack on an engine": acked,
    "send of a task": sent,
    "page of the dashboard": page,
    "message of a worker": handled,
    "first message of a batch": handled_in_batch,
}


def main() -> int:
    """Return the exit code."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--files", action="store_true", help="name the files that were entered")
    parser.add_argument("--url", default="memory://", help="the engine (memory://)")
    given = parser.parse_args()
    walks = [follow(given.url) for follow in WALKS.values()]
    walks += [Walk(name, list(entries), None) for name, entries in COUNTED.items()]
    if given.json:
        print(
            json.dumps(
                [
                    asdict(one) | {"files": one.files, "over": one.over, "fault": one.fault}
                    for one in walks
                ]
            )
        )
    else:
        print(f"{'walk':40} {'files':>6} {'over':>5} {'entries':>8} {'changes':>8}")
        for one in walks:
            changes = "-" if one.changes is None else one.changes
            over = one.over or ""
            print(
                f"{one.name:40} {one.files:6} {over:>5} {len(one.entries):8} {changes:>8}  "
                f"{one.fault}".rstrip()
            )
            for file in one.entries if given.files else ():
                print(f"    {file}")
    return int(any(one.fault for one in walks))


if __name__ == "__main__":
    sys.exit(main())
