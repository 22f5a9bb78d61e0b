"""The text by which a worker tells an engine of itself, and its answers to what it is asked.

JSON, so that any program reads it; it never is longer than an engine takes. What would be is told
in part: fewer messages, with fewer of their keys.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interlock.worker.execution import details

if TYPE_CHECKING:
    from interlock.worker.worker import Worker

__all__ = ["Description", "stacks_answer"]


class Description:
    """The facts of one worker that do not change, and the text with those that do."""

    def __init__(
        self, worker: Worker, id: str, app: str, version: str, schedules: Sequence[str]
    ) -> None:
        self._worker = worker
        self._began = time.monotonic()
        settings = worker.settings
        self.facts: dict[str, Any] = {
            "id": id,
            "host": socket.gethostname(),
            "process": os.getpid(),
            "app": _short(app, 512),
            "queues": [_short(name, 512) for name in settings.queues[:MOST_NAMES]],
            "concurrency": settings.concurrency,
            "pool": settings.pool,
            "unkeyed": settings.unkeyed,
            "since": round(time.time(), 3),
            "version": version,
            "schedules": [_short(name, 128) for name in sorted(schedules)[:MOST_NAMES]],
        }

    def text(self, state: str, answers: Mapping[str, Any]) -> str:
        """Return the text of this moment; ``answers`` by the numbers of their requests."""
        figures = self._worker.figures()
        told = {
            **self.facts,
            # Those who read it may have another clock.
            "seconds": round(time.monotonic() - self._began, 3),
            "state": state,
            "handled": figures.handled,
            "failed": figures.failed,
            "lost": figures.lost,
            "answers": answers,
        }
        running = self._running()
        for most, keys, length in LIMITS:
            told["running"] = [
                {**one, "keys": [_short(key, length) for key in one["keys"][:keys]]}
                for one in running[:most]
            ]
            found = json.dumps(told)
            if len(found) <= MOST_BYTES:
                return found
        return json.dumps({**told, "running": [], "answers": {}, "queues": [], "schedules": []})

    def _running(self) -> list[dict[str, Any]]:
        """Return the messages whose handlers run, those that run for longest first."""
        now = time.monotonic()
        found = []
        for one in list(self._worker._owner.state.executions.values()):
            if one.started is None or one.ended is not None:
                continue
            held = details(one.held)
            entry = {name: held[name] for name in ("queue", "task", "keys", "attempt")}
            # As text, for not all that read JSON know such numbers.
            entry["id"] = str(held["id"])
            entry["seconds"] = round(now - one.started, 3)
            found.append(entry)
        return sorted(found, key=lambda one: -float(one["seconds"]))


def stacks_answer(stacks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the stacks of handlers as an answer, as many as there is room for.

    ``left_out`` says how many there was no room for.
    """
    found: list[dict[str, Any]] = []
    left = MOST_OF_ANSWER
    for one in stacks:
        told = {
            **one,
            "id": str(one["id"]),
            "keys": [_short(key, 256) for key in one["keys"][:8]],
            "stack": _middle_out(one["stack"], MOST_OF_STACK),
        }
        left -= len(json.dumps(told))
        if left < 0:
            break
        found.append(told)
    return {"stacks": found, "left_out": len(stacks) - len(found)}


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _middle_out(text: str, length: int) -> str:
    """Return the begin and the end of a long text: both tell more than what is between."""
    if len(text) <= length:
        return text
    return f"{text[: length // 3]}\n  …\n{text[-(length * 2 // 3) :]}"


MOST_BYTES = 60_000
"""Of a text; an engine takes some more."""
MOST_OF_ANSWER = 30_000
MOST_OF_STACK = 6_000
MOST_NAMES = 50
LIMITS = ((64, 8, 256), (64, 8, 32), (64, 2, 32), (16, 2, 32), (0, 0, 1))
"""Messages that are told of, keys of each, characters of a key: the first that fit are taken."""
