"""Replies that no engine gives: told as an error of Interlock, with what they were.

Something else may listen there, or a proxy may have mixed up replies. Whether the call was done is
not known then.
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
    # Where it ends too soon; the second in a generator.
    *(StopIteration, RuntimeError),
)
"""Exceptions of taking a reply apart that is of another form."""
SHOWN = 100


def nonsense(reply: object) -> EngineUnavailable:
    """Return the error for a reply that is not understood."""
    text = repr(reply)
    said = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    return EngineUnavailable(
        f"the server answered what no engine answers: {said}; is it a hub, a Redis or a Valkey?",
        unknown=True,
    )


def understood(parse: Callable[P, R]) -> Callable[P, R]:
    """Make the errors of a function that takes a reply apart, its first argument, ours."""

    @functools.wraps(parse)
    def taken_apart(*given: P.args, **named: P.kwargs) -> R:
        try:
            return parse(*given, **named)
        except NOT_UNDERSTOOD:
            raise nonsense(given[0]) from None

    return taken_apart
