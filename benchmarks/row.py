"""A row of the table, and the way its samples are taken.

A row sets one operation of ours beside a peer's. Both sides run in the same process, one after the
other, and whichever went first in one pair goes second in the next: a machine that slows down
slows both. The ratio is formed within each pair; a row's figure is the median of its ratios.

Where servers are compared, they are processes of their own and the row's process drives them; the
rest is the same.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Unit = Literal["jobs", "ns", "µs", "ms", "s", "/s", "B", "MB", "%"]
Judged = Literal["ratio", "times", "value"]
Runner = Literal["python", "behaviours", "rust"]


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one side."""

    value: float
    """In the row's unit; ns are those of one message."""

    messages: int
    """Messages that went through."""

    lost: int = 0
    """Messages that came out less than once or with another payload."""

    misordered: int = 0
    """Messages that came out after a later one of a same key, or beside one."""

    details: dict[str, float] = field(default_factory=dict)
    """Whatever else helps to judge the run; kept with the raw results."""

    @classmethod
    def each(cls, seconds: float, messages: int, *, lost: int = 0, misordered: int = 0) -> Sample:
        """Return a run that took `seconds` in all, as nanoseconds of one message."""
        return cls(seconds / messages * 1e9, messages, lost, misordered)

    def as_json(self) -> dict[str, Any]:
        """Return the sample flat, for the raw results."""
        named = ("value", "messages", "lost", "misordered")
        return {name: getattr(self, name) for name in named} | self.details


@dataclass(frozen=True, slots=True)
class Pair:
    """Both sides, taken one right after the other; no peer where the bar is absolute."""

    ours: Sample
    peer: Sample | None = None
    missing: dict[str, str] = field(default_factory=dict)
    """Peers that cannot be had on this machine, by the figure that would be theirs, and why."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    name: str
    """group/what, as `--rows` selects it."""

    title: str
    """The operation that is done."""

    peer: str
    """The peer next to it; empty where the bar is absolute."""

    bar: float | None
    """The figure that is good enough; `judged` says of what. None where none was set."""

    judged: Judged = "ratio"
    """ratio: ours ÷ peer is at most the bar. times: peer ÷ ours, how many times less ours takes, is
    at least the bar. value: ours, in `unit`, is at most the bar; so it is without a peer."""

    unit: Unit = "ns"
    figure: str = "value"
    """The field of a sample that is the row's figure, by its name in the raw results."""

    shares: str = ""
    """The row whose samples these are too, where one run gives more than one figure."""

    table: str = "One process"
    """Under which heading it stands."""

    pairs: int | None = None
    """Maximum number of pairs; more would add nothing."""

    unseen: bool = True
    """One pair goes before those that count, to warm up. A load on a server has that within."""

    longest: float = 150
    """Seconds after which it is given up: it hangs, or the machine is not fit for figures."""

    prototype: float | None = None
    """The figure that a throw-away program reached, where there was one."""

    pair: Callable[[int], Pair] | None = None
    """Takes the pair with this number, starting at 0. None where another program takes them."""

    runner: Runner = "python"
    """python: this interpreter. behaviours: one that shows bocpy at its best. rust: the program
    in benchmarks/rust."""

    @property
    def is_absolute(self) -> bool:
        """The bar is for what ours takes, whatever a peer does."""
        return self.judged == "value" or not self.peer

    @property
    def source(self) -> str:
        """The row that takes the samples."""
        return self.shares or self.name


def alternating(ours: Callable[[], Sample], peer: Callable[[], Sample]) -> Callable[[int], Pair]:
    """Return what takes pairs in which the two sides take turns at going first."""

    def pair(number: int) -> Pair:
        if number % 2 == 0:
            first = settled(ours)
            return Pair(first, settled(peer))
        second = settled(peer)
        return Pair(settled(ours), second)

    return pair


def also(row: Row, what: str, title: str, figure: str, bar: float, prototype: float | None) -> Row:
    """Return one more figure of a row's samples, judged as the row is."""
    return replace(
        row,
        name=f"{row.name}-{what}",
        title=title,
        figure=figure,
        bar=bar,
        prototype=prototype,
        shares=row.name,
        pair=None,
    )


def settled(side: Callable[[], Sample]) -> Sample:
    """Return one side's sample, free of the garbage of an earlier run."""
    gc.collect()
    return side()
