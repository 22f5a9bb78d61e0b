"""Log lines that a client writes unasked: the same words as a queue in process."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from interlock import Retry, connect
from interlock.client.connection import server_settings
from interlock.client.faces.client import Client
from interlock.client.requests.queue_reports import Watch

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
    heard.wait("30 messages have the key k")


def test_readers_of_a_key_are_not_said_to_be_serialised_by_it(client: Client, heard: Heard) -> None:
    queue = client.queue(uuid.uuid4().hex, slow_wait=0.2, warn_depth=20, warn_lane_depth=10)
    queue.put_many(range(30), keys=lambda n: f"own {n}", shared="k")
    # The last line of a look, so that what might be said before it was.
    heard.wait("30 messages have the key k")
    assert not any("serialised" in line for line in heard.lines)


def test_messages_parked_behind_a_held_one_are_said(client: Client, heard: Heard) -> None:
    declared: dict[str, Any] = {"behind": "park", "retry": Retry(attempts=1, then="hold")}
    queue = client.queue(uuid.uuid4().hex, **declared)
    off: dict[str, Any] = {"slow_wait": 0, "warn_depth": 0, "warn_lane_depth": 0}
    silent = client.queue(queue.name, **declared, **off)
    stuck = silent.put("stuck", keys=["k", "l"])
    lease = queue.get()
    silent.put_many(["a", "b"], keys=["l", "m"])
    assert queue._handle.watch.due is None
    lease.nack()
    line = heard.wait("2 messages parked; on one of the keys k, l for ")
    assert line.startswith(f"queue {queue.name!r}: ")
    assert line.endswith(f" s, behind message {stuck}")


def test_messages_parked_under_a_paused_key_are_said(client: Client, heard: Heard) -> None:
    queue = client.queue(uuid.uuid4().hex, behind="park", slow_wait=0.2)
    queue.pause("k")
    queue.put("waits", keys="k")
    heard.wait("1 message parked; on the key k, which is paused")


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


@pytest.fixture
def debug() -> Iterator[list[logging.LogRecord]]:
    """All log lines of handled messages."""
    found: list[logging.LogRecord] = []
    handler = logging.Handler()

    def emit(record: logging.LogRecord) -> None:
        # The first client of a process may also warn of its server's settings.
        if "handled" in vars(record):
            found.append(record)

    handler.emit = emit  # type: ignore[method-assign]
    logger = logging.getLogger(LOGGER)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield found
    logger.setLevel(level)
    logger.removeHandler(handler)


@pytest.fixture(params=["redis_url", "hub_url", "memory"])
def anywhere(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client of each engine."""
    kind = request.param
    with connect("memory://" if kind == "memory" else request.getfixturevalue(kind)) as opened:
        yield opened


def test_each_handled_message_is_said_but_quiet_ones(
    anywhere: Client, debug: list[logging.LogRecord]
) -> None:
    queue = anywhere.queue(uuid.uuid4().hex)
    named: Any = {"keys": "k", "shared": "r"}

    async def on_a_loop() -> list[int]:
        aio = queue.aio
        ids = [await aio.put(0, **named), *await aio.put_many([1, 2], **named)]
        await aio.put(0, **named, quiet=True)
        await aio.put_many([1, 2], **named, quiet=True)
        await aio.put_nowait(0, **named, quiet=True)
        await aio.put_known(0, **named, quiet=True)
        async with await aio.get():
            pass
        for _ in range(7):
            await aio.ack_many(await aio.get_many(1))
        await aio.close()
        return ids

    said = [queue.put(0, **named), *queue.put_many([1, 2], **named)]
    queue.put(0, **named, quiet=True)
    queue.put_many([1, 2], **named, quiet=True)
    queue.put_nowait(0, **named, quiet=True)
    queue.put_known(0, **named, quiet=True)
    with queue.get():
        pass
    for _ in range(3):
        queue.ack_many([queue.get()])
    for _ in range(4):
        queue.get().ack()
    said.append(queue.put(0, **named))
    queue.put(0, **named, quiet=True)
    with queue.consume(lambda payload: None):
        queue.join(30)
    said += asyncio.run(on_a_loop())

    assert sorted(vars(record)["id"] for record in debug) == said
    for record in debug:
        facts = vars(record)
        assert (facts["queue"], facts["keys"], facts["attempt"]) == (queue.name, ["k", "r"], 1)
        assert facts["token"] > 0 and facts["waited"] >= 0 and facts["handled"] >= 0
        words = f"queue {queue.name!r}: message {facts['id']} [k, r] waited "
        assert record.getMessage().startswith(words)
        assert record.levelno == logging.DEBUG


