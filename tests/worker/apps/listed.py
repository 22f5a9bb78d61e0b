"""Tasks that are given lists, for all pools; see ``test_runs``.

The environment names a folder: each handler adds a line to its file `lists`, with its numbers, and
waits until there is a file `gate`.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from interlock import App, Reject, Retry, RetryAfter, Run, current_lease

app = App(retry=Retry(3, first=0, jitter=False), send_timeout=60)


def _begun(numbers: Run[Any]) -> None:
    folder = Path(os.environ["LISTED_FOLDER"])
    attempts = [message.attempt for message in numbers.messages]
    line = f"{' '.join(map(str, numbers))}|{' '.join(map(str, attempts))}\n"
    place = os.open(folder / "lists", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(place, line.encode())
    os.close(place)
    while not (folder / "gate").exists():
        time.sleep(0.001)


def _handle(numbers: Run[int]) -> None:
    _begun(numbers)
    assert current_lease().id == numbers.messages[0].id
    for count, number in enumerate(numbers):
        numbers.done(count)
        if number == 100:
            raise ValueError("not 100")
        if number == 200:
            raise Reject("not 200")
        if number == 300 and numbers.messages[count].attempt == 1:
            raise RetryAfter(0.001)
        if number == 400:
            numbers.done(count + 1)
            raise ValueError("after all that is done")
        if number == 500:
            os.kill(os.getpid(), signal.SIGKILL)


@app.task(keys=lambda numbers: "k", run=100)
def handle(numbers: Run[int]) -> None:
    """Report each number, and fail at some."""
    _handle(numbers)


@app.task(keys=lambda numbers: "k", run=100)
async def ahandle(numbers: Run[int]) -> None:
    """The same as a coroutine function."""
    _handle(numbers)


@app.task(keys=lambda numbers: "k", run=100)
def silent(numbers: Run[int]) -> None:
    """Report nothing."""
    _begun(numbers)
    if 100 in numbers:
        raise ValueError("not 100")
    if 500 in numbers:
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(keys=lambda numbers: "k", run=100, retry=Retry(1))
def once(numbers: Run[int]) -> None:
    """Report nothing, with one attempt for each."""
    silent.function(numbers)


@app.task(keys=lambda numbers: "k", run=100, retry=Retry(1), name="hangs-silently", timeout=0.3)
def hangs_silently(numbers: Run[int]) -> None:
    """Report nothing; the handler of a list does not end."""
    _begun(numbers)
    while len(numbers) > 1 and not (Path(os.environ["LISTED_FOLDER"]) / "late").exists():
        time.sleep(0.001)


@app.task(keys=lambda numbers: "k", run=100, timeout=0.3, retry=Retry(1))
def hangs(numbers: Run[int]) -> None:
    """Report the first one, then wait for a gate that never opens if 100 is in the list."""
    _begun(numbers)
    numbers.done(1 if len(numbers) > 1 else 0)
    while 100 in numbers and not (Path(os.environ["LISTED_FOLDER"]) / "late").exists():
        time.sleep(0.001)


@app.task(keys=lambda number: "k")
def plain(number: int) -> None:
    """A task that is given single calls, on the same queue."""
    _begun(Run([number]))
