"""The declared options of a queue: in Python's terms, and in the engine's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from interlock.client.request import Argument, Request
from interlock.client.wire import messages as wire
from interlock.client.wire.bad_reply import understood
from interlock.client.wire.functions import OPTIONS, POLICY, DeclaredOptions, Option
from interlock.retry import Retry, seconds, whole
from interlock.runtime.concurrency import limits_of, limits_text, weights_of, weights_text

if TYPE_CHECKING:
    from interlock.client.connection.call import Engine
    from interlock.client.session import Session


class Declaration:
    """The options of one queue that its engine holds."""

    def __init__(self, **given: Unpack[DeclaredOptions]) -> None:
        self.arguments: tuple[Argument, ...] = _flat(pairs("queue()", given))
        self.is_pending = bool(self.arguments)
        """The engine was not told yet."""

    def made(self, engine: Engine, session: Session[Any], key: str) -> Request[None]:
        """Declare to the engine, unless that was done; OptionsMismatch if other options are
        declared."""
        if self.is_pending:
            yield from engine.call(session, "configure", key, *self.arguments)
            self.is_pending = False
            engine.declared(key, self)

    def changed(self, changed: Mapping[str, Argument]) -> None:
        """Note that the engine has other options now, which are declared from now on."""
        named = dict(zip(self.arguments[::2], self.arguments[1::2], strict=True))
        self.arguments = _flat({name: changed.get(str(name), named[name]) for name in named})

    def forget(self) -> None:
        """Note that the queue was dropped, including this declaration."""
        self.is_pending = bool(self.arguments)


def change(changed: Mapping[str, Argument]) -> tuple[Argument, ...]:
    """Return the arguments of an il1_configure that changes these options, or reads them."""
    return ("CHANGE", *_flat(changed)) if changed else ()


def pairs(call: str, given: Mapping[str, object]) -> dict[str, Argument]:
    """Return the names and values of the options on the wire; None names no option, unless it means
    "without limit"."""
    found: dict[str, Argument] = {}
    for option in OPTIONS:
        value = given.get(option.argument)
        if value is None and option.unbounded and option.argument in given:
            found[option.name] = 0
        elif value is not None:
            found[option.name] = _checked(call, option, value)
    retry = given.get("retry")
    if retry is not None:
        if not isinstance(retry, Retry):
            raise TypeError(f"{call}: retry is {type(retry).__name__}; allowed: Retry")
        policy = wire.policy(retry)
        found |= zip(map(str, policy[::2]), policy[1::2], strict=True)
    return found


@understood
def options_of(words: Mapping[str, str]) -> DeclaredOptions:
    """Return the reply of il1_configure in Python's terms."""
    found: Any = {one.argument: shown(one.name, words[one.name]) for one in OPTIONS}
    policy = {one.argument: shown(one.name, words[one.name]) for one in POLICY}
    options: DeclaredOptions = found | {"retry": Retry(**policy)}
    return options


def shown(name: str, value: str) -> Any:
    """Return the value of a wire option in Python's terms."""
    option = NAMED.get(name)
    if option is None or option.words:
        return value
    if option.limits:
        return limits_of(value)
    if option.weights:
        return weights_of(value)
    if option.unbounded and value == "0":
        return None
    if option.micros:
        passed = int(value) / 1e6
        return int(passed) if passed.is_integer() else passed
    if name == "FACTOR":
        return int(value) / 1000
    return value == "1" if name == "JITTER" else int(value)


def mismatch(queue: str, text: str) -> str:
    """Return the text of OptionsMismatch for a server's refusal of a declaration."""
    found = _MISMATCH.search(text)
    option = found and NAMED.get(found["name"])
    if not found or not option:
        return f"queue {queue!r} was declared differently: {text}"
    new, old = (shown(option.name, found[which]) for which in ("new", "old"))
    argument = option.argument
    wanted, there = f"{argument}={new!r}", f"{argument}={old!r}"
    call = f"retry=Retry({wanted}, ...)" if option in POLICY else wanted
    return (
        f"queue {queue!r} was declared with {there}, and this program declares {wanted}; change "
        f"the queue for all programs by queue.configure({call}) or `interlock queue configure "
        f"{queue} --{flag_of(option)} {word(new)}`, or declare {there} here"
    )


def flag_of(option: Option) -> str:
    """Return the name of an option on the command line, without the dashes."""
    return option.argument.replace("_", "-")


def word(value: object) -> str:
    """Return a value of an option in the form of the command line."""
    if value is None or value == {}:
        return "none"
    if isinstance(value, dict):
        return ",".join(f"{name}={most}" for name, most in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in terms of JSON: a rate as the command line takes it."""
    found = dict(options)
    limits = found["limits"].items()
    found["limits"] = {name: v if isinstance(v, int) else str(v) for name, v in limits}
    return found


def _flat(found: Mapping[Any, Argument]) -> tuple[Argument, ...]:
    return tuple(part for one in found.items() for part in one)


def _checked(call: str, option: Option, value: Any) -> Argument:
    """Return the value of an option in the form of the wire."""
    argument = option.argument
    if option.limits:
        return limits_text(value, call.removesuffix(":"))
    if option.weights:
        return weights_text(value, call.removesuffix(":"))
    if option.micros:
        return wire.micros(seconds(value, f"{call}: {argument}"))
    if option.words:
        if value not in option.words:
            raise ValueError(
                f"{call}: {argument} is {value!r}; allowed: {', '.join(map(repr, option.words))}"
            )
        return str(value)
    return check_count(argument, value, option.most, call)


def check_count(argument: str, number: object, most: int, call: str = "queue()") -> int:
    """Return a bound of a queue, checked."""
    number = whole(number, f"{call}: {argument}")
    if not 0 <= number <= most:
        raise ValueError(f"{call}: {argument} is {number}; allowed: 0 (none) to {most:,}")
    return number


NAMED: Mapping[str, Option] = {one.name: one for one in (*OPTIONS, *POLICY)}
_MISMATCH = re.compile(
    r"(?P<name>[A-Z_]+) is '(?P<new>.*?)'; the queue was declared with '(?P<old>.*?)'"
)
