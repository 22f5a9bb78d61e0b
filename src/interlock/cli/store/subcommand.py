"""Common parts of the subcommands of `interlock store`: flags, the files, messages."""

from __future__ import annotations

import argparse
import base64
import datetime as dt
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from interlock.cli.flags import Flag
from interlock.explanation import printable_json

if TYPE_CHECKING:
    from interlock import _core

Message = tuple[int, int, bytes, bytes, int]
"""Position, topic, payload, and microseconds since 1970."""

JSON = Flag("--json", "print JSON, one object per line")
EXIT_CODES = (
    "Exit codes: 0 done, 1 something is missing, damaged or unreadable, 2 wrong usage, 130 Ctrl-C."
)


def position(text: str) -> tuple[int, int]:
    """Parse a position, `1526919030474-0`, or a time in ISO 8601, in UTC without a zone."""
    if found := re.fullmatch(r"([0-9]{1,19})(?:-([0-9]{1,9}))?", text, re.ASCII):
        ms, n = int(found[1]), int(found[2] or 0)
        if ms < 2**63:
            return ms, n
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}; allowed: a position such as 1526919030474-0, or a time such as "
            "2026-11-23T14:00"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return max(0, round(moment.timestamp() * 1000)), 0


FROM = Flag("--from", "the first position, 1526919030474-0, or a time, 2026-11-23T14:00 in UTC",
            "POSITION", position, default=(0, 0))  # fmt: skip


def declare(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
    flags: Sequence[Flag],
    *,
    about: str,
    topic: bool = True,
) -> None:
    """Declare a subcommand: its help line, its flags, whether it takes a topic."""
    described = f"{text[:1].upper()}{text[1:]}. {about}"
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=described, epilog=EXIT_CODES
    )
    parser.add_argument("path", metavar="PATH", help="a folder of files, or one of them")
    if topic:
        parser.add_argument("topic", metavar="TOPIC", nargs="?", help="only messages of this topic")
    for flag in flags:
        flag.add_to(parser)
    parser.set_defaults(run=lambda given: told(run, given))


def told(run: Callable[[argparse.Namespace], int], given: argparse.Namespace) -> int:
    """Run a subcommand; an unreadable file is reported in a line."""
    try:
        return run(given)
    except BrokenPipeError:  # the reader closed standard output
        raise
    except OSError as error:
        print(f"interlock: {error.strerror or error}", file=sys.stderr, flush=True)
        return BROKEN


def files(given: argparse.Namespace) -> _core.StoreFiles:
    """Return the files that a command names."""
    # Imported here, because loading it takes a moment.
    from interlock import _core

    topic = getattr(given, "topic", None)
    name = None if topic is None else topic.encode(errors="surrogateescape")
    return _core.StoreFiles(given.path, name, getattr(given, "from", (0, 0)))


def messages(found: _core.StoreFiles) -> Iterator[Message]:
    """Yield the messages written so far."""
    while some := found.next(1000):
        yield from some


def write(some: Iterable[Message], *, as_json: bool) -> int:
    """Print messages, a line each; return how many."""
    out = sys.stdout.buffer
    count = 0
    for message in some:
        out.write(line(message) if as_json else message[3] + b"\n")
        count += 1
    out.flush()
    return count


def line(message: Message) -> bytes:
    """Return a message as an object of JSON, with a newline."""
    ms, n, topic, payload, time = message
    record = {
        "position": f"{ms}-{n}",
        "time": moment(time),
        "topic": text_of(topic),
        "payload": text_of(payload),
    }
    return printable_json(record).encode() + b"\n"


def moment(time: int) -> str:
    """Return microseconds since 1970 in ISO 8601, in UTC."""
    try:
        return (EPOCH + dt.timedelta(microseconds=time)).isoformat(timespec="microseconds")
    except OverflowError:
        return dt.datetime.max.replace(tzinfo=dt.UTC).isoformat()


def text_of(value: bytes) -> str | dict[str, str]:
    """Return bytes in their JSON form: an object with base64 if they are not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


class Report:
    """Report on standard error the unreadable parts, each gap and file once."""

    def __init__(self, found: _core.StoreFiles) -> None:
        self._found = found
        self._named: set[str] = set()
        self._trailing: list[tuple[str, int, tuple[int, int]]] = []
        self._stable = 0
        self.complete = True

    def gaps(self) -> None:
        """Report the gaps found since the last call."""
        for first, last, count, path, why in self._found.missing():
            self._say(f"{gap(first, last, count)}: {path}: {why}")
        for path, why in self._found.unreadable():
            self._name(path, f"{path}: {why}; its messages are left out")

    def settle(self) -> bool:
        """Report data without a record after `STABLE` equal calls; return whether to call again.

        A store writes data first and then its record, so the newest file may be between the two.
        """
        trailing = self._found.trailing()
        self._stable = self._stable + 1 if trailing == self._trailing else 0
        self._trailing = trailing
        if self._stable < STABLE:
            return bool(trailing)
        for path, size, (ms, n) in trailing:
            self._name(path, f"{path}: {size:,} bytes from {ms}-{n} on have no record in its "
                       "index; they are left out")  # fmt: skip
        return False

    def _name(self, path: str, text: str) -> None:
        if path not in self._named:
            self._named.add(path)
            self._say(text)

    def _say(self, text: str) -> None:
        self.complete = False
        print(f"interlock: {text}", file=sys.stderr, flush=True)


def gap(first: tuple[int, int], last: tuple[int, int], count: int) -> str:
    """Report the number of missing messages, and their place."""
    number = f"{count:,} messages are" if count > 1 else "1 message is" if count else "messages are"
    where = f"{first[0]}-{first[1]}"
    if last != first:
        where += f" to {last[0]}-{last[1]}"
    return f"{number} missing at {where}"


STABLE = 3
"""Checks, `PAUSE` apart."""

PAUSE = 0.1
"""Seconds between two checks of the files."""

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
BROKEN = 1
