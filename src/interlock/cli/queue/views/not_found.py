"""The text about a message that is not unsettled: a dead letter, or unknown."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from interlock.cli.queue import show
from interlock.cli.queue.subcommand import count
from interlock.cli.tables import printable

if TYPE_CHECKING:
    from interlock.client.wire.records import Stored


def text(queue: str, id: int) -> str:
    """Return the text about a message that is neither unsettled nor a dead letter."""
    return f"message {id} is not in {queue}: settled, or never put"


def since(message: Stored) -> str:
    """Return the text about a dead letter: its time and its attempts."""
    return f"dead letter since {when(message.due or 0)}, after {count(message.attempt, 'attempt')}"


def lines(message: Stored, given: argparse.Namespace) -> Iterator[str]:
    """Yield its error, and the command that requeues it."""
    yield f"failed: {printable(message.error) or 'no error is known'}"
    yield f"to requeue it: {again(message, given)}"


def again(message: Stored, given: argparse.Namespace) -> str:
    """Return the command that requeues a dead letter."""
    return show.command(given, "requeue", given.queue, str(message.id))


def record(message: Stored, given: argparse.Namespace) -> dict[str, Any]:
    """Return the fields that only a dead letter has, for JSON; `died` is in seconds since 1970."""
    return {
        "attempt": message.attempt,
        "error": message.error,
        "died": (message.due or 0) / 1e6,
        "freeing": [again(message, given)],
    }


def when(micros: int) -> str:
    """Return a time of the server's clock, in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(micros / 1e6))
