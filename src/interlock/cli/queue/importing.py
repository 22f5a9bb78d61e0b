"""`interlock queue import`: puts what `export` wrote, in its order.

It may be repeated. Each message carries a dedup string, its own or one made of its old queue and
id, so that what is there already is not put twice. What a put cannot say is carried as near as can
be:

- attempts that were made are taken off those that its policy gives, and its backoff begins as late;
- a held message is tried once more, and held again if that fails, whatever its policy says;
- what backs off is ready at once, in its place;
- a dead letter is put, leased and rejected. So those need a queue that is empty and that nobody
  serves.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from interlock.cli.flags import Flag
from interlock.cli.queue.asking import BAD_INPUT, ask, count, declare, emit, failed
from interlock.errors import Full, InterlockError

if TYPE_CHECKING:
    from interlock.engine.operating import Operator, Word
    from interlock.engine.records import Letter, Stored

SKIP_DEAD = Flag("--skip-dead", "leave out the dead letters")
FILE = Flag("--file", "read this file instead of standard input", "FILE")


def add_to(commands: Any) -> None:
    """Declare the subcommand."""
    declare(
        commands,
        "import",
        run,
        "put what `export` wrote, from standard input",
        (FILE, SKIP_DEAD),
        about="Keeps the order. It may be repeated after it broke off: what is there already "
        "is not put again. Dead letters need a queue that is empty and that no worker serves.",
    )


def run(given: argparse.Namespace) -> int:
    """Read and put."""
    if given.file is None:
        if sys.stdin.isatty():
            given.fail("what export wrote is read from standard input, or from --file FILE")
        return ask(given, lambda operator: _import(operator, given, sys.stdin))
    try:
        with open(given.file, encoding="utf-8") as file:
            return ask(given, lambda operator: _import(operator, given, file))
    except OSError as error:
        print(f"interlock: {given.file}: {error.strerror or error}", file=sys.stderr)
        return BAD_INPUT


def _import(operator: Operator, given: argparse.Namespace, file: TextIO) -> int:
    from interlock.cli.queue import carried
    from interlock.engine.records import Letter, Stored

    # A file that was cut or changed is refused before anything is put.
    head, *rest = carried.read(file)
    assert isinstance(head, dict)
    letters = [one for one in rest if isinstance(one, Letter)]
    messages = [one for one in rest if isinstance(one, Stored)]
    source, options = str(head["queue"]), dict(head["options"])
    buried, code = 0, 0
    if letters and not given.skip_dead:
        buried, code = Burial(operator, given.queue).run(letters)
        if code:
            return code
    put = Puts(operator, given.queue, source, options)
    put.run(messages)
    left = [] if not head["left_out"] else [f"{head['left_out']} leased then were not exported"]
    left += declared(operator, given.queue, options)
    for one in left:
        failed(one)
    if given.json:
        emit({"queue": given.queue, "messages": put.new, "known": put.known, "dead": buried})
    else:
        print(f"{given.queue}  {count(put.new, 'message')} put, {put.known:,} known already, "
              f"{count(buried, 'dead letter')}")  # fmt: skip
    return 0


class Puts:
    """Messages on their way, some at a time."""

    def __init__(
        self, operator: Operator, queue: str, source: str, options: dict[str, str]
    ) -> None:
        self._operator = operator
        self._queue = queue
        self._source = source
        self._options = {name.upper(): value for name, value in options.items()}
        self.new = 0
        self.known = 0

    def run(self, messages: list[Stored]) -> None:
        """Put them all."""
        done = 0
        for some in batches(messages):
            now = time.time_ns() // 1000
            try:
                self._put([self._message(one, now) for one in some])
            except InterlockError as error:
                # Which one it was, the server says by its place among these.
                raise type(error)(
                    f"messages {some[0].id} to {some[-1].id} of the file, and what is behind "
                    f"them, were not put: {error}"
                ) from None
            done += len(some)
            progress(done, len(messages))

    def _put(self, batch: list[list[Word]]) -> None:
        told = False
        while True:
            try:
                answers = self._operator.put(self._queue, batch)
                break
            except Full:
                if not told:
                    print(f"interlock: {self._queue} is full; waiting for room", file=sys.stderr)
                told = True
                time.sleep(PAUSE)
        known = sum(known for _, known in answers)
        self.known += known
        self.new += len(answers) - known

    def _message(self, one: Stored, now: int) -> list[Word]:
        options: dict[str, Word] = dict(one.options)
        # What is unsettled is known however long ago it was put: only what is settled meanwhile
        # needs the window.
        if "DEDUP" not in options:
            options["DEDUP"] = f"import/{self._source}/{one.id}"
            options["WINDOW"] = DAY
        options |= self._policy(one)
        if one.state == "delayed" and one.due is not None:
            options["DELAY"] = max(one.due - now, 1)
        return as_put(one.payload, one.keys, one.shared, options)

    def _policy(self, one: Stored) -> dict[str, Word]:
        if one.state == "held":
            return {"ATTEMPTS": 1, "THEN": "hold"}
        made = one.attempt - 1
        if not made:
            return {}
        attempts, first, factor, longest = (
            int(one.options.get(name, self._options.get(name, usual)))
            for name, usual in (("ATTEMPTS", 5), ("FIRST", 10**6), ("FACTOR", 2000),
                                ("LONGEST", 60 * 10**6))
        )  # fmt: skip
        # Not by a power: it may have been tried a million times.
        for _ in range(min(made, 1000)):
            first = min(first * factor // 1000, longest)
        found: dict[str, Word] = {"FIRST": first}
        if attempts:
            found["ATTEMPTS"] = max(attempts - made, 1)
        return found


class Burial:
    """Dead letters on their way: put, leased and rejected, some at a time."""

    def __init__(self, operator: Operator, queue: str) -> None:
        self._operator = operator
        self._queue = queue

    def run(self, letters: list[Letter]) -> tuple[int, int]:
        """How many became dead letters, and the exit code."""
        done = 0
        letters = self._missing(letters)
        if letters and (fault := self._served()):
            return 0, failed(fault)
        for some in apart(letters):
            batch = [
                as_put(one.payload, one.keys, one.shared, {"PRIORITY": one.priority})
                for one in some
            ]
            answers = self._operator.put(self._queue, batch)
            put = {id: letter for (id, _), letter in zip(answers, some, strict=True)}
            if not self._reject(put):
                for id in put:
                    self._operator.change("cancel", self._queue, id)
                return done, failed(
                    f"a worker serves {self._queue} and took what was a dead letter; stop the "
                    "workers and import again, or leave the dead letters out by --skip-dead"
                )
            done += len(put)
        return done, 0

    def _missing(self, letters: list[Letter]) -> list[Letter]:
        """Those that an earlier import has not brought; which of the same ones does not matter."""
        there = Counter(map(substance, self._operator.dead_letters(self._queue)))
        missing = []
        for letter in letters:
            if there[substance(letter)]:
                there[substance(letter)] -= 1
            else:
                missing.append(letter)
        return missing

    def _served(self) -> str:
        counts = self._operator.stats(self._queue)
        if counts["paused"]:
            return (
                f"{self._queue} is paused, or some of its keys: dead letters cannot be put there; "
                "resume it for as long, or leave them out by --skip-dead"
            )
        if not counts["unsettled"]:
            return ""
        return (
            f"{self._queue} holds {count(counts['unsettled'], 'message')}: dead letters can be "
            "imported into an empty queue only; leave them out by --skip-dead"
        )

    def _reject(self, put: dict[int, Letter]) -> bool:
        """Lease them all, then reject them in their order; False if somebody else had one."""
        tokens: dict[int, bytes] = {}
        while tokens.keys() != put.keys():
            missing = len(put) - len(tokens)
            reply = self._operator.numbered(
                "lease", self._queue, 0, missing, LEASE * 1_000_000, "any"
            )
            leased = dict.fromkeys(ids_of(reply), reply[0])
            tokens |= leased
            if not leased or not leased.keys() <= put.keys():
                back = [part for id, token in tokens.items() for part in ("RELEASE", token, id)]
                if back:
                    self._operator.numbered("settle", self._queue, *back)
                return False
        settlements = [
            part
            for id, letter in put.items()
            for part in ("REJECT", tokens[id], id, letter.error.encode()[:1024])
        ]
        self._operator.numbered("settle", self._queue, *settlements)
        return True


def ids_of(reply: Sequence[bytes]) -> Iterator[int]:
    """Of the messages that il1_lease answered."""
    at = 4
    for _ in range(int(reply[3])):
        yield int(reply[at])
        at += 6 + int(reply[at + 4]) + int(reply[at + 5])


def apart(letters: list[Letter]) -> Iterator[list[Letter]]:
    """As many at a time as can be leased together: those of a batch share no key."""
    for batch in batches(letters):
        some: list[Letter] = []
        held: set[bytes] = set()
        for letter in batch:
            keys = {*letter.keys, *letter.shared}
            if held & keys:
                yield some
                some, held = [], set()
            some.append(letter)
            held |= keys
        yield some


def substance(letter: Letter) -> tuple[Any, ...]:
    """What does not change when a dead letter is carried."""
    keys = frozenset(letter.keys), frozenset(letter.shared)
    return letter.payload, *keys, letter.error, letter.priority


def as_put(
    payload: bytes, keys: tuple[bytes, ...], shared: tuple[bytes, ...], options: dict[str, Word]
) -> list[Word]:
    """A message as il1_put takes it."""
    pairs = [part for pair in options.items() for part in pair]
    return [payload, len(keys), len(shared), len(options), *keys, *shared, *pairs]


def batches(items: list[Any]) -> Iterator[list[Any]]:
    """As many at a time as one call takes."""
    some: list[Any] = []
    keys = size = 0
    for item in items:
        more = len(item.keys) + len(item.shared)
        if some and (len(some) == BATCH or keys + more > KEYS or size > BYTES):
            yield some
            some, keys, size = [], 0, 0
        some.append(item)
        keys += more
        size += len(item.payload)
    if some:
        yield some


def declared(operator: Operator, queue: str, options: dict[str, str]) -> Iterator[str]:
    """In what the queue is declared otherwise than the one it comes from."""
    now = operator.options(queue)
    different = [
        f"{name} {options[name.lower()]}, here {value}"
        for name, value in now.items()
        if name != "DURABILITY" and options.get(name.lower(), value) != value
    ]
    if different:
        yield f"the options differ, there {'; '.join(different)}: programs declare them"


def progress(done: int, whole: int) -> None:
    """How far it is, on a terminal."""
    if sys.stderr.isatty():
        end = "\n" if done == whole else ""
        print(f"\r{done:,} of {whole:,} messages\x1b[K", end=end, file=sys.stderr, flush=True)


BATCH = 256
KEYS = 4096
BYTES = 8 << 20
DAY = 86_400_000_000
LEASE = 60
PAUSE = 0.2
