"""Reading of recorded messages: JSON lines, plain or gzip, or the commits of a git repository.

A line is one object with `id` (str or int, unique in the trace), `keys` (one key or a list of them,
empty for an unkeyed message), and optionally `shared` (the same), `limit` (limit names, in the same
form), `time` (seconds, any origin), `payload` (anything), `place`, `took` and `attempt`, which a
worker records. Other names are ignored. Lines stream: a file may be longer than memory, the
messages may not.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import os
import secrets
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

MOST_KEYS = 4096
LONGEST_KEY = 1024
LONGEST_LINE = 64 * 1024 * 1024


class TraceError(ValueError):
    """A fault in a trace, with its place: file, line number, and the allowed values."""


@dataclass(frozen=True, slots=True)
class Message:
    """One recorded message. Handlers get it whole; it can be pickled."""

    id: str
    """As in the trace; an integer id as its digits."""

    keys: tuple[str, ...] = ()
    """Held exclusively, each once, integers as their digits."""

    shared: tuple[str, ...] = ()
    """Keys shared with other readers; none of them is in `keys`."""

    time: float | None = None
    """Time of the recording, in seconds, if the trace has it. Replay does not wait for it."""

    payload: Any = None
    """Any value that the trace carries."""

    place: float | None = None
    """Place in the order of the puts: a recording's lines are in the order of the ends."""

    took: float | None = None
    """Seconds for which it was handled when it was recorded."""

    attempt: int | None = None
    """Number of the recorded attempt; each has a line of its own."""

    limit: tuple[str, ...] = ()
    """Names of its limits, each once. They count only in a replay with limits."""

    group: str | None = None
    """Its group. It counts only in a replay with groups."""


@dataclass(slots=True)
class Trace:
    """A whole trace in memory."""

    name: str
    """The source, in a word: a file's name or a repository's."""

    messages: list[Message] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """With `skip_bad`: the fault of each line that was left out."""

    def keys(self) -> set[str]:
        """Return all distinct keys, exclusive and shared."""
        found: set[str] = set()
        for message in self.messages:
            found.update(message.keys, message.shared)
        return found


def read(
    path: str | Path, *, skip_bad: bool = False, limit: int | None = None, group: str | None = None
) -> Trace:
    """Read a file of JSON lines, or standard input for "-"; gzip is detected by its content.

    `group` names the field of a line, or of its payload, that has the message's group. `limit`
    stops after that many messages. A bad line is a TraceError; with `skip_bad` it is noted in
    `Trace.skipped` instead. Raises OSError if the file cannot be read.
    """
    name = "standard input" if str(path) == "-" else str(path)
    trace = Trace(name if str(path) == "-" else Path(path).name)
    with _open(path) as lines:
        _gather(trace, _parsed(lines, name, group), skip_bad, limit)
    return trace


def read_git(repository: str | Path, *, skip_bad: bool = False, limit: int | None = None) -> Trace:
    """Read a repository's history, oldest commit first: the files a commit touched are its keys.

    Merges are left out, because their changes appeared before; a commit that touched nothing is
    unkeyed; a path longer than the maximum key is replaced by its hash. A commit of more than 4,096
    files is a bad line. Raises TraceError if it is not a repository or git fails; OSError if git is
    missing.
    """
    trace = Trace(Path(repository).resolve().name)
    with _git_log(repository) as fields:
        _gather(trace, _commits(fields, str(repository)), skip_bad, limit)
    return trace


