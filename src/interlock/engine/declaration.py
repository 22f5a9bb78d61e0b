"""A client's declaration of a queue: told to its engine once, and checked against what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interlock.engine import wire
from interlock.engine.request import Argument, Request
from interlock.engine.session import Session
from interlock.retry import Retry, Seconds, seconds, whole

if TYPE_CHECKING:
    from interlock.engine.call import Engine

DURABILITIES = ("always", "everysec", "none", "server")


class Declaration:
    """The options of one queue that its engine holds."""

    def __init__(
        self,
        *,
        maxsize: int | None = None,
        maxbytes: int | None = None,
        retry: Retry | None = None,
        maxdead: int | None = None,
        dedup_window: Seconds | None = None,
        durability: str | None = None,
    ) -> None:
        found: list[Argument] = []
        for name, number in (
            ("MAXSIZE", maxsize),
            ("MAXBYTES", maxbytes),
            ("MAXDEAD", maxdead),
        ):
            if number is not None:
                found += [name, check_count(name.lower(), number)]
        if dedup_window is not None:
            window = seconds(dedup_window, "queue(): dedup_window")
            found += ["WINDOW", wire.micros(window)]
        if retry is not None:
            if not isinstance(retry, Retry):
                raise TypeError(f"queue(): retry is {type(retry).__name__}; allowed: Retry")
            found += wire.policy(retry)
        if durability is not None:
            if durability not in DURABILITIES:
                raise ValueError(
                    f"queue(): durability is {durability!r}; allowed: "
                    f"{', '.join(map(repr, DURABILITIES))}"
                )
            found += ["DURABILITY", durability]
        self.arguments = tuple(found)
        # Of what the engine had lost when it was told; None: it was not told yet.
        self._told: int | None = None if found else -1

    def is_made(self, engine: Engine) -> bool:
        """The engine was told, or there is nothing to tell."""
        return self._told in (-1, engine.losses)

    def made(self, engine: Engine, session: Session[Any], key: str) -> Request[None]:
        """Tells the engine, unless it was told; OptionsMismatch where it was told otherwise."""
        if self.is_made(engine):
            return
        losses = engine.losses
        yield from engine.call(session, "configure", key, *self.arguments)
        self._told = losses

    def forget(self) -> None:
        """The queue was dropped, and this with it."""
        if self._told != -1:
            self._told = None


def check_count(argument: str, number: object) -> int:
    """A bound of a queue."""
    number = whole(number, f"queue(): {argument}")
    most, told = (10**15, "10**15") if argument == "maxbytes" else (2**32 - 1, "2**32 - 1")
    if not 0 <= number <= most:
        raise ValueError(f"queue(): {argument} is {number}; allowed: 0 (none) to {told}")
    return number
