"""`interlock queue import`: restores the output of `export`, in its order.

It may be repeated. Each message and each dead letter has a mark, made of its old queue and id, that
the server remembers for a day: a message that exists already, or was handled meanwhile, is not put
again. Restored messages keep their state: attempts, errors, ends of delays and backoffs, holds,
dead letters. Pauses of keys and the declaration come first, so that no message is leased that was
not leasable before.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

from interlock import audit
from interlock.cli.flags import Flag
from interlock.cli.queue.show import from_json
from interlock.cli.queue.subcommand import BAD_INPUT, ask, count, declare, emit, failed
from interlock.errors import EngineUnavailable, Full, InterlockError, OptionsMismatch
from interlock.runtime.limits import MAX_BATCH_KEYS

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator
    from interlock.client.wire.records import Stored

SKIP_DEAD = Flag("--skip-dead", "leave out the dead letters")
FILE = Flag("--file", "read this file instead of standard input", "FILE")


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "import",
        run,
        "put the messages of an export, from standard input",
        (FILE, SKIP_DEAD),
        about="Keeps the order and the state of each message. If it was interrupted, run it "
        "again: existing messages are not put twice. It also imports into a sealed queue.",
    )


def run(given: argparse.Namespace) -> int:
    """Read and restore."""
    if given.file is None:
        if sys.stdin.isatty():
            given.fail("an export is read from standard input, or from --file FILE")
        return ask(given, lambda operator: _import(operator, given, sys.stdin))
    try:
        with open(given.file, encoding="utf-8") as file:
            return ask(given, lambda operator: _import(operator, given, file))
    except OSError as error:
        print(f"interlock: {given.file}: {error.strerror or error}", file=sys.stderr)
        return BAD_INPUT


def _import(operator: Operator, given: argparse.Namespace, file: TextIO) -> int:
    from interlock.cli.queue.transfer import json_lines
    from interlock.client.wire.records import Stored

    # A truncated or changed file is refused before the first put.
    head, *rest = json_lines.read(file)
    assert isinstance(head, dict)
    items = [one for one in rest if isinstance(one, Stored)]
    if given.skip_dead:
        items = [one for one in items if one.state != "dead"]
    told = [] if not head["left_out"] else [f"{head['left_out']} leased messages were not exported"]
    told += declared(operator, given.queue, dict(head["options"]))
    if paused := [from_json(key) for key in head.get("paused", ())]:
        for some in apart(paused):
            operator.gate("pause", given.queue, some)
    restore = Restore(operator, given.queue, str(head["queue"]))
    audit.recorded(
        "import",
        given.queue,
        f"{head['queue']}, {count(len(items), 'message')}",
        lambda: restore.run(items),
        lambda _: restore.told(),
        partly=lambda: restore.told() if restore.new + restore.dead + restore.known else "",
    )
    if restore.behind:
        told.append(
            f"{count(restore.behind, 'message')} placed behind existing ones, because held or "
            "backing off in the export"
        )
    if restore.gone:
        told.append(
            f"{count(restore.gone, 'message')} buried or cancelled, because a message that is held "
            "has one of their keys"
        )
    for one in told:
        failed(one)
    counts = {"messages": restore.new, "known": restore.known, "dead": restore.dead}
    if given.json:
        emit({"queue": given.queue, **counts})
    else:
        put, dead = count(restore.new, "message"), count(restore.dead, "dead letter")
        print(f"{given.queue}  {put} put, {restore.known:,} known already, {dead}")
    return 0


class Restore:
    """Messages and dead letters in flight, in batches."""

    def __init__(self, operator: Operator, queue: str, source: str) -> None:
        self._operator = operator
        self._queue = queue
        self._source = source
        self.new = 0
        self.known = 0
        self.dead = 0
        self.behind = 0
        self.gone = 0

    def told(self) -> str:
        """Return the result so far."""
        return f"{self.new + self.dead} put, {self.known} known already"

    def run(self, items: list[Stored]) -> None:
        """Restore them all."""
        done = 0
        for some in batches(items):
            try:
                self._restore(some)
            except InterlockError as error:
                # The server identifies it by its index in the batch.
                text = (
                    f"messages {some[0].id} to {some[-1].id} of the file, and what is behind "
                    f"them, were not put: {error}"
                )
                if isinstance(error, EngineUnavailable):
                    raise EngineUnavailable(text, error.unknown) from None
                raise type(error)(text) from None
            done += len(some)
            progress(done, len(items))

    def _restore(self, some: list[Stored]) -> None:
        from interlock.client.connection.refusals import HalfParked

        told = False
        batch = [(self._mark(one), one) for one in some]
        while True:
            try:
                answers = self._operator.restore(self._queue, batch)
                break
            except Full as full:
                # Room for messages appears by itself; dead letters must be removed, and paused and
                # stuck keys opened, by an operator.
                if "MAXDEAD" in str(full) or isinstance(full, HalfParked):
                    raise
                if not told:
                    print(f"interlock: {self._queue} is full; waiting for room", file=sys.stderr)
                told = True
                time.sleep(PAUSE)
        for one, (_, became) in zip(some, answers, strict=True):
            if became == "known":
                self.known += 1
            elif one.state == "dead":
                self.dead += 1
            else:
                self.new += 1
                self.gone += became in ("dead", "cancelled")
                self.behind += became == "waiting" and one.state in ("held", "backing_off")

    def _mark(self, one: Stored) -> str:
        """Return the mark that identifies a message that was put before."""
        # Queues of the same name on two servers may be merged, and ids are times.
        content = hashlib.sha256(repr((one.payload, one.keys, one.shared)).encode()).hexdigest()
        return f"import/{self._source}/{one.id}/{content[:16]}"


def batches(items: list[Any]) -> Iterator[list[Any]]:
    """Yield as many at a time as one call takes."""
    some: list[Any] = []
    keys = size = 0
    for item in items:
        more = len(item.keys) + len(item.shared)
        if some and (len(some) == BATCH or keys + more > MAX_BATCH_KEYS or size > BYTES):
            yield some
            some, keys, size = [], 0, 0
        some.append(item)
        keys += more
        size += len(item.payload)
    if some:
        yield some


def apart(keys: list[bytes]) -> Iterator[list[bytes]]:
    """Yield as many keys at a time as one call takes."""
    return (keys[at : at + BATCH] for at in range(0, len(keys), BATCH))


def declared(operator: Operator, queue: str, options: dict[str, str]) -> Iterator[str]:
    """Declare the queue with the options of its source, unless it is declared otherwise.

    Then yield the differences. Durability is the engine's property, and is reported.
    """
    wanted = {name.upper(): value for name, value in options.items()}
    now = operator.options(queue)
    where = wanted.pop("DURABILITY", "server")
    if any(now.get(name, value) != value for name, value in wanted.items()):
        try:
            kept = now["DURABILITY"]
            safely = {} if kept == "server" else {"DURABILITY": kept}
            operator.configure(queue, wanted | safely)
        except OptionsMismatch:
            different = [
                f"{name} {wanted[name]}, here {value}"
                for name, value in now.items()
                if wanted.get(name, value) != value
            ]
            yield f"the options differ: in the export {'; '.join(different)}; programs declare them"
    if "server" not in (where, now["DURABILITY"]) and where != now["DURABILITY"]:
        yield f"DURABILITY is {where} in the export and {now['DURABILITY']} here"


def progress(done: int, whole: int) -> None:
    """Show the progress, on a terminal."""
    if sys.stderr.isatty():
        end = "\n" if done == whole else ""
        print(f"\r{done:,} of {whole:,} messages\x1b[K", end=end, file=sys.stderr, flush=True)


BATCH = 256
BYTES = 8 << 20
PAUSE = 0.2
