"""Ctrl-C while a consumer begins, and while it is stopped."""

from __future__ import annotations

import threading
import uuid
from functools import partial

from interlock import KeyedQueue
from interlock.consumer import Consumer
from tests.executor.executors import LONG
from tests.executor.test_executor_interrupted import by_instructions, interrupted
from tests.support import until

FILES = ("interlock/consumer.py",)


def gone(name: str) -> bool:
    # One that was never started may be listed: where Ctrl-C ended its start.
    mine = [thread for thread in threading.enumerate() if thread.name.startswith(name)]
    return not any(thread.is_alive() for thread in mine)


@by_instructions
def test_ctrl_c_at_any_point_of_starting_a_consumer_leaves_no_thread() -> None:
    at = 0
    going_on = True
    while going_on:
        at += 1
        queue: KeyedQueue[str] = KeyedQueue(name=uuid.uuid4().hex)
        consumer = Consumer.__new__(Consumer)
        # Not by consume(): after its return the consumer exists, and no one has a reference.
        begin = partial(Consumer.__init__, consumer, queue, str, 2, LONG, "any")
        going_on = interrupted(begin, at, files=FILES)
        if not going_on:
            consumer.stop()
        until(partial(gone, queue.name))
    assert at > 10


@by_instructions
def test_ctrl_c_at_any_point_of_stopping_a_consumer_leaves_no_thread_asleep() -> None:
    at = 0
    going_on = True
    while going_on:
        at += 1
        queue: KeyedQueue[str] = KeyedQueue(name=uuid.uuid4().hex)
        consumer = queue.consume(str, threads=3, timeout=LONG)
        until(lambda queue=queue: queue._parked() == 3)  # type: ignore[misc]
        going_on = interrupted(consumer.stop, at, files=FILES)
        if not consumer._stopping:
            # It came before there was a stop.
            consumer.stop()
        until(partial(gone, queue.name))
    assert at > 10
