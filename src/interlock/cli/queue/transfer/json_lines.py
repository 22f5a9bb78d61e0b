"""A queue as lines of JSON, the format of `export` and `import`.

The first line is a head, with the queue's name, options and counts; then a line for each dead
letter, in the order in which they died; then a line for each message, in the order of their places,
delayed ones last. The last line confirms that the file is complete. Times are µs since 1970.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TextIO

from interlock.cli.queue.show import as_json, from_json
from interlock.client.wire.failures import Failure, Failures
from interlock.client.wire.records import Stored

Line = dict[str, Any]


class BadFile(ValueError):
    """The file is not in the format of `export`; the text names the line and the fault."""


def head(
    queue: str,
    options: dict[str, str],
    counts: dict[str, int],
    paused: set[bytes],
    left_out: int,
) -> Line:
    """Return the first line. `paused` are keys."""
    return {
        "interlock": "queue",
        "format": FORMAT,
        "queue": queue,
        "options": {name.lower(): value for name, value in options.items()},
        "counts": counts,
        "paused": [as_json(key) for key in sorted(paused)],
        "left_out": left_out,
    }


def letter_line(letter: Stored) -> Line:
    """Return the line of a dead letter."""
    return {
        "dead": letter.id,
        "attempts": letter.attempt,
        "time": letter.due,
        "error": letter.error,
        **failures(letter),
        **what_was_put(letter),
    }


def message_line(message: Stored) -> Line:
    """Return the line of a message."""
    return {
        "id": message.id,
        "sequence": message.sequence,
        "state": message.state,
        "attempt": message.attempt,
        "due": message.due,
        "error": message.error,
        **failures(message),
        **what_was_put(message),
    }


def what_was_put(message: Stored) -> Line:
    """Return the options of the put, of a message or of a dead letter."""
    return {
        "keys": [as_json(key) for key in message.keys],
        "shared": [as_json(key) for key in message.shared],
        "options": {name.lower(): as_json(value) for name, value in message.options.items()},
        "payload": as_json(message.payload),
    }


def failures(message: Stored) -> Line:
    """Return the failed attempts, the newest first: text, attempt and time of each."""
    found = message.failures
    return {"failures": [[one.text, one.attempt, one.time] for one in found]} if found else {}


def history(line: Line) -> bytes:
    """Return the error history of a line; an older release kept only the last error."""
    if "failures" not in line:
        return str(line.get("error", "")).encode(errors="surrogateescape")
    return Failures.of(
        Failure(str(text), attempt and int(attempt), time and int(time))
        for text, attempt, time in line["failures"]
    ).as_bytes()


def end(messages: int, dead: int) -> Line:
    """Return the last line."""
    return {"end": True, "messages": messages, "dead": dead}


def letter(line: Line) -> Stored:
    """Return the dead letter of a line."""
    options = options_of(line)
    if "options" not in line and line.get("priority"):
        options["PRIORITY"] = str(int(line["priority"])).encode()
    return Stored(
        id=whole(line, "dead"),
        sequence=whole(line, "dead"),
        attempt=whole(line, "attempts"),
        payload=from_json(line["payload"]),
        keys=tuple(map(from_json, line["keys"])),
        shared=tuple(map(from_json, line["shared"])),
        options=options,
        state="dead",
        due=whole(line, "time"),
        history=history(line),
    )


def options_of(line: Line) -> dict[str, bytes]:
    """Return the options of the put; the first format had none for dead letters."""
    return {name.upper(): from_json(value) for name, value in line.get("options", {}).items()}


def message(line: Line) -> Stored:
    """Return the message of a line."""
    due = line.get("due")
    return Stored(
        id=whole(line, "id"),
        sequence=whole(line, "sequence"),
        attempt=whole(line, "attempt"),
        payload=from_json(line["payload"]),
        keys=tuple(map(from_json, line["keys"])),
        shared=tuple(map(from_json, line["shared"])),
        options=options_of(line),
        state=str(line["state"]),
        due=None if due is None else whole(line, "due"),
        history=history(line),
    )


def whole(line: Line, name: str) -> int:
    """Return a number of a line, 0 or more."""
    value = line[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is {value!r}; allowed: a whole number from 0")
    return value


def read(file: TextIO) -> Iterator[Line | Stored]:
    """Yield the head, the dead letters and the messages.

    Raises BadFile for any other line, and at the end for a truncated file.
    """
    counted = {"messages": 0, "dead": 0}
    number = 0
    for number, text in enumerate(file, start=1):
        try:
            line = json.loads(text)
            if number == 1:
                yield checked_head(line)
            elif line.get("end"):
                missing = [name for name in counted if line.get(name) != counted[name]]
                if missing:
                    raise ValueError(f"{line} ends {counted}: lines are missing or were added")
                return
            elif "dead" in line:
                counted["dead"] += 1
                yield letter(line)
            else:
                counted["messages"] += 1
                yield message(line)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise BadFile(f"line {number}: {what}") from None
    raise BadFile(f"it was cut off after line {number}: its last line is missing")


def checked_head(line: Any) -> Line:
    """Return the first line, if it is one."""
    if not isinstance(line, dict) or line.get("interlock") != "queue":
        raise ValueError(
            "no first line of an export; allowed: the output of `interlock queue export`"
        )
    if line.get("format") not in (1, FORMAT):
        raise ValueError(f"format is {line.get('format')!r}; this release reads 1 and {FORMAT}")
    for key in line.get("paused", ()):
        from_json(key)
    return line


FORMAT = 2
