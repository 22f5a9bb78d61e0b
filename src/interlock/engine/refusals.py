"""Refusals of servers: the errors of Interlock for them, and what to do about each.

`REFUSALS` is the one table. docs/reference/refusals.md is the same for readers, and a test compares
the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from interlock.engine.request import Refused
from interlock.errors import (
    EngineUnavailable,
    Full,
    InterlockError,
    OptionsMismatch,
    ShutDown,
)

Course = Literal["retry", "raise", "end"]
"""The act of a client after a refusal.

``retry``: asks again as long as the call has time, and then raises EngineUnavailable. ``raise``:
raises at once; a worker and `consume` say so in the log and ask again later. ``end``: raises at
once, and they end with it, for no repeat would help.
"""


class OutOfMemory(Full):
    """The server is at its memory limit; other than for room in a queue, nobody waits for that."""


# Redis 7.0 says of an error in a function where in the library it was.
_BEFORE = r"(?:ERR )?(?:@?user_(?:function|script):\d+: )?(?:ERR |-)?"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that servers say, in one of their wordings or in several."""

    said: str
    """The begin of the reply: a regular expression, behind ``ERR`` if the server says that."""
    course: Course
    who: str
    """The servers that say so."""
    when: str
    advice: str = ""
    raises: str = "EngineUnavailable"
    unsure: bool = False
    """The call may have been done all the same."""
    ends: bool = False
    """The connection is of no use any more."""
    shown: str = ""
    """As the page names it; empty: as `said`."""
    pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)
    anywhere: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        word = r"\b" if self.said[-1].isalpha() else ""
        object.__setattr__(self, "pattern", re.compile(f"{_BEFORE}(?:{self.said}){word}"))
        object.__setattr__(self, "anywhere", re.compile(rf"\b(?:{self.said}){word}"))


def of(reply: str) -> Refusal:
    """The row of the table for an error reply; that of what nobody knows where there is none."""
    return next((row for row in REFUSALS if row.pattern.match(reply)), UNKNOWN)


def course_of(error: Refused, function: str) -> tuple[Course, Refusal]:
    """The course to take after an error reply of a function, and its row."""
    row = of(str(error))
    if row is OOM and function not in GROWING:
        # A configuration, or the library itself, is refused too; there is room again in a while.
        return "retry", row
    return row.course, row


def error_of(error: Refused, function: str, key: str, address: str) -> Exception:
    """The exception for an error reply that is not asked again."""
    code, text = error.code, str(error).partition(" ")[2] or str(error)
    name = key[4:-1]
    if code == "FULL":
        return Full(f"queue {name!r} is full: {text}")
    if code == "OOM" and function in GROWING:
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
    if code in ("MOVED", "ASK"):
        return EngineUnavailable(advised(f"{address} has not queue {name!r}: {error}"))
    course, row = course_of(error, function)
    if course == "end":
        said = f"{address} refuses il1_{function} of queue {name!r}: {error}"
        return InterlockError(advised(said))
    said = f"{address} refuses il1_{function}: {error}"
    return EngineUnavailable(advised(said), unknown=row.unsure)


def said_by(address: str, error: Refused) -> InterlockError:
    """The exception for an error reply to a command that is no function of a queue."""
    kind = InterlockError if of(str(error)).course == "end" else EngineUnavailable
    return kind(advised(f"{address}: {error}"))


def passes(error: Refused) -> bool:
    """Decides if a command that is no function of a queue is worth asking again."""
    return of(str(error)).course == "retry" and LOST not in str(error)


def advised(text: str) -> str:
    """A text with what a server said, and what to do about that, where it is not plain."""
    for row in REFUSALS:
        if row.advice and row.anywhere.search(text) and row.advice not in text:
            return f"{text}; {row.advice}"
    return text


def is_advised(text: str) -> bool:
    """Tells if a text ends with what to do."""
    return any(row.advice and text.endswith(row.advice) for row in REFUSALS)


FORBIDDEN = "(The user executing the script can't|ACL failure in script)"
"""The words of Redis 7.0, and later ones and Valkey, where a user may call a function, and not what
the function does."""

