"""All kinds of exceptions that a handler may raise, by name, and the outcomes of their messages.

A module of its own, for processes of a pool import it too.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from interlock import Empty, EngineUnavailable, LeaseLost, Reject, Retry, RetryAfter, ShutDown
from interlock.runtime.limits import MAX_TEXT

POLICY = Retry(2, first=0)
"""Policy of these messages: two attempts."""


class NoText(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class NoTextAtAll(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


class NotAText(Exception):
    def __str__(self) -> str:
        return 3  # type: ignore[return-value]


class NoRepr(Exception):
    def __repr__(self) -> str:
        raise ValueError("no repr")


class Text(str):
    """A str whose methods raise."""

    __slots__ = ()

    def encode(self, *_: Any, **__: Any) -> bytes:
        raise ValueError("no bytes")

    def __str__(self) -> str:
        raise ValueError("no text")

    def __getitem__(self, _: Any) -> str:
        raise ValueError("no part")


class OddText(Exception):
    def __str__(self) -> str:
        return Text("odd")


class Liar(Exception):
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise ValueError("no class")


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise ValueError("no name")


class Anonymous(Exception, metaclass=Nameless):
    pass


class Closed(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise ValueError(name)

    def __setattr__(self, name: str, value: object) -> None:
        raise ValueError(name)


@dataclass(frozen=True)
class Frozen(Exception):
    code: int = 1


class NotReduced(Exception):
    def __reduce__(self) -> Any:
        raise ValueError("no pickle")


class NotMadeAgain(Exception):
    """Is pickled, and cannot be made of that."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} {two}")


class Locked(Exception):
    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


class NoInitAfter(RetryAfter):
    def __init__(self) -> None:
        pass


class RaisingAfter(RetryAfter):
    def __init__(self) -> None:
        pass

    @property
    def seconds(self) -> float:  # type: ignore[override]
        raise ValueError("no seconds")


class OddAfter(RetryAfter):
    def __init__(self, seconds: Any) -> None:
        self.seconds = seconds


class NoInitReject(Reject):
    def __init__(self) -> None:
        pass


class OddReject(Reject):
    def __init__(self, reason: Any) -> None:
        self.reason = reason


class NoTextReject(Reject):
    def __init__(self) -> None:
        pass

    __str__ = NoText.__str__


def noted() -> BaseException:
    error = ValueError("with notes")
    error.__notes__ = 3  # type: ignore[assignment]
    return error


def circular() -> BaseException:
    error, other = ValueError("a"), ValueError("b")
    error.__cause__, other.__cause__ = other, error
    return error


@dataclass(frozen=True)
class Raised:
    """One of them."""

    make: Callable[[], BaseException]
    attempts: int = 2
    """At which its message is given up; 0: it waits longer than a test."""
    text: str | None = None
    """The text that is kept of it; None: anything."""


def _bad_after(seconds: Any) -> Raised:
    return Raised(lambda: OddAfter(seconds), text=f"OddAfter: {seconds}")


