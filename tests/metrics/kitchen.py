"""An app whose worker has a figure of each kind to tell."""

from __future__ import annotations

import time

from interlock import Reject, Retry, RetryAfter
from interlock.app import App

app = App(retry=Retry(attempts=2, first=0.01))
_asked: set[int] = set()


@app.task(keys="table:{table}")
def serve(table: int) -> None:
    """Takes no time."""


@app.task(queue="stove")
def cook(seconds: float) -> None:
    """Takes its time."""
    time.sleep(seconds)


@app.task(queue="stove", keys="pan")
def fry(number: int) -> None:
    """Comes to something else by its number."""
    if number % 4 == 0:
        raise Reject("burnt")
    if number % 4 == 1:
        raise ValueError("too hot")
    if number % 4 == 2 and number not in _asked:
        _asked.add(number)
        raise RetryAfter(0.01, attempt=False)
