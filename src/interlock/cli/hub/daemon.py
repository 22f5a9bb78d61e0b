"""Background mode: detach once the process has started well."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO


def detached(serve: Callable[[Callable[[str], None]], int]) -> int:
    """Run `serve` in a process of its own session, and return here when it is ready or has failed.

    `serve` gets a function to call with its ready line when it serves. Then this prints the line
    and returns 0, and the other process's standard output and errors are discarded from there on.
    If `serve` ends before that, this returns the same exit code; its output is visible, because
    until then both have the same standard error. Only for a process with one thread: a fork has no
    others.
    """
    reading, writing = os.pipe()
    first = os.fork()
    if first:
        os.close(writing)
        os.waitpid(first, 0)
        return _outcome(reading)
    code, pipe = BROKEN, open(writing, "w", encoding="utf-8")  # noqa: SIM115
    try:
        os.close(reading)
        os.setsid()
        # Not the leader of its session, so it can never acquire a terminal.
        if os.fork():
            os._exit(0)
        code = serve(lambda line: _ready(pipe, line))
        if not pipe.closed:
            _tell(pipe, f"{code}\n")
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        # The parent's exit handlers belong to the parent.
        sys.stderr.flush()
        os._exit(code)


def _ready(pipe: TextIO, line: str) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    os.close(nowhere)
    _tell(pipe, f"ready\n{line}")


def _tell(pipe: TextIO, text: str) -> None:
    # The starter may have exited.
    with suppress(BrokenPipeError), pipe:
        pipe.write(text)


def _outcome(reading: int) -> int:
    """Report the result, and return the exit code of the parent."""
    with open(reading, encoding="utf-8") as pipe:
        word, _, line = pipe.read().partition("\n")
    if word == "ready":
        print(line, flush=True)
        return 0
    if word.isdecimal():
        return int(word)
    print("interlock: the hub ended before it was ready", file=sys.stderr)
    return BROKEN


BROKEN = 1
