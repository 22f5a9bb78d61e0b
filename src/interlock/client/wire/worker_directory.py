"""Workers that announced themselves at a queue, as il1_workers returns them, and their requests."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from interlock.client.wire.bad_reply import understood
from interlock.client.wire.flat_reply import Parts

Asked = tuple[int, str]
"""A request left for a worker: its number and its text."""


@dataclass(frozen=True, slots=True)
class Announced:
    """A worker, as it announced itself."""

    worker: str
    age: float
    """Seconds since its last announcement."""

    left: float
    """Seconds until it is forgotten."""

    text: str
    """Its whole text; JSON from a worker of Interlock."""

    @property
    def said(self) -> dict[str, Any]:
        """The text as an object; empty if it is not one, because any program may have written
        it."""
        with contextlib.suppress(msgspec.DecodeError, ValueError, RecursionError):
            found = msgspec.json.decode(self.text)
            if isinstance(found, dict):
                return found
        return {}

    def answer(self, number: int | str) -> dict[str, Any] | None:
        """Return its answer to the request with this number; None until it has answered."""
        answers = self.said.get("answers")
        found = answers.get(str(number)) if isinstance(answers, dict) else None
        return found if isinstance(found, dict) else None

    def serves(self, queue: str, at: str) -> bool:
        """Return whether it leases from a queue; ``at``: the queue at which it announced itself."""
        queues = self.said.get("queues") or [at]
        return isinstance(queues, list) and queue in queues


def state_text(said: dict[str, Any]) -> str:
    """Return the state of a worker for people, from its text as an object."""
    state = str(said.get("state", ""))
    return f"{state}, relays" if said.get("relay") else state


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
    # Text that is not UTF-8 stays escaped, because a name is sent back to address the worker.
    name = parts.take().decode(errors="surrogateescape")
    return Announced(name, parts.number() / 1e6, parts.number() / 1e6, parts.text())
