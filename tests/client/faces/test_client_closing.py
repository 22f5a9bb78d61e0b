"""A handle that is closed while others of its client are in use."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from interlock import ShutDown, connect
from interlock.client.request import Request
from interlock.client.session import Session
from interlock.client.wire import messages as wire
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


@pytest.mark.parametrize("engine", ["redis", "hub"])
@pytest.mark.parametrize("face", ["sync", "asyncio"])
def test_what_an_ended_call_has_leased_is_returned_although_the_client_closes_too(
    request: pytest.FixtureRequest, engine: str, face: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, name = request.getfixturevalue(f"{engine}_url"), f"closing-{face}"
    taking = threading.Event()
    take = wire.take

    def taken(engine: Any, session: Session[Any], *asked: Any) -> Request[Any]:
        taking.set()
        if session.undoing:
            # The ended call, repeated: it finds a message. Then the client closes.
            other.queue(name).put("a")
        found = yield from take(engine, session, *asked)
        if session.undoing:
            client.close()
        return found

    async def main() -> None:
        async with client.aio as aio:
            queue = aio.queue(name, lease=LONG)
            getting = asyncio.create_task(queue.get(timeout=LONG))
            await asyncio.to_thread(taking.wait, LONG)
            await queue.close()
            with pytest.raises(ShutDown):
                await getting

    with connect(url) as other, connect(url) as client, ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(wire, "take", taken)
        if face == "asyncio":
            asyncio.run(main())
        else:
            queue = client.queue(name, lease=LONG)
            getting = pool.submit(queue.get, timeout=LONG)
            assert taking.wait(LONG)
            queue.close()
            with pytest.raises(ShutDown):
                getting.result(LONG)
        monkeypatch.setattr(wire, "take", take)
        with other.queue(name).get_nowait() as payload:
            assert payload == "a"
