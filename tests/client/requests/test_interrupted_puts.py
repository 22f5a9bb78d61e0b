"""A put that is interrupted, or whose sender dies, holds up no put of another thread."""

from __future__ import annotations

import collections
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from interlock import EngineUnavailable
from interlock.client.requests import thread_puts
from interlock.client.requests.coalesced_puts import Send
from interlock.client.requests.thread_puts import ThreadPuts
from interlock.client.wire.messages import Message
from interlock.message import Put
from tests.executor.test_executor_interrupted import by_instructions, interrupted
from tests.support import until

LONG = 30.0
FILES = ("requests/thread_puts.py",)


class Sender:
    """Puts that an engine in this thread answers."""

    def __init__(self, timeout: float = 20, linger: float = 0) -> None:
        self.puts = ThreadPuts(self.carry, self.alone, timeout, linger)
        self.calls: list[int] = []
        """The number of messages of each call."""

    def carry(self, sends: list[Send]) -> None:
        self.calls.append(len(sends))
        for send in sends:
            send.put = Put(len(self.calls), False)

    def alone(self, message: Message, end: float | None, bounded: bool) -> Put:
        self.calls.append(0)
        return Put(len(self.calls), False)

    def put(self, timeout: float | None = None) -> Put:
        return self.puts.put(Message(b"p"), timeout, timeout is not None)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@by_instructions
@pytest.mark.parametrize("main", ["sends", "waits"])
def test_ctrl_c_at_any_point_of_a_put_leaves_no_other_put_waiting(
    main: str, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_puts, "_AGAIN", 0.05)
    at = 0
    going_on = True
    while going_on:
        at += 1
        sender = Sender()
        puts, carry = sender.puts, sender.carry
        others: list[Future[Put]] = []
        left = threading.Event()
        reached = threading.Event()

        def first(sends: list[Send], sender: Sender = sender, others: Any = others,
                  left: Any = left, reached: Any = reached) -> None:  # fmt: skip
            sender.puts._carry = sender.carry
            if main == "sends":
                others.append(pool.submit(sender.put))
            reached.set()
            until(lambda: bool(sender.puts._pending) or left.is_set())
            sender.carry(sends)

        puts._carry = first
        if main == "waits":
            others.append(pool.submit(sender.put))
            assert reached.wait(LONG)
        going_on = interrupted(sender.put, at, files=FILES)
        left.set()
        puts._carry = carry
        others.append(pool.submit(sender.put))
        for other in others:
            assert other.result(LONG), f"point {at}"
    assert at > 10


def test_a_call_that_ends_the_sending_thread_fails_its_puts_and_no_later_one(
    pool: ThreadPoolExecutor,
) -> None:
    sender = Sender(linger=0.01)

    def broken(sends: list[Send]) -> None:
        sender.puts._carry = sender.carry
        raise SystemExit

    sender.puts._carry = broken
    with pytest.raises(EngineUnavailable, match="SystemExit") as caught:
        sender.put()
    assert caught.value.unknown
    assert pool.submit(sender.put).result(LONG)


def test_two_puts_that_gather_at_once_are_both_sent(pool: ThreadPoolExecutor) -> None:
    sender = Sender(linger=0.01)
    second: list[Future[Put]] = []
    appended: list[Send] = []

    class Pending(collections.deque[Send]):
        def append(self, send: Send) -> None:
            super().append(send)
            appended.append(send)
            if len(appended) == 1:
                # Before the first has seen how many there are.
                second.append(pool.submit(sender.put))
                until(lambda: len(appended) == 2)

    sender.puts._pending = Pending()
    assert sender.put()
    assert second[0].result(LONG)
    assert sum(sender.calls) == 2


def test_linger_is_not_part_of_the_time_that_the_engine_has() -> None:
    send = Send(2, Message(b"p"), None, False, linger=5)
    assert send.deadline - send.since == pytest.approx(7)