RAISED: dict[str, Raised] = {
    "plain": Raised(lambda: ValueError("plain"), text="ValueError: plain"),
    "no text": Raised(NoText, text="NoText"),
    "no text at all": Raised(NoTextAtAll, text="NoTextAtAll"),
    "not a text": Raised(NotAText, text="NotAText"),
    "no repr": Raised(lambda: NoRepr("r"), text="NoRepr: r"),
    "argument without repr": Raised(lambda: ValueError(NoRepr(), 1), text="ValueError"),
    "odd text": Raised(OddText),
    "no class": Raised(lambda: Liar("c"), text="Liar: c"),
    "no name": Raised(lambda: Anonymous("n"), text="an exception: n"),
    "no attributes": Raised(lambda: Closed("x"), text="Closed: x"),
    "frozen": Raised(Frozen),
    "no pickle": Raised(lambda: NotReduced("p"), text="NotReduced: p"),
    "not made again": Raised(lambda: NotMadeAgain(1, 2), text="NotMadeAgain: 1 2"),
    "holds a lock": Raised(Locked, text="Locked: holds a lock"),
    "long": Raised(lambda: ValueError("ä" * 2_000_000), text=("ValueError: " + "ä" * 2000)[:518]),
    "surrogates": Raised(lambda: ValueError("a\udcffb\ud800"), text="ValueError: a\\udcffb\\ud800"),
    "null": Raised(lambda: ValueError("a\0b"), text="ValueError: a\0b"),
    "notes": Raised(noted, text="ValueError: with notes"),
    "circle": Raised(circular, text="ValueError: a"),
    "group": Raised(
        lambda: ExceptionGroup("many", [RetryAfter(900), Reject("no")]),
        text="ExceptionGroup: many (2 sub-exceptions)",
    ),
    "base group": Raised(
        lambda: BaseExceptionGroup("many", [SystemExit(1)]),
        text="BaseExceptionGroup: many (1 sub-exception)",
    ),
    "BaseException": Raised(lambda: BaseException("b"), text="BaseException: b"),
    "SystemExit": Raised(lambda: SystemExit(3), text="SystemExit: 3"),
    "KeyboardInterrupt": Raised(KeyboardInterrupt, text="KeyboardInterrupt"),
    "GeneratorExit": Raised(GeneratorExit, text="GeneratorExit"),
    "CancelledError": Raised(asyncio.CancelledError, text="CancelledError"),
    "StopIteration": Raised(StopIteration),
    "StopAsyncIteration": Raised(StopAsyncIteration),
    "ShutDown": Raised(lambda: ShutDown("s"), text="ShutDown: s"),
    "Empty": Raised(lambda: Empty("e"), text="Empty: e"),
    "LeaseLost": Raised(lambda: LeaseLost("l"), text="LeaseLost: l"),
    "EngineUnavailable": Raised(lambda: EngineUnavailable("u"), text="EngineUnavailable: u"),
    "after": Raised(lambda: RetryAfter(0), text="RetryAfter: retry after 0 s"),
    "after a timedelta": Raised(
        lambda: RetryAfter(dt.timedelta(0)), text="RetryAfter: retry after 0.0 s"
    ),
    "after, closing a name": Raised(
        lambda: RetryAfter(0, limit="name"), text="RetryAfter: retry after 0 s"
    ),
    "after long": Raised(lambda: RetryAfter(1e300), attempts=0),
    "after longer": Raised(lambda: RetryAfter(float("inf")), attempts=0),
    "after 10**400": Raised(lambda: RetryAfter(10**400), attempts=0),
    "after, no init": Raised(NoInitAfter, text="NoInitAfter"),
    "after, raises": Raised(RaisingAfter, text="RaisingAfter"),
    "after nan": _bad_after(float("nan")),
    "after -1": _bad_after(-1),
    "after True": _bad_after(True),
    "after a text": _bad_after("soon"),
    "after None": _bad_after(None),
    "after -1 day": _bad_after(dt.timedelta(-1)),
    "reject": Raised(lambda: Reject("why"), 1, "why"),
    "reject for nothing": Raised(lambda: Reject(""), 1, ""),
    "reject, long": Raised(lambda: Reject("x" * 5000), 1, "x" * MAX_TEXT),
    "reject, surrogates": Raised(lambda: Reject("\udcff"), 1, "\\udcff"),
    "reject, no init": Raised(NoInitReject, 1, "NoInitReject"),
    "reject, no text": Raised(NoTextReject, 1, "NoTextReject"),
    "reject 3": Raised(lambda: OddReject(3), 1, "OddReject: 3"),
    "reject None": Raised(lambda: OddReject(None), 1, "OddReject: None"),
    "reject odd": Raised(lambda: OddReject(Text("odd")), 1, "odd"),
}


def throw(name: str) -> None:
    """Raises the one of this name; nothing for a name that is not there."""
    if name in RAISED:
        raise RAISED[name].make()


def check(dead: dict[str, tuple[int, str]], waiting: int, *, except_for: frozenset[str]) -> None:
    """Attempts and dead-letter text by name; number of messages that wait for long.

    Args:
        except_for: those of which the text may be another: who runs the handler changes what it
            raises (a coroutine cannot raise StopIteration).
    """
    given_up = {name: one for name, one in RAISED.items() if one.attempts}
    assert sorted(dead) == sorted(given_up)
    assert waiting == len(RAISED) - len(given_up)
    for name, one in given_up.items():
        attempts, text = dead[name]
        assert attempts == one.attempts, name
        assert len(text.encode()) <= MAX_TEXT, name
        if one.text is not None and name not in except_for:
            assert text == one.text, name
