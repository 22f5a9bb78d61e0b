"""Values that nobody would give an argument, and what a put that is given one does.

The arguments of a put are read from the queue's recording, and on an engine from the sent call.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

from interlock import KeyedQueue


class Hostile(Exception):
    """Raised by a value that is looked at."""


class Text(str):
    """A str that says of itself what is not so."""

    __slots__ = ()

    def __str__(self) -> str:
        raise Hostile("__str__")

    def __iter__(self) -> Any:
        raise Hostile("__iter__")

    def __bool__(self) -> bool:
        raise Hostile("__bool__")


class Bytes(bytes):
    """Likewise."""

    def __iter__(self) -> Any:
        raise Hostile("__iter__")

    def __bytes__(self) -> bytes:
        raise Hostile("__bytes__")


class Number(enum.IntEnum):
    """An int that prints itself otherwise."""

    THREE = 3

    def __str__(self) -> str:
        raise Hostile("__str__")

    def __repr__(self) -> str:
        raise Hostile("__repr__")


class Index:
    """An integer of numpy, as far as anybody can see."""

    def __index__(self) -> int:
        return 3

    def __int__(self) -> int:
        return 3


class Touchy:
    """Raises whatever is done with it, but for its truth."""

    def _raise(self, *_: object) -> Any:
        raise Hostile("touched")

    __eq__ = __repr__ = __str__ = __len__ = _raise
    __hash__ = _raise


class Untrue(Touchy):
    """Raises when asked for its truth, too."""

    __bool__ = Touchy._raise


class Unreadable:
    """An iterable that raises."""

    def __iter__(self) -> Any:
        raise Hostile("__iter__")


class Unfinished:
    """One that raises once it has given something."""

    def __iter__(self) -> Any:
        yield "a"
        raise Hostile("__next__")


VALUES: dict[str, Callable[[], Any]] = {
    # Each is made anew: an iterator can be read once.
    "0": lambda: 0,
    "False": lambda: False,
    "True": lambda: True,
    "()": lambda: (),
    "[]": list,
    "str empty": lambda: "",
    "bytes empty": lambda: b"",
    "None": lambda: None,
    "0.0": lambda: 0.0,
    "1.5": lambda: 1.5,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "7": lambda: 7,
    "-7": lambda: -7,
    "10**400": lambda: 10**400,
    "-10**400": lambda: -(10**400),
    "10**5000": lambda: 10**5000,
    "str": lambda: "a",
    "str of a class": lambda: Text("a"),
    "surrogate": lambda: "\ud800",
    "bytes": lambda: b"a",
    "bytes of a class": lambda: Bytes(b"a"),
    "bytearray": lambda: bytearray(b"ab"),
    "memoryview": lambda: memoryview(b"ab"),
    "[bytearray]": lambda: [bytearray(b"ab")],
    "enum": lambda: Number.THREE,
    "index": Index,
    "iterator": lambda: iter(["a", 7]),
    "iterator with None": lambda: iter(["a", None, "b"]),
    "iterator that raises": Unfinished,
    "iterable that raises": Unreadable,
    "(None,)": lambda: (None,),
    "((),)": lambda: ((),),
    "(0,)": lambda: (0,),
    "touchy": Touchy,
    "untrue": Untrue,
}

NOTHING: frozenset[bytes] = frozenset()
A, SEVEN, BOTH = frozenset([b"a"]), frozenset([b"7"]), frozenset([b"a", b"7"])

_KEYS: dict[str, frozenset[bytes]] = {
    "0": frozenset([b"0"]),
    "()": NOTHING,
    "[]": NOTHING,
    "None": NOTHING,
    "7": SEVEN,
    "-7": frozenset([b"-7"]),
    "10**400": frozenset([str(10**400).encode()]),
    "-10**400": frozenset([str(-(10**400)).encode()]),
    "str": A,
    "str of a class": A,
    "bytes": A,
    "bytes of a class": A,
    "enum": frozenset([b"3"]),
    "iterator": BOTH,
    "(0,)": frozenset([b"0"]),
}
_SECONDS = {"0": 0, "0.0": 0, "None": 0, "1.5": 1_500_000, "7": 7_000_000, "enum": 3_000_000}
_FLAG = {"True": True, "False": False, "None": False}

ALLOWED: dict[str, dict[str, Any]] = {
    "keys": _KEYS,
    "shared": _KEYS,
    "priority": {"0": 0, "None": 0, "7": 7, "-7": -7, "enum": 3},
    "delay": {**_SECONDS, "inf": 2**64 - 1, "10**400": 2**64 - 1, "10**5000": 2**64 - 1},
    "dedup": {"None": None, "str empty": "", "str": "a", "str of a class": "a"},
    "barrier": _FLAG,
    "quiet": _FLAG,
}
"""The values that each argument may have, and what each then says; all else is refused in words."""

UNSAID: dict[str, Any] = {
    "keys": NOTHING,
    "shared": NOTHING,
    "priority": 0,
    "delay": 0,
    "dedup": None,
    "barrier": False,
}
"""The values of a put that names no arguments."""


@dataclass(frozen=True)
class Said:
    """The outcome of one put: what was put, or the exception and its words."""

    put: dict[str, Any] | None = None
    refused: type[BaseException] | None = None
    words: str = field(default="", compare=False)


def asked(queue: KeyedQueue[Any] | None, call: Callable[..., object], *given: Any) -> Said:
    """Makes a call, and returns what it puts into a queue that is empty, or what it raises."""
    try:
        put = call(*given)
    except Exception as error:
        if queue is not None:
            assert queue.stats().unsettled == 0, "it was refused, and is in the queue"
        return Said(refused=type(error), words=str(error))
    if isinstance(put, Said):
        return put
    assert queue is not None
    (line,) = (line for line in queue.recording().splitlines() if " put" in line)
    words = [word for word in line.split()[2:] if word != "|"]
    return Said(_read(dict(word.split("=", 1) for word in words)))


def _read(words: dict[str, str]) -> dict[str, Any]:
    def keys(name: str) -> frozenset[bytes]:
        return (
            frozenset(map(unquote_to_bytes, words[name].split(","))) if name in words else NOTHING
        )

    dedup = words.get("dedup")
    return {
        "keys": keys("keys"),
        "shared": keys("shared"),
        "priority": int(words.get("priority", 0)),
        "delay": int(words.get("delay", 0)),
        "dedup": None if dedup is None else unquote_to_bytes(dedup).decode(),
        "barrier": words.get("barrier") == "true",
    }
