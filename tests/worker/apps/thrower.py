"""The app of the handlers that raise everything; processes of a pool import it too."""

from __future__ import annotations

import asyncio

from interlock.app import App
from tests.consumer.raised import POLICY, throw

app = App(retry=POLICY)


@app.task(keys="{name}")
def plain(name: str) -> None:
    """Raises the one of this name."""
    throw(name)


@app.task(keys="{name}")
async def awaited(name: str) -> None:
    """Raises it after it has given the loop to others."""
    await asyncio.sleep(0)
    throw(name)


@app.task(keys="{name}")
async def left(name: str) -> None:
    """Awaits a task of its own that raises it; SystemExit and its like go through the loop."""
    await asyncio.create_task(asyncio.wait_for(awaited.function(name), 60))


@app.task(keys="{name}", retry=POLICY)
async def unruly(name: str) -> None:
    """Ends the loop that it runs on, as nobody should."""
    loop = asyncio.get_running_loop()
    if name == "stop":
        loop.stop()
        await asyncio.sleep(0)
    elif name == "cancel":
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
