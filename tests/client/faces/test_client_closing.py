"""A handle that is closed while others of its client are in use."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from interlock import connect
from interlock.client.request import Request
from interlock.client.session import Session
from tests.executor.executors import LONG


def test_a_call_made_while_another_handle_is_closed_is_not_ended_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    going, found, moved = threading.Event(), threading.Event(), threading.Event()

    class Lock:
        """Says when the call is about to wait for the close."""

        def __init__(self, lock: Any) -> None:
            self.lock = lock

        def __enter__(self) -> None:
            if threading.current_thread() is caller:
                moved.set()
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    def request(session: Session[Any]) -> Request[None]:
        going.set()
        assert found.wait(LONG)
        yield from ()

    interrupt = Session.interrupt

    def slowly(session: Session[Any]) -> None:
        # The call ends, and gives its session back or would, after it was found to be under way.
        found.set()
        assert moved.wait(LONG)
        interrupt(session)

    with connect("memory://") as client:
        queue, other = client.queue("a"), client.queue("a")
        sessions = client._sessions

        def call() -> None:
            sessions.run(other._handle, request)
            moved.set()

        caller = threading.Thread(target=call)
        monkeypatch.setattr(Session, "interrupt", slowly)
        monkeypatch.setattr(sessions, "_ending", Lock(sessions._ending))
        caller.start()
        assert going.wait(LONG)
        other.close()
        caller.join(LONG)
        assert queue.stats().unsettled == 0
