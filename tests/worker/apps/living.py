"""An app with a lifespan and hooks of beginning and end; imported by processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

from interlock import App

app = App()
NOTES = "LIVING"


def note(what: str) -> None:
    with open(os.environ[NOTES], "a") as file:
        file.write(f"{what} {os.getpid()}\n")


@app.lifespan
async def lifespan(of: App) -> AsyncIterator[dict[str, object]]:
    assert of is app
    note("enter")
    if os.environ.get("FAILS") == "lifespan":
        raise ConnectionError("no database")
    yield {"pid": os.getpid(), "loop": id(asyncio.get_running_loop())}
    note("leave")


@app.on_worker_start
def began() -> None:
    note("worker_start")
    if os.environ.get("FAILS") == "hook":
        raise ConnectionError("no database")


@app.on_worker_stop
async def ended() -> None:
    note("worker_stop")


@app.on_process_start
async def process_began() -> None:
    note("process_start")


@app.on_process_stop
def process_ended() -> None:
    note("process_stop")


@app.task(result_ttl=60)
def state() -> list[object]:
    return [app.state["pid"], os.getpid(), False]


@app.task(result_ttl=60)
async def state_async() -> list[object]:
    here = id(asyncio.get_running_loop())
    return [app.state["pid"], os.getpid(), app.state["loop"] == here]
