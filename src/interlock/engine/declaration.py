"""A client's declaration of a queue: told to its engine once, and checked against what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from interlock.engine import wire
from interlock.engine.declared import OPTIONS, DeclaredOptions, Option
from interlock.engine.request import Argument, Request
from interlock.engine.session import Session
from interlock.retry import Retry, seconds, whole

if TYPE_CHECKING:
    from interlock.engine.call import Engine


class Declaration:
    """The options of one queue that its engine holds."""

    def __init__(self, **given: Unpack[DeclaredOptions]) -> None:
        found: list[Argument] = []
        for option in OPTIONS:
            value: Any = given.get(option.argument)
            if value is not None:
                found += [option.name, _checked(option, value)]
        retry = given.get("retry")
        if retry is not None:
            if not isinstance(retry, Retry):
                raise TypeError(f"queue(): retry is {type(retry).__name__}; allowed: Retry")
            found += wire.policy(retry)
        self.arguments = tuple(found)
        self.told: int | None = None
        """The engine's `losses` when it was told; None: it was not told yet."""

    def made(self, engine: Engine, session: Session[Any], key: str) -> Request[None]:
        """Tell the engine, unless it was told; OptionsMismatch where it was told otherwise."""
        losses = engine.losses
        if self.arguments and self.told != losses:
            yield from engine.call(session, "configure", key, *self.arguments)
            self.told = losses

    def forget(self) -> None:
        """Note that the queue was dropped, and this with it."""
        self.told = None


def _checked(option: Option, value: Any) -> Argument:
    """Return the value of an option as the wire has it."""
    argument = option.argument
    if option.micros:
        return wire.micros(seconds(value, f"queue(): {argument}"))
    if option.words:
        if value not in option.words:
            raise ValueError(
                f"queue(): {argument} is {value!r}; allowed: {', '.join(map(repr, option.words))}"
            )
        return str(value)
    return check_count(argument, value, option.most)


def check_count(argument: str, number: object, most: int) -> int:
    """Return a bound of a queue, checked."""
    number = whole(number, f"queue(): {argument}")
    if not 0 <= number <= most:
        raise ValueError(f"queue(): {argument} is {number}; allowed: 0 (none) to {most:,}")
    return number