def test_a_quiet_message_stays_so_when_it_comes_again_and_when_it_is_requeued(
    anywhere: Client, debug: list[logging.LogRecord]
) -> None:
    queue = anywhere.queue(uuid.uuid4().hex, retry=Retry(attempts=2, first=0))
    id = queue.put(0, quiet=True, delay=0.001)
    queue.get().nack()
    lease = queue.get()
    assert (lease.attempt, lease.quiet) == (2, True)
    lease.nack()
    queue.requeue(id)
    lease = queue.get()
    assert (lease.attempt, lease.quiet) == (1, True)
    lease.ack()
    assert debug == []


def test_what_waits_behind_a_lease_that_is_held_too_long_is_named_by_who_holds_it(
    anywhere: Client, heard: Heard
) -> None:
    # The producers have exited, like a program that sends and ends.
    sender = anywhere.queue(uuid.uuid4().hex, slow_wait=0)
    queue = anywhere.queue(sender.name, slow_wait=0.2, lease=0.9)
    first = sender.put("holds", keys=["a", "k"])
    lease = queue.get()
    others = [sender.put("waits", keys="k"), sender.put("waits too", shared="k")]
    line = heard.wait("has waited")
    assert f"queue {queue.name!r}: message {others[0]} has waited" in line
    assert "(and 1 more have waited too long)" in line
    assert f"key k, 1 ahead: message {first} leased" in line
    lease.ack()


class Asked:
    """Operations of a queue in which one message never moves; notes which was asked after."""

    name = "asked"

    def __init__(self) -> None:
        self.ids: list[int] = []

    def stats(self, session: object) -> Any:
        return {"unsettled": 1}
        yield

    def explain(self, session: object, what: str, id: int, limit: int) -> Any:
        self.ids.append(id)
        return None
        yield


@pytest.mark.parametrize("slow_wait", [0.2, 10, 60, 600, 86_400])
def test_of_what_is_put_without_end_some_is_asked_after_whatever_the_limit(
    monkeypatch: pytest.MonkeyPatch, slow_wait: float
) -> None:
    now = 1000.0
    monkeypatch.setattr("interlock.client.requests.queue_reports.time.monotonic", lambda: now)
    asked: Any = Asked()
    watch = Watch(asked, slow_wait, 0, 0)
    puts: dict[int, float] = {}
    for id in range(400):
        puts[id] = now
        watch.noted(id)
        if watch.due is not None and watch.due <= now:
            list(watch.look(None))  # type: ignore[arg-type]
            for one in asked.ids:
                assert now - puts[one] >= slow_wait
        now += slow_wait / 100
    assert len(asked.ids) >= 4 and asked.ids[0] == 0


def test_a_log_that_raises_keeps_no_message_from_being_settled(
    anywhere: Client,
    debug: list[logging.LogRecord],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # So that the first call warns of the server's settings as well.
    monkeypatch.setattr(server_settings, "_known", set())
    queue = anywhere.queue(uuid.uuid4().hex)

    def emit(record: logging.LogRecord) -> None:
        raise OSError("no room on the disk of the log")

    (handler,) = (one for one in logging.getLogger(LOGGER).handlers if "emit" in vars(one))
    handler.emit = emit  # type: ignore[method-assign]
    queue.put_many([1, 2, 3])
    queue.get().ack()
    queue.ack_many(queue.get_many(1))
    with queue.consume(lambda payload: None):
        queue.join(60)
    assert queue.stats().acks == 3
    assert "no room on the disk of the log" in capfd.readouterr().err
