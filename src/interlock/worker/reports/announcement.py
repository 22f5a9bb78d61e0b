"""The text with which a worker announces itself to an engine, and its answers to requests.

The text is JSON, so that any program can read it, and never longer than the engine's limit. A text
that would be longer is shortened: it has fewer messages, and fewer keys of each.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interlock.worker.message.execution import details

if TYPE_CHECKING:
    from interlock.worker.worker import Worker

__all__ = ["Description", "stacks_answer"]


class Description:
    """The facts of one worker that do not change, and the text that combines them with those that
    do."""

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
        """Return the text for the present moment; ``answers`` maps request numbers to answers."""
        figures = self._worker.figures()
        told = {
            **self.facts,
            # The readers' clocks may differ from this one.
            "seconds": round(time.monotonic() - self._began, 3),
            "state": state,
            "relay": _short(self._worker.relay, 256),
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
        """Return the messages whose handlers run, the longest-running first."""
        now = time.monotonic()
        found = []
        for one in list(self._worker._owner.state.executions.values()):
            if one.started is None or one.ended is not None:
                continue
            held = details(one.held)
            entry = {name: held[name] for name in ("queue", "task", "keys", "attempt")}
            # As text, because not every JSON reader handles numbers this large.
            entry["id"] = str(held["id"])
            entry["seconds"] = round(now - one.started, 3)
            found.append(entry)
        return sorted(found, key=lambda one: -float(one["seconds"]))


def stacks_answer(stacks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the stacks of handlers as an answer, as many as fit.

    ``left_out`` says how many did not fit.
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
    """Return the beginning and the end of a long text: they say more than its middle."""
    if len(text) <= length:
        return text
    return f"{text[: length // 3]}\n  …\n{text[-(length * 2 // 3) :]}"


MOST_BYTES = 60_000
"""Length limit of a text; the engine's own limit is slightly higher."""
MOST_OF_ANSWER = 30_000
MOST_OF_STACK = 6_000
MOST_NAMES = 50
LIMITS = ((64, 8, 256), (64, 8, 32), (64, 2, 32), (16, 2, 32), (0, 0, 1))
"""Limits: messages, keys of each, characters of a key; the first ones that fit are taken."""