def parse(line: bytes, group: str | None = None) -> Message:
    """Parse one line as a message, with the group in this field. Raises TraceError without file and
    number."""
    try:
        found = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise TraceError(f"not UTF-8 at byte {error.start + 1} of the line") from None
    except json.JSONDecodeError as error:
        raise TraceError(f"not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise TraceError("not JSON that can be read: nested too deeply") from None
    except ValueError as error:
        raise TraceError(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise TraceError(f"the line is {_kind(found)}; allowed: one object")
    keys = _keys(found, "keys", needed=True)
    shared = tuple(key for key in _keys(found, "shared") if key not in set(keys))
    if len(keys) + len(shared) > MOST_KEYS:
        count = len(keys) + len(shared)
        raise TraceError(f"{count:,} keys; allowed: at most {MOST_KEYS:,} in a message")
    return Message(
        _id(found), keys, shared, _number(found, "time"), found.get("payload"),
        _number(found, "place"), _number(found, "took"), _attempt(found), _keys(found, "limit"),
        None if group is None else _group(found, group),
    )  # fmt: skip


def _gather(
    trace: Trace, found: Iterator[Message | TraceError], skip_bad: bool, limit: int | None
) -> None:
    messages = trace.messages
    placed = False
    for one in found:
        if isinstance(one, Message):
            messages.append(one)
            placed = placed or one.place is not None
            # If lines have places, the first messages may be anywhere.
            if limit is not None and len(messages) >= limit and not placed:
                return
        elif skip_bad:
            trace.skipped.append(str(one))
        else:
            raise one
    if placed:
        messages.sort(key=lambda one: math.inf if one.place is None else one.place)
        if limit is not None:
            del messages[limit:]


def _parsed(
    lines: IO[bytes], name: str, group: str | None = None
) -> Iterator[Message | TraceError]:
    seen: dict[str, int] = {}
    attempts: dict[str, int] = {}
    number = 0
    while True:
        try:
            line = lines.readline(LONGEST_LINE + 1)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            # The data behind the damage is unreadable, so it is not a line to be skipped.
            raise TraceError(f"{name}, after line {number}: damaged gzip: {error}") from None
        if not line:
            return
        number += 1
        where = f"{name}, line {number}"
        if len(line) > LONGEST_LINE:
            while line and not line.endswith(b"\n"):
                line = lines.readline(LONGEST_LINE)
            yield TraceError(f"{where}: longer than {LONGEST_LINE:,} bytes")
            continue
        if not line.strip():
            continue
        try:
            message = parse(line, group)
        except TraceError as error:
            yield TraceError(f"{where}: {error}")
            continue
        first = seen.setdefault(message.id, number)
        if first != number:
            if message.attempt is not None and message.attempt != attempts.get(message.id):
                # The same message, handled again: one message to replay.
                continue
            yield TraceError(f"{where}: id {message.id!r} is already on line {first}")
            continue
        if message.attempt is not None:
            attempts[message.id] = message.attempt
        yield message


@contextmanager
def _open(path: str | Path) -> Iterator[IO[bytes]]:
    with ExitStack() as opened:
        if str(path) == "-":
            raw = cast(io.BufferedReader, sys.stdin.buffer)
        else:
            raw = opened.enter_context(open(path, "rb"))
        packed = raw.peek(2)[:2] == b"\x1f\x8b"
        yield cast(IO[bytes], opened.enter_context(gzip.open(raw, "rb"))) if packed else raw


@contextmanager
def _git_log(repository: str | Path) -> Iterator[Iterator[bytes]]:
    # A mark of our own making: a path is never mistaken for the head of a commit.
    mark = f"commit-{secrets.token_hex(16)}"
    command = ["git", "-C", str(repository), "-c", "log.showSignature=false"]
    command += ["-c", "diff.relative=false", "log"]
    command += ["--reverse", "--topo-order", "--no-merges", "--no-renames", "--name-only", "-z"]
    command += ["--root", "--no-color", "--no-notes", f"--format=tformat:{mark} %H %ct"]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            env={**os.environ, "LC_ALL": "C"},
        )
        assert process.stdout is not None
        whole = False
        try:
            yield _marked(process.stdout, mark.encode())
            whole = True
        finally:
            early = process.poll() is None and process.stdout.read(1) != b""
            if early:
                process.kill()
            process.stdout.close()
            status = process.wait()
            if whole and not early and status != 0:
                said.seek(0)
                complaint = said.read().decode("utf-8", "replace").strip().splitlines()
                reason = complaint[0] if complaint else f"git log ended with status {status}"
                raise TraceError(f"{repository}: {reason}")


def _marked(stream: IO[bytes], mark: bytes) -> Iterator[bytes]:
    """Yield the NUL-ended fields of the stream.

    The head of a commit comes without its mark and with a NUL before it, which no path can hold.
    """
    rest = b""
    while chunk := stream.read(1 << 16):
        *fields, rest = (rest + chunk).split(b"\0")
        for text in fields:
            text = text.removeprefix(b"\n")
            yield b"\0" + text[len(mark) + 1 :] if text.startswith(mark) else text


def _commits(fields: Iterator[bytes], repository: str) -> Iterator[Message | TraceError]:
    head: bytes | None = None
    paths: list[str] = []
    for text in fields:
        if text.startswith(b"\0"):
            if head is not None:
                yield _commit(head, paths, repository)
            head, paths = text[1:], []
        elif text:
            paths.append(_path_key(text))
    if head is not None:
        yield _commit(head, paths, repository)


def _commit(head: bytes, paths: list[str], repository: str) -> Message | TraceError:
    name, _, seconds = head.decode("ascii").partition(" ")
    keys = tuple(dict.fromkeys(paths))
    if len(keys) > MOST_KEYS:
        return TraceError(
            f"{repository}, commit {name[:12]}: {len(keys):,} keys; "
            f"allowed: at most {MOST_KEYS:,} in a message"
        )
    return Message(name[:12], keys, (), float(seconds))


def _path_key(path: bytes) -> str:
    key = path.decode("utf-8", "backslashreplace")
    if len(key.encode()) > LONGEST_KEY:
        return hashlib.blake2b(path, digest_size=16).hexdigest()
    return key


def _id(found: dict[str, Any]) -> str:
    if "id" not in found:
        raise TraceError("id is missing; allowed: str or int")
    value = found["id"]
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TraceError(f"id is {_kind(value)}; allowed: str or int")
    if isinstance(value, int):
        return _digits(value, "id")
    if any("\ud800" <= letter <= "\udfff" for letter in value):
        raise TraceError("id holds a lone surrogate; allowed: text of UTF-8")
    return value


def _keys(found: dict[str, Any], name: str, *, needed: bool = False) -> tuple[str, ...]:
    if name not in found:
        if needed:
            raise TraceError(f"{name} is missing; allowed: a key, a list of keys, or [] for none")
        return ()
    value = found[name]
    if isinstance(value, list):
        return tuple(dict.fromkeys(_key(key, f"{name}[{i}]") for i, key in enumerate(value)))
    if isinstance(value, str | int) and not isinstance(value, bool):
        return (_key(value, name),)
    raise TraceError(f"{name} is {_kind(value)}; allowed: str, int, or a list of them")


def _group(found: dict[str, Any], field: str) -> str | None:
    payload = found.get("payload")
    inner = payload.get(field) if isinstance(payload, dict) else None
    value = found.get(field, inner)
    return None if value is None else _key(value, field)


def _key(value: object, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise TraceError(f"{where} is {_kind(value)}; allowed: str, int")
    key = _digits(value, where) if isinstance(value, int) else value
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise TraceError(f"{where} holds a lone surrogate; allowed: text of UTF-8") from None
    if not size:
        raise TraceError(f"{where} is empty; allowed: 1 to {LONGEST_KEY:,} bytes")
    if size > LONGEST_KEY:
        raise TraceError(f"{where} is {size:,} bytes; allowed: 1 to {LONGEST_KEY:,} bytes")
    return key


def _digits(value: int, where: str) -> str:
    try:
        return str(value)
    except ValueError:
        raise TraceError(f"{where} is an integer of too many digits") from None


def _number(found: dict[str, Any], name: str) -> float | None:
    value = found.get(name)
    if value is None:
        return None
    allowed = "a number" if name == "place" else "a number of seconds"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TraceError(f"{name} is {_kind(value)}; allowed: {allowed}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise TraceError(f"{name} is too large; allowed: {allowed}")
    return number


def _attempt(found: dict[str, Any]) -> int | None:
    value = found.get("attempt")
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise TraceError(f"attempt is {_kind(value)}; allowed: a whole number")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}
    if value is None:
        return "null"
    return names.get(type(value), f"a number ({str(value)[:20]})")
