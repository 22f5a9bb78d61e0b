"""Refusals of servers: the errors of Interlock for them, and what to do about each.

The table, `refusal_table.py`, and the page, docs/reference/refusals.md, are made from
wire/refusals.toml.
"""

from __future__ import annotations

import re

from interlock.client.connection.refusal import TENANT, Course, Refusal
from interlock.client.connection.refusal_table import REFUSALS
from interlock.client.request import Refused
from interlock.client.wire.declaration import mismatch
from interlock.client.wire.functions import GROWING
from interlock.errors import (
    EngineUnavailable,
    Full,
    InterlockError,
    OptionsMismatch,
    ShutDown,
)


class OutOfMemory(Full):
    """The server is at its memory limit; calls do not wait for that, except for room in a queue."""


class HalfParked(Full):
    """Half of a queue's bound is parked, which does not end by itself: no call waits for it."""


class UnknownDedup(EngineUnavailable):
    """The queue does not know the dedup string behind which a message was to be put."""


def of(reply: str) -> Refusal:
    """Return the table's row for an error reply; UNKNOWN if no row matches."""
    return next((row for row in REFUSALS if row.pattern.match(reply)), UNKNOWN)


def course_of(error: Refused, function: str) -> tuple[Course, Refusal]:
    """Return the reaction to an error reply of a function, and its row."""
    row = of(str(error))
    if row is OOM and function not in GROWING:
        # A configuration, or the library itself, is refused too; room is free again in a while.
        return "retry", row
    return row.course, row


def error_of(error: Refused, function: str, key: str, address: str) -> Exception:
    """Return the exception for an error reply that is not retried."""
    code, text = error.code, str(error).partition(" ")[2] or str(error)
    name = key[4:-1]
    if code == "FULL":
        return Full(f"queue {name!r} is full: {text}")
    if code == "STUCK":
        return HalfParked(
            f"{function}(): half of the queue's bound is parked behind paused or held keys; resume "
            f"or settle those (interlock queue roots {name})"
        )
    if code == "OOM" and function in GROWING:
        return OutOfMemory(
            f"{address} is at its memory limit and takes no puts until messages are settled "
            f"(queue {name!r})"
        )
    if code == "SEALED":
        return ShutDown(f"queue {name!r} is sealed: it takes no puts until it is reopened")
    if code == "OPTIONSMISMATCH":
        return OptionsMismatch(mismatch(name, text))
    if code == "DIFFERS":
        return ValueError(f"put(): {_items(text.partition(': ')[2])}")
    if code in ("BADARG", "TOOBIG", "NOTSUPPORTED"):
        return ValueError(f"queue {name!r}: {text}")
    if code in ("MOVED", "ASK"):
        return EngineUnavailable(advised(f"{address} does not have queue {name!r}: {error}"))
    course, row = course_of(error, function)
    if course == "end":
        said = f"{address} refuses il1_{function} of queue {name!r}: {error}"
        return InterlockError(advised(said))
    said = f"{address} refuses il1_{function}: {error}"
    if code == "UNKNOWN":
        return UnknownDedup(said)
    return EngineUnavailable(advised(said), unknown=row.unsure)


def _items(text: str) -> str:
    """Return a text about messages[1] as one about the message, or about an item of a batch."""
    text = text.replace("messages[1] has", "the message has", 1)
    return re.sub(r"messages\[(\d+)\]", lambda found: f"items[{int(found[1]) - 1}]", text)


def said_by(address: str, error: Refused) -> InterlockError:
    """Return the exception for an error reply to a command that is not a function of a queue."""
    row, said = of(str(error)), advised(f"{address}: {error}")
    if row.course == "end":
        return InterlockError(said)
    return EngineUnavailable(said, unknown=row.unsure)


def passes(error: Refused) -> bool:
    """Return whether a command that is not a function of a queue is worth repeating."""
    return of(str(error)).course == "retry" and LOST not in str(error)


def advised(text: str) -> str:
    """Return the server's text, followed by the remedy if it is not obvious."""
    if ON_A_HUB in text:
        return text
    for row in REFUSALS:
        if row.advice and row.anywhere.search(text) and row.advice not in text:
            return f"{text}; {row.advice}"
    return text


def missing_right(reply: str) -> str:
    """Return the rule of ACL SETUSER that the user of a Redis or Valkey lacks, by its reply."""
    command = re.search(r"run the '([^']+)' command", reply)
    return f"+{command[1]}" if command else "~il:*"


def is_advised(text: str) -> bool:
    """Return whether a text ends with the remedy."""
    return ON_A_HUB in text or any(row.advice and text.endswith(row.advice) for row in REFUSALS)


RIGHTS = f"{TENANT} +scan +function|load ~il:*"
"""Permissions of an operator: all that `interlock queue` needs too. A user who may load functions
may replace those that others call, and so gains their access."""
INSTALL = "an operator installs it: interlock queue install --url redis://USER:PASSWORD@HOST:PORT"

ON_A_HUB = "; on this hub [[user]]"
"""The words with which a hub itself names a user's missing right."""
LOST = "Function not found"
"""The words of a server that lacks the library, or has lost it."""

OOM = next(row for row in REFUSALS if row.said == "OOM")
UNKNOWN = REFUSALS[-1]
"""Reaction to refusals that are in no other row."""
