"""Workers that announced themselves at a queue, as il1_workers tells them, and their requests."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from interlock.engine.nonsense import understood
from interlock.engine.parts import Parts

Asked = tuple[int, str]
"""A request that somebody left for a worker: its number and its text."""


@dataclass(frozen=True, slots=True)
class Announced:
    """A worker, as it announced itself."""

    worker: str
    age: float
    """Seconds since it did so last."""

    left: float
    """Seconds until it is forgotten."""

    text: str
    """All that it said, JSON of a worker of Interlock."""

    @property
    def said(self) -> dict[str, Any]:
        """The text as an object; empty where it is none, for anybody may have written it."""
        with contextlib.suppress(msgspec.DecodeError, ValueError, RecursionError):
            found = msgspec.json.decode(self.text)
            if isinstance(found, dict):
                return found
        return {}

    def serves(self, queue: str, at: str) -> bool:
        """Return whether it takes from a queue; ``at``: the queue at which it announced itself."""
        queues = self.said.get("queues") or [at]
        return isinstance(queues, list) and queue in queues


@understood
def workers(reply: Sequence[bytes]) -> list[Announced]:
    """Parse the reply of il1_workers."""
    parts = Parts(reply)
    return [_worker(parts) for _ in parts.rest()]


@understood
def requests(reply: Sequence[bytes]) -> list[Asked]:
    """Parse the reply of il1_announce."""
    parts = Parts(reply)
    return [(parts.number(), parts.text()) for _ in parts.rest()]


def _worker(parts: Parts) -> Announced:
    # What is not UTF-8 stays what it is, for a name is given back to ask the worker.
    name = parts.take().decode(errors="surrogateescape")
    return Announced(name, parts.number() / 1e6, parts.number() / 1e6, parts.text())
