"""The keys and names of a task's call: computed by a worker whose app declares the task.

Only the program knows the rule. The request goes through the engine, as for stacks, and the worker
answers with its next announcement.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interlock.client.admin.answers import answers
from interlock.client.wire.records import Names, NewKeys

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator
    from interlock.client.wire.worker_directory import Announced


@dataclass(frozen=True, slots=True)
class Answer:
    """The keys, or the reason why they could not be computed."""

    keys: NewKeys | None
    text: str
    """The worker that computed them, or the reason."""


def ask_workers(operator: Operator, queue: str, payload: bytes) -> Answer:
    """Return the keys that a worker of this queue computes for a call."""
    request = json.dumps({"ask": "keys", "payload": base64.b64encode(payload).decode()})
    if len(request) > MOST_ASKED:
        return Answer(None, f"the call has {len(payload)} bytes, too many to ask a worker about")
    asked: dict[tuple[str, str], int] = {}
    for place, one in _workers(operator, queue):
        if (number := operator.ask(place, one.worker, request)) is not None:
            asked[place, one.worker] = number
    if not asked:
        return Answer(None, f"no worker of queue {queue!r} has announced itself")
    why = f"no worker answered within {PATIENCE:g} s"
    for worker, answer in answers(operator, asked, PATIENCE):
        if answer is None:
            why = f"worker {worker} has ended"
        elif (keys := _keys(answer)) is not None:
            return Answer(keys, worker)
        else:
            why = f"worker {worker}: {answer.get('error', 'its answer is not readable')}"
    return Answer(None, why)


def _workers(operator: Operator, queue: str) -> Iterator[tuple[str, Announced]]:
    """Yield some workers that serve a queue, with the queue at which each announced itself."""
    names = [queue, *(name for name in operator.queues() if name != queue)]
    serving = (
        (name, one)
        for name, one in operator.all_workers(names)
        if name == queue or one.serves(queue, name)
    )
    return itertools.islice(serving, MOST_WORKERS)


def _keys(answer: dict[str, Any]) -> NewKeys | None:
    # Any program may announce: a malformed list of base64 is not an answer.
    with contextlib.suppress(KeyError, TypeError, ValueError, binascii.Error):
        exclusive, shared = (
            tuple(base64.b64decode(key, validate=True) for key in answer[name])
            for name in ("keys", "shared")
        )
        # A worker of an earlier release states no names, and the message keeps what it had.
        return NewKeys(exclusive, shared, Names.of_json(answer))
    return None


MOST_ASKED = 4_096
"""Maximum length of a request in bytes, by the engine's limit."""
MOST_WORKERS = 8
PATIENCE = 6.0
"""Seconds to wait: a worker announces itself every two."""
