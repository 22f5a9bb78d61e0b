"""What a server refuses, as the errors of Interlock, and what to do about it."""

from __future__ import annotations

import re

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
    if code in ("NOPERM", "NOAUTH", "WRONGPASS") or re.search(FORBIDDEN, str(error)):
        return EngineUnavailable(advised(f"{address} refuses il1_{function}: {error}"))
    if code in ("MOVED", "ASK"):
        return EngineUnavailable(advised(f"{address} has not queue {name!r}: {error}"))
    return InterlockError(advised(f"{address} refuses il1_{function} of queue {name!r}: {error}"))


def advised(text: str) -> str:
    """A text with what a server said, and what to do about that, where it is not plain."""
    for said, advice in ADVICE.items():
        if re.search(rf"\b{said}\b", text) and advice not in text:
            return f"{text}; {advice}"
    return text


PASSING = frozenset(
    {
        *("LOADING", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "READONLY", "BUSY", "UNKILLABLE"),
        # Its disk is full or failed; too few replicas are linked.
        *("MISCONF", "NOREPLICAS"),
    }
)
"""Codes of a server that is starting, or being replaced, or that somebody is about to mend: what is
refused so was not done, and is asked again for as long as the call has time."""

FORBIDDEN = "(The user executing the script can't|ACL failure in script)"
"""What Redis 7.0, and later ones and Valkey, say where a user may call a function, and not what the
function does."""

RIGHTS = (
    "+@hash +@list +@set +@sortedset +@string +del +unlink +exists +rename +pexpire +time +scan "
    "+ping +fcall +function|load ~il:*"
)
"""Of a user of Redis: all that a client, a worker and `interlock queue` need."""

_WHO = "say who asks: redis://USER:PASSWORD@HOST:PORT"
_MAY_NOT = f"its user may not do that; on a Redis it needs {RIGHTS}"
ADVICE = {
    "MISCONF": "it cannot save, and takes no writes until it can: look for room on its disk, the "
    "rights of its folder and its log",
    "NOREPLICAS": "too few replicas follow it for its min-replicas-to-write",
    "MASTERDOWN": "it is a replica that has lost its primary; the URL has to name the primary",
    "READONLY": "it is a replica; the URL has to name the primary",
    "LOADING": "it reads its data from the disk; ?timeout=SECONDS in the URL waits longer for that",
    "BUSY": "a script of somebody's runs there without end; SCRIPT KILL or FUNCTION KILL ends it",
    "CLUSTERDOWN": "part of the cluster has no server; redis-cli --cluster check tells which",
    "MOVED": "it is one node of a cluster: redis+cluster://HOST:PORT finds all",
    "NOAUTH": _WHO,
    "WRONGPASS": _WHO,
    "NOPERM": _MAY_NOT,
    FORBIDDEN: _MAY_NOT,
    "unknown command 'FCALL'": "this server has no queues: Redis 7 has, and a hub of this release",
}
"""What a server says, and what helps. One that says several of them is told of the first."""
