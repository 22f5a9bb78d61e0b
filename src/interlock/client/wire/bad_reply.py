"""Malformed replies: raised as an error of Interlock that contains them.

Another service may be listening there, or a proxy may have mixed up replies. Whether the call took
effect is not known then.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from interlock.errors import EngineUnavailable

P = ParamSpec("P")
R = TypeVar("R")

NOT_UNDERSTOOD = (
    *(ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError),
    # For a reply that ends too soon; the second occurs in a generator.
    *(StopIteration, RuntimeError),
)
"""Exceptions of parsing a reply of a different form."""
SHOWN = 100


def nonsense(reply: object) -> EngineUnavailable:
    """Return the error for a malformed reply."""
    text = repr(reply)
    said = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    return EngineUnavailable(
        f"the server's answer is not one of an engine: {said}; is it a hub, a Redis or a Valkey?",
        unknown=True,
    )


def understood(parse: Callable[P, R]) -> Callable[P, R]:
    """Convert the errors of a function that parses a reply, its first argument."""

    @functools.wraps(parse)
    def taken_apart(*given: P.args, **named: P.kwargs) -> R:
        try:
            return parse(*given, **named)
        except NOT_UNDERSTOOD:
            raise nonsense(given[0]) from None

    return taken_apart
