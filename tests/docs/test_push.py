"""The push service of the examples, where its demo cannot see to it that something goes wrong."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from interlock import Retry, connect
from tests.docs.running import ROOT


def test_an_event_whose_handler_died_halfway_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples" / "push")
    from delivery import Delivery, Looked, Written
    from inbox import Inbox
    from state import Gateway, Presence, State

    published: list[bytes] = []

    class Topics:
        async def publish(self, _: str, message: bytes) -> None:
            published.append(message)
            if len(published) % 2 == 1:
                raise ConnectionError("as if the gateway had been killed here")

    async def run(state: State) -> None:
        topics: Any = Topics()
        inbox = Inbox(tmp_path / "inbox.db")
        delivery = Delivery(state, inbox, topics)
        async with connect("memory://") as client:
            event: Any = Written | Looked
            queue: Any = client.queue("events", event, retry=Retry(first=0.01))
            for text in ("one", "two"):
                await queue.put(Written("ann", "bob", text), keys="ann")
            consuming = asyncio.create_task(queue.consume(delivery.handle, threads=4))
            await queue.join(timeout=20)
            assert state.users["ann"].unread == inbox.unread("ann") == 2
            assert [message.text for message in inbox.after("ann", 0, 9)] == ["one", "two"]
            # An app that says it has seen what was never written has seen what there is.
            await queue.put(Looked("ann", 10**9), keys="ann")
            await queue.put(Written("ann", "bob", "three"), keys="ann")
            await queue.join(timeout=20)
            assert state.users["ann"].unread == inbox.unread("ann") == 1
            consuming.cancel()
        inbox.close()

    name = f"push-{uuid.uuid4().hex[:8]}"
    state = State.open(name)
    try:
        state.gateways["a"] = Gateway(url="ws://", pid=1, users=1)
        state.gateways.persist("a")
        state.users["ann"] = Presence(app_id=1, token="", gateway="a", background=True)
        asyncio.run(run(state))
    finally:
        State.remove(name)
