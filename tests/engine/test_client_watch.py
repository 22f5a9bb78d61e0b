"""What a client says unasked: the same words as a queue in process."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator

import pytest

from interlock import connect
from interlock.engine.client import Client
from interlock.engine.watching import Watch

LOGGER = "interlock.queue"


@pytest.fixture
def client(engine_port: int) -> Iterator[Client]:
    with connect(f"redis://127.0.0.1:{engine_port}") as opened:
        yield opened


class Heard(logging.Handler):
    """Waits for lines of the log."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._said = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self._said:
            self.lines.append(record.getMessage())
            self._said.notify_all()

    def wait(self, words: str) -> str:
        with self._said:
            assert self._said.wait_for(lambda: self._with(words) != "", 30), self.lines
        return self._with(words)

    def _with(self, words: str) -> str:
        return next((line for line in self.lines if words in line), "")


@pytest.fixture
def heard() -> Iterator[Heard]:
    handler = Heard()
    logging.getLogger(LOGGER).addHandler(handler)
    yield handler
    logging.getLogger(LOGGER).removeHandler(handler)


def test_what_waits_too_long_is_said_with_its_chain(client: Client, heard: Heard) -> None:
    queue = client.queue(uuid.uuid4().hex, slow_wait=0.2)
    other = client.queue(queue.name, slow_wait=0)
    first = other.put("holds", keys="k")
    with other.get():
        id = queue.put("waits", keys="k")
        line = heard.wait("has waited")
    assert f"queue {queue.name!r}: message {id} has waited" in line
    assert f"key k, 1 ahead: message {first} leased" in line


def test_what_is_handled_too_long_is_said(client: Client, heard: Heard) -> None:
    queue = client.queue(uuid.uuid4().hex, slow_wait=0.2, lease=0.6)
    id = queue.put("hangs", keys="k")
    with queue.get():
        line = heard.wait("has been handled for")
    assert f"queue {queue.name!r}: message {id} has been handled for" in line


def test_a_deep_queue_is_said_and_the_key_that_serialises_it(client: Client, heard: Heard) -> None:
    queue = client.queue(uuid.uuid4().hex, slow_wait=0.2, warn_depth=20, warn_lane_depth=10)
    queue.put_many(range(30), keys="k")
    heard.wait(f"queue {queue.name!r} holds 30 messages")
    heard.wait("nearly all messages share the key k")
    heard.wait("30 messages stand on the key k")


def test_readers_of_a_key_are_not_said_to_be_serialised_by_it(client: Client, heard: Heard) -> None:
    queue = client.queue(uuid.uuid4().hex, slow_wait=0.2, warn_depth=20, warn_lane_depth=10)
    queue.put_many(range(30), keys=lambda n: f"own {n}", shared="k")
    # The last line of a look, so that what might be said before it was.
    heard.wait("30 messages stand on the key k")
    assert not any("serialised" in line for line in heard.lines)


def test_nothing_is_looked_at_where_nothing_was_put(client: Client) -> None:
    queue = client.queue(uuid.uuid4().hex)
    queue.stats()
    watch: Watch = queue._handle.watch
    assert watch.due is None
    queue.put(1)
    due = watch.due
    assert due is not None
    queue.put(2)
    assert watch.due == due
