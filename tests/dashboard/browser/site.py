"""A dashboard that serves, as the tests name its pages, and workers that announce themselves."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

from interlock.client.faces.queue import RemoteQueue

T = TypeVar("T", bound=Callable[..., None])


def each_engine(test: T) -> T:
    """Have a test run on Redis and on a hub in any case."""
    test.on_each_engine = True  # type: ignore[attr-defined]
    return test


@dataclass(frozen=True)
class Site:
    """One dashboard."""

    address: str
    engine: str

    def at(self, *segments: str, **query: str) -> str:
        """The address of a page."""
        path = "/".join(quote(segment, safe="") for segment in segments)
        asked = "&".join(f"{name}={quote(value)}" for name, value in query.items())
        return f"{self.address}/{path}" + (f"?{asked}" if asked else "")


@contextmanager
def announced(queue: RemoteQueue[Any], name: str, **facts: Any) -> Iterator[list[str]]:
    """A worker that announces itself and answers requests; the list has the requests."""
    asked: list[str] = []
    answers: dict[str, Any] = {}
    stop = threading.Event()

    def tell() -> None:
        while True:
            said = {"id": name, "queues": [queue.name], "answers": answers, **facts}
            for number, text in queue._announce(name, 10, json.dumps(said)):
                request = json.loads(text)["ask"]
                asked.append(request)
                if request == "stacks":
                    answers[str(number)] = {"stacks": ["Thread handler-1\n  in ship <b>"]}
            if stop.wait(0.05):
                return

    thread = threading.Thread(target=tell, name="announcer")
    thread.start()
    try:
        yield asked
    finally:
        stop.set()
        thread.join()
        queue._announce(name, 0, "")
