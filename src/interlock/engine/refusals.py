"""What a server refuses, as the errors of Interlock."""

from __future__ import annotations

from interlock.engine.flow import Refused
from interlock.errors import (
    EngineUnavailable,
    Full,
    InterlockError,
    OptionsMismatch,
    ShutDown,
)


class OutOfMemory(Full):
    """The server is at its memory limit; other than for room in a queue, nobody waits for that."""


def error_of(error: Refused, function: str, key: str, address: str) -> Exception:
    """The exception for an error reply that will not pass."""
    code, text = error.code, str(error).partition(" ")[2] or str(error)
    name = key[4:-1]
    if code == "FULL":
        return Full(f"queue {name!r} is full: {text}")
    if code == "OOM":
        return OutOfMemory(
            f"{address} is at its memory limit and takes no puts until messages are settled "
            f"(queue {name!r})"
        )
    if code == "SEALED":
        return ShutDown(f"queue {name!r} is sealed: it takes no puts until it is reopened")
    if code == "OPTIONSMISMATCH":
        return OptionsMismatch(f"queue {name!r} was declared otherwise: {text}")
    if code in ("BADARG", "TOOBIG", "NOTSUPPORTED"):
        return ValueError(f"queue {name!r}: {text}")
    if code in ("NOPERM", "NOAUTH", "WRONGPASS"):
        return EngineUnavailable(f"{address} refuses il1_{function}: {error}")
    return InterlockError(f"{address} refuses il1_{function} of queue {name!r}: {error}")