TENANT = (
    "+@hash +@list +@set +@sortedset +@string +del +unlink +exists +rename +pexpire +time "
    "+ping +fcall"
)
"""Of a user of Redis: what a client and a worker need where an operator installs the library."""
RIGHTS = f"{TENANT} +scan +function|load ~il:*"
"""Of an operator: all that `interlock queue` needs too. Who may load functions may replace those
that others call, and so reaches what they reach."""
INSTALL = "an operator installs it: interlock queue install --url redis://USER:PASSWORD@HOST:PORT"

GROWING = ("put", "requeue", "restore")
"""Functions that a server refuses at its memory limit."""

LOST = "Function not found"
"""The words of a server that has no library, or has lost it."""

_WHO = "say who asks: redis://USER:PASSWORD@HOST:PORT"
_MAY_NOT = f"its user may not do that; on a Redis it needs {TENANT} and ~il:* or its own queues"
_ALL = "Redis, Valkey"

OOM = Refusal(
    "OOM",
    "raise",
    f"{_ALL}, hub",
    "It is at its memory limit. Puts are refused; so are calls that declare or operate, which "
    "are asked again",
    raises="Full",
)
REFUSALS = (
    # -- It passes ------------------------------------------------------------------------------
    Refusal(
        "(?i:max number of clients)",
        "retry",
        f"{_ALL}, hub",
        "It has as many connections as it may have, in all or from this address",
        "it has as many connections as its maxclients allows (a hub: or max_per_address)",
        ends=True,
        shown="ERR max number of clients reached",
    ),
    Refusal(
        "LOADING",
        "retry",
        _ALL,
        "It reads its data from the disk",
        "it reads its data from the disk; ?timeout=SECONDS in the URL waits longer for that",
    ),
    Refusal(
        "BUSY",
        "retry",
        _ALL,
        "A script of somebody's runs",
        "a script of somebody's runs there without end; SCRIPT KILL or FUNCTION KILL ends it",
    ),
    Refusal("UNKILLABLE", "retry", _ALL, "A script runs that cannot be ended, for it has written"),
    Refusal(
        "MISCONF",
        "retry",
        f"{_ALL}, hub",
        "Its disk is full or has failed",
        "it cannot save, and takes no writes until it can: look for room on its disk, the "
        "rights of its folder and its log",
    ),
    Refusal(
        "NOREPLICAS",
        "retry",
        _ALL,
        "Too few replicas follow it",
        "too few replicas follow it for its min-replicas-to-write",
    ),
    Refusal(
        "READONLY",
        "retry",
        _ALL,
        "It is a replica, perhaps since a moment ago",
        "it is a replica; the URL has to name the primary",
        ends=True,
    ),
    Refusal(
        "MASTERDOWN",
        "retry",
        _ALL,
        "It is a replica that has lost its primary",
        "it is a replica that has lost its primary; the URL has to name the primary",
    ),
    Refusal(
        "UNBLOCKED", "retry", f"{_ALL}, hub", "Somebody ended the wait, or it became a replica"
    ),
    Refusal(
        "CLUSTERDOWN",
        "retry",
        "cluster",
        "Part of the cluster has no server",
        "part of the cluster has no server; redis-cli --cluster check tells which",
    ),
    Refusal("TRYAGAIN", "retry", "cluster", "A slot is on its way to another node"),
    Refusal(
        "MOVED",
        "retry",
        "cluster",
        "Another node has the queue: it is asked there. If the URL is none of a cluster, this is "
        "raised at once",
        "it is one node of a cluster: redis+cluster://HOST:PORT finds all",
    ),
    Refusal("ASK", "retry", "cluster", "The same, while a slot is on its way"),
    Refusal(
        LOST,
        "retry",
        _ALL,
        "It has no library, or has lost it: it is given the library, once a call",
        shown="ERR Function not found",
    ),
    Refusal(
        "no upstream host|no server (connection )?avaliable",
        "retry",
        "Envoy, predixy",
        "The proxy has no server behind it",
        "the proxy has no server behind it just now",
        shown="no upstream host; ERR no server avaliable; ERR no server connection avaliable",
    ),
    Refusal(
        "upstream failure|server connection close|deliver request fail"
        "|Connection (refused|timed out|reset by peer)|Host is down",
        "retry",
        "Envoy, predixy, twemproxy",
        "The proxy lost the server behind it. The call may have been done",
        unsure=True,
        shown="upstream failure; ERR server connection close; ERR deliver request fail; ERR "
        "Connection refused, timed out or reset by peer; ERR Host is down",
    ),
    # -- Somebody has to do something, here or there --------------------------------------------
    OOM,
    Refusal(
        "(WRONGPASS )?(AUTH <password> called without|Client sent AUTH, but no password)",
        "raise",
        _ALL,
        "The URL has a password, and the server has none",
        "the server has no password: leave it out of the URL",
        shown="ERR AUTH <password> called without any password configured",
    ),
    Refusal("NOAUTH", "raise", f"{_ALL}, hub", "It wants to know who asks", _WHO),
    Refusal(
        "WRONGPASS|(?i:invalid password)",
        "raise",
        f"{_ALL}, hub",
        "Another user or password than it knows",
        _WHO,
        shown="WRONGPASS; ERR invalid password",
    ),
    Refusal("NOPERM", "raise", f"{_ALL}, hub", "The user may not call that", _MAY_NOT),
    Refusal(
        FORBIDDEN,
        "raise",
        _ALL,
        "The user may call the function, and not what that does",
        _MAY_NOT,
        shown="ERR The user executing the script can't; ERR ACL failure in script",
    ),
    Refusal(
        "DENIED",
        "raise",
        _ALL,
        "It is in protected mode: without a password it answers on its own machine only",
        "give it a password (requirepass or a user), and put that into the URL",
        ends=True,
    ),
    Refusal(
        "STALECALL",
        "raise",
        f"{_ALL}, hub",
        "The reply to a repeated call is there no more. What it leased runs out and comes again",
        unsure=True,
    ),
    Refusal("FULL", "raise", f"{_ALL}, hub", "The queue has no room in time", raises="Full"),
    Refusal("SEALED", "raise", f"{_ALL}, hub", "The queue is sealed", raises="ShutDown"),
    # -- The program, the URL or the data are wrong ---------------------------------------------
    Refusal(
        "OPTIONSMISMATCH",
        "end",
        f"{_ALL}, hub",
        "The queue was declared otherwise",
        raises="OptionsMismatch",
    ),
    Refusal(
        "BADARG|TOOBIG|NOTSUPPORTED",
        "end",
        f"{_ALL}, hub",
        "An argument is none, too large, or not for this server",
        raises="ValueError",
        shown="BADARG, TOOBIG, NOTSUPPORTED",
    ),
    Refusal(
        "(?i:un(known|supported) command)",
        "end",
        "Redis and others before 7, sentinels, proxies",
        "It has no functions, in whatever words and quotes it says so",
        "this server has no queues: Redis from 7 on, Valkey and a hub have. A sentinel and some "
        "proxies have no functions: the URL has to name the primary itself",
        raises="InterlockError",
        shown="ERR unknown command; unsupported command",
    ),
    Refusal(
        "WRONGTYPE",
        "end",
        _ALL,
        "Something else is stored under a key of the queue",
        "what is stored under its name is no queue: give the queue another name, or delete that",
        raises="InterlockError",
    ),
    Refusal(
        "NEWERLAYOUT",
        "end",
        _ALL,
        "The queue was stored by a newer release than that of the library",
        raises="InterlockError",
    ),
    Refusal(
        "NOTAQUEUE",
        "end",
        _ALL,
        "What is stored under the queue's name is none of a release that the library knows",
        raises="InterlockError",
    ),
    Refusal("CROSSSLOT", "end", "cluster, proxies", "Its keys lie on several nodes",
            raises="InterlockError"),
    Refusal(
        "DB index is out of range|invalid DB index|SELECT is not allowed",
        "end",
        f"{_ALL}, hub",
        "The URL names a database that is not there",
        raises="InterlockError",
        shown="ERR DB index is out of range; ERR SELECT is not allowed in cluster mode",
    ),
    Refusal("NOPROTO", "end", _ALL, "It speaks another protocol", raises="InterlockError"),
)  # fmt: skip
UNKNOWN = Refusal(
    "all else",
    "end",
    "any",
    "Nobody knows what it means, nor whether it passes",
    raises="InterlockError",
)
"""Of what is in no row."""
