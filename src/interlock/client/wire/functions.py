# Made by `make generate` from wire/: change that.
"""The functions and options of the wire."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypedDict

from interlock.retry import Retry, Seconds
from interlock.runtime.concurrency import Behind, Limits, Weights


class Option(NamedTuple):
    """An option of a queue that a client declares."""

    name: str
    argument: str
    most: int = 0
    words: tuple[str, ...] = ()
    micros: bool = False
    """The argument is in seconds."""
    unbounded: bool = False
    """None is allowed, and means 0."""
    limits: bool = False
    """A mapping of names to numbers and rates."""
    weights: bool = False
    """A mapping of groups to numbers."""


OPTIONS = (
    Option("MAXSIZE", "maxsize", 1_000_000_000),
    Option("MAXBYTES", "maxbytes", 1_000_000_000_000_000),
    Option("MAXDEAD", "maxdead", 1_000_000_000),
    Option("WINDOW", "dedup_window", 1_000_000_000_000_000, micros=True),
    Option("DURABILITY", "durability", words=("always", "everysec", "none", "server")),
    Option("DEAD_TTL", "dead_ttl", 1_000_000_000_000_000, micros=True, unbounded=True),
    Option("LIMITS", "limits", limits=True),
    Option("WEIGHTS", "weights", weights=True),
    Option("BEHIND", "behind", words=("wait", "bury", "cancel", "park")),
)
"""Options other than the retry policy."""

POLICY = (
    Option("ATTEMPTS", "attempts", 1_000_000_000, unbounded=True),
    Option("FIRST", "first", 1_000_000_000_000_000, micros=True),
    Option("FACTOR", "factor", 1_000_000_000),
    Option("LONGEST", "longest", 1_000_000_000_000_000, micros=True),
    Option("JITTER", "jitter", 1),
    Option("THEN", "then", words=("dead", "hold")),
)
"""Options of a `Retry`."""

FUNCTIONS = (
    "next",
    "put",
    "lease",
    "settle",
    "extend",
    "configure",
    "result",
    "join",
    "cancel",
    "revoke",
    "retry",
    "skip",
    "bury",
    "requeue",
    "discard",
    "forget",
    "purge",
    "restore",
    "drop",
    "pause",
    "resume",
    "seal",
    "reopen",
    "stats",
    "peek",
    "scan",
    "paused",
    "dead_letters",
    "hot",
    "limits",
    "explain",
    "roots",
    "blocked",
    "events",
    "announce",
    "workers",
    "ask",
    "version",
)
"""Functions of the library for Redis."""

GROWING = ("put", "requeue", "restore")
"""Functions that a server refuses at its memory limit."""

Durability = Literal["always", "everysec", "none", "server"]


class DeclaredOptions(TypedDict, total=False):
    """The options that an engine holds, by the names of their arguments."""

    maxsize: int
    maxbytes: int
    maxdead: int
    dedup_window: Seconds
    durability: Durability
    dead_ttl: Seconds | None
    limits: Limits
    weights: Weights
    behind: Behind
    retry: Retry
