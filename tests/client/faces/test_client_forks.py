"""A client in a process that was forked: what is the parent's stays the parent's."""

from __future__ import annotations

import gc
import os
import signal
import uuid
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from interlock import EngineUnavailable, connect
from interlock.client.faces.queue import RemoteQueue


@pytest.fixture
def queue(engine_port: int) -> Iterator[RemoteQueue[Any]]:
    with connect(f"redis://127.0.0.1:{engine_port}") as opened:
        yield opened.queue(uuid.uuid4().hex)


def test_a_forked_child_has_its_own_connection_and_consumer_names(queue: RemoteQueue[Any]) -> None:
    queue.put_many(range(10))
    lease = queue.get()
    with warnings.catch_warnings():
        # Threads of other tests may still run.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        status = 1
        try:
            with queue.get() as payload:
                status = 0 if payload == 1 else 2
            del lease
            gc.collect()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    lease.ack()
    with queue.get() as payload:
        assert payload == 2
    stats = queue.stats()
    assert (stats.acks, stats.retries) == (3, 0)


@pytest.mark.parametrize("uses", [False, True])
def test_a_child_forked_in_a_signal_handler_does_not_continue_the_interrupted_call(
    queue: RemoteQueue[Any], uses: bool
) -> None:
    children: list[int] = []

    def fork(*_: object) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child:
            children.append(child)
        elif uses:
            # Already in the handler it has a consumer and a connection of its own.
            queue.put("of the handler")

    me = os.getpid()
    before = signal.signal(signal.SIGALRM, fork)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with queue.get(timeout=30) if not uses else queue.get() as payload:
            assert os.getpid() == me
            assert payload == ("of the handler" if uses else "of the child")
    except EngineUnavailable as error:
        if os.getpid() == me:
            raise
        # In the child.
        status = 1
        try:
            status = 0 if error.unknown and "forked" in str(error) else 2
            queue.put("of the child")
        finally:
            os._exit(status)
    finally:
        if os.getpid() != me:
            os._exit(3)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0]
    stats = queue.stats()
    assert (stats.puts, stats.acks, stats.retries) == (1 + uses, 1, 0)
