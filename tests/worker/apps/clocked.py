"""An app with a tick a second, whose workers can be killed at the worst moments."""

from __future__ import annotations

import datetime as dt
import os
import signal
from typing import Any

from interlock import App, Retry
from tests.worker.apps.shop import note

app = App(audit=True, retry=Retry(first=0.01))
sent = 0


def ticked(when: dt.datetime) -> list[int]:
    global sent
    sent += 1
    dies("before")
    return [int(when.timestamp())]


def dies(where: str) -> None:
    """With its first tick, at once and without a word."""
    if os.environ.get("DIES") == where and sent:
        os.kill(os.getpid(), signal.SIGKILL)


@app.after_send
def has_sent(*_: Any) -> None:
    dies("after")


@app.every("1s", missed="all", args=ticked)
@app.task
def tick(at: int) -> None:
    note("done", at)
