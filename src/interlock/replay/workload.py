"""The work of a handler on each message of a trace: `sleep:1ms`, `spin:100us`, `hash`, or a
function of one's own, `module:function`.

A `Workload` can be pickled, so that a process pool's workers get the same one.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import pickle
import re
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from interlock.replay.trace import Message


class WorkloadError(ValueError):
    """A `--work` that is invalid or not found; the text gives the allowed values."""


@dataclass(frozen=True)
class Workload:
    """The work on a message. Made by `parse`."""

    spec: str
    """Text as it was given, such as "sleep:1ms"."""

    function: Callable[[Message], object]
    """Handles one message on a thread or in a process."""

    coroutine: Callable[[Message], Coroutine[Any, Any, object]] | None = None
    """Handles one message on an event loop without blocking it, if the work allows."""


def parse(spec: str) -> Workload:
    """Return the work that `spec` names. Raises WorkloadError for an invalid one.

    sleep:TIME waits, spin:TIME computes for that much processor time, hash digests 256 KiB made
    from the message (hashlib releases the GIL), recorded waits for as long as a worker recorded
    that the message was handled, module:function calls it with the `Message`. TIME is a number with
    ns, us, ms or s. An `async def` function runs on event loops.
    """
    name, colon, rest = spec.partition(":")
    if spec == "recorded":
        return Workload(spec, sleep_as_recorded, sleep_as_recorded_on_loop)
    if spec == "hash":
        return Workload(spec, hash_message)
    if name == "sleep" and colon:
        seconds = duration(rest)
        return Workload(spec, partial(sleep, seconds), partial(sleep_on_loop, seconds))
    if name == "spin" and colon:
        return Workload(spec, partial(spin, duration(rest)))
    if colon and name and rest:
        return _found(spec, name, rest)
    raise WorkloadError(
        f"work {spec!r}; allowed: sleep:1ms, spin:100us, hash, recorded, module:function"
    )


def check_picklable(work: Workload) -> None:
    """Raise WorkloadError if the work cannot be sent to a process pool."""
    try:
        pickle.dumps(work.function)
    except Exception as error:
        raise WorkloadError(f"work {work.spec!r} cannot go to another process: {error}") from error


def duration(text: str) -> float:
    """Return the seconds of a text such as "1ms", "100us", "0.5s".

    Raises WorkloadError if the text is not a time.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)(ns|us|µs|ms|s)", text.strip())
    if match is None:
        raise WorkloadError(f"time {text!r}; allowed: a number with ns, us, ms or s, such as 1ms")
    return float(match[1]) * _UNITS[match[2]]


def sleep(seconds: float, message: Message) -> None:
    """Wait, like a handler that calls another service."""
    time.sleep(seconds)


async def sleep_on_loop(seconds: float, message: Message) -> None:
    """Wait as `sleep` does, on an event loop."""
    # Imported here: a process pool's workers and `--help` need no asyncio.
    import asyncio

    await asyncio.sleep(seconds)


def sleep_as_recorded(message: Message) -> None:
    """Wait for as long as its handling took; not at all if that is unknown."""
    time.sleep(max(message.took or 0.0, 0.0))


async def sleep_as_recorded_on_loop(message: Message) -> None:
    """Wait as `sleep_as_recorded` does, on an event loop."""
    await sleep_on_loop(max(message.took or 0.0, 0.0), message)


def spin(seconds: float, message: Message) -> None:
    """Compute in Python for that much processor time, so that threads really share the GIL: with
    wall-clock time, waiting for the GIL would count as work."""
    end = time.thread_time_ns() + int(seconds * 1e9)
    while time.thread_time_ns() < end:
        pass


def hash_message(message: Message) -> str:
    """Digest 256 KiB made from the message."""
    seed = repr((message.id, message.keys, message.shared)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(seed * (HASHED_BYTES // len(seed) + 1)).hexdigest()


def _found(spec: str, module: str, name: str) -> Workload:
    # A console script has its own folder first on the path, not the current one.
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        # A module may raise any exception while it is imported.
        raise WorkloadError(f"work {spec!r}: cannot import {module!r}: {error}") from error
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise WorkloadError(f"work {spec!r}: {module!r} has no {name!r}") from None
    if not callable(found):
        raise WorkloadError(
            f"work {spec!r}: {name!r} is {type(found).__name__}; allowed: a callable"
        )
    if inspect.iscoroutinefunction(found):
        return Workload(spec, partial(run_coroutine, found), found)
    return Workload(spec, found)


def run_coroutine(
    function: Callable[[Message], Coroutine[Any, Any, object]], message: Message
) -> object:
    """Run a coroutine function to its end on a loop that this thread keeps."""
    kept = getattr(_thread, "kept", None)
    if kept is None:
        kept = _thread.kept = _Loop()
    return kept.loop.run_until_complete(function(message))


class _Loop:
    """An event loop that is closed when its thread ends and drops it."""

    def __init__(self) -> None:
        import asyncio

        self.loop = asyncio.new_event_loop()

    def __del__(self) -> None:
        self.loop.close()


HASHED_BYTES = 256 * 1024
_thread = threading.local()
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
