"""Roots: held, hung and retried messages, and pauses, that hold other messages up."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from interlock.explanation import key_text

__all__ = ["Root", "Roots"]

RootKind = Literal["held", "leased", "backing_off", "paused"]


@dataclass(frozen=True, slots=True)
class Root:
    """A message or a paused key that waits for no other, and that others wait for."""

    kind: RootKind
    """``leased`` is a message whose handler has run for ``slow_wait`` or longer."""
    id: int | None
    """The message; None: a pause."""
    key: bytes | None
    """The paused key, or the message's key with the most messages.

    None: the whole queue is paused, or the message has no key.
    """
    depth: int
    """Messages that wait in its own lanes; one that waits in two of them counts twice."""
    blocked: int
    """Messages that wait for it, directly or through others, each once."""
    exact: bool
    """False: a lower bound; counting stopped there."""
    leased_for: float | None = None
    """Seconds for which the message has been leased."""
    due_in: float | None = None
    """Seconds until its backoff ends."""
    consumer: str = ""
    """The consumer that leases it."""

    def __str__(self) -> str:
        parts = [f"{at_least(self.blocked, self.exact)} blocked by {self.name}"]
        if self.leased_for is not None:
            parts.append(f"leased for {self.leased_for:,.1f} s by {self.consumer}")
        if self.due_in is not None:
            parts.append(f"due in {self.due_in:,.1f} s")
        return ", ".join(parts)

    def named(self) -> tuple[list[int], list[bytes]]:
        """Return the message, or the paused key, by which an engine knows it."""
        return ([self.id], []) if self.id is not None else ([], [self.key or b""])

    @property
    def name(self) -> str:
        """Kind, id and key in words: ``held message 7 (account:1)``."""
        if self.id is None:
            return "the pause of " + ("the queue" if self.key is None else key_text(self.key))
        on = f" ({key_text(self.key)})" if self.key else ""
        return f"{self.kind.replace('_', ' ')} message {self.id}{on}"


@dataclass(frozen=True, slots=True)
class Roots:
    """The roots of a queue, the one that blocks most first; ``str()`` lists them in lines.

    Iterating yields the roots, without those that block nothing.
    """

    roots: tuple[Root, ...]
    blocked: int
    """Messages that wait for any of them, each once."""
    exact: bool
    """False: a lower bound, or there are more roots than these."""

    def __iter__(self) -> Iterator[Root]:
        return iter(self.roots)

    def __len__(self) -> int:
        return len(self.roots)

    def __str__(self) -> str:
        if not self.roots:
            return "nothing is blocked" if self.exact else NOT_ALL
        return "\n".join([self.summary, *(f"  {root}" for root in self.roots)])

    def figures(self) -> dict[str, int]:
        """Return the metrics of the counts; a hub reports the same by itself."""
        largest = max((root.blocked for root in self.roots), default=0)
        return {"blocked": self.blocked, "blocked_by_one": largest}

    def is_stall(self, unsettled: int) -> bool:
        """Return whether an operator should look, given the queue's number of unsettled messages.

        A message that backs off is retried by itself: alone it counts only if it blocks more than a
        tenth of the queue.
        """
        return any(
            root.kind != "backing_off" or 10 * root.blocked > unsettled for root in self.roots
        )

    @property
    def summary(self) -> str:
        """One line: ``1,532 messages blocked by 5 held messages``. Empty if none is blocked."""
        if not self.roots:
            return ""
        counted: dict[RootKind, int] = {}
        for root in self.roots:
            counted[root.kind] = counted.get(root.kind, 0) + 1
        parts = [_several(kind, count) for kind, count in counted.items()]
        *first, last = parts
        named = f"{', '.join(first)} and {last}" if first else last
        noun = "message" if self.blocked == 1 else "messages"
        return f"{at_least(self.blocked, self.exact)} {noun} blocked by {named}"


NOT_ALL = "no blocker was found, but the search was cut short"


def at_least(count: int, exact: bool) -> str:
    """Return a number as people read it: ``1,532``, or ``at least 10,000``."""
    return f"{count:,}" if exact else f"at least {count:,}"


def _several(kind: RootKind, count: int) -> str:
    one, many = _NOUNS[kind]
    return f"{count:,} {one if count == 1 else many}"


_NOUNS: dict[RootKind, tuple[str, str]] = {
    "held": ("held message", "held messages"),
    "leased": ("running handler", "running handlers"),
    "backing_off": ("message backing off", "messages backing off"),
    "paused": ("pause", "pauses"),
}


@dataclass(frozen=True, slots=True)
class Found:
    """Roots as a queue reports them, deepest lanes first, before counting what they block."""

    roots: tuple[Root, ...]
    complete: bool
    """False: others may hold messages up too."""

    def named(self) -> tuple[list[int], list[bytes]]:
        """Return the message ids and the paused keys by which an engine identifies them."""
        each = [root.named() for root in self.roots]
        return [id for ids, _ in each for id in ids], [key for _, keys in each for key in keys]

    @classmethod
    def read(cls, found: int, exact: bool, rows: Iterable[tuple[Any, ...]]) -> Found:
        """Read an engine's answer: their number, whether that is all, and some rows."""
        roots = tuple(_root(*row) for row in rows)
        return cls(roots, exact and (found == len(roots) or not roots[-1].depth))

    def figures(self) -> dict[str, int]:
        """Return their metrics: slow leases, and by kind the roots that block others."""
        counted = {f"roots_{kind}": 0 for kind in _NOUNS}
        for root in self.roots:
            counted[f"roots_{root.kind}"] += root.depth > 0
        return {"slow_leases": sum(root.kind == "leased" for root in self.roots), **counted}

    def counted(self, each: Iterable[tuple[int, bool]], total: tuple[int, bool]) -> Roots:
        """Return the report, given the number blocked by each root, and by all."""
        roots = [
            replace(root, blocked=blocked, exact=exact)
            for root, (blocked, exact) in zip(self.roots, each, strict=True)
            if blocked
        ]
        roots.sort(key=lambda root: (-root.blocked, -root.depth))
        blocked, exact = total
        return Roots(tuple(roots), blocked, exact and self.complete)


def _root(
    kind: RootKind, id: int | None, key: bytes, depth: int, time: float | None, consumer: str
) -> Root:
    leased_for = time if kind == "leased" else None
    due_in = time if kind == "backing_off" else None
    return Root(kind, id, key or None, depth, depth, False, leased_for, due_in, consumer)


def from_native(found: tuple[int, bool, list[tuple[Any, ...]]]) -> Found:
    """Return the core's answer in the classes of this module."""
    number, exact, rows = found
    names = {thread.ident: thread.name for thread in threading.enumerate()}

    def named(thread: int) -> str:
        return names.get(thread, f"thread {thread}") if thread else ""

    return Found.read(number, exact, ((*row[:-1], named(row[-1])) for row in rows))
