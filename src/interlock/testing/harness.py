"""The interface that the contract suite asks of an engine: a `Harness`.

A harness makes queues on one engine, all of them on one clock that the test moves, and names the
clauses that the engine cannot hold. The suite needs nothing else; tests/contract/test_memory.py is
the shortest example.
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

Face = Literal["sync", "aio"]
FACES: tuple[Face, ...] = ("sync", "aio")


class SteppedClock(Protocol):
    """A clock that stands still until it is advanced, such as `interlock.testing.ManualClock`."""

    def now(self) -> float:
        """Return the seconds since the clock's own zero."""

    def advance(self, seconds: float) -> None:
        """Move on by `seconds`, and wake whatever sleeps on this clock and is due by then."""


class Harness(Protocol):
    """One engine as the suite sees it. Each run of a case is given a fresh one."""

    @property
    def name(self) -> str:
        """The engine's name, for reports."""

    @property
    def capabilities(self) -> Mapping[int | str, str]:
        """The clauses, by number, and cases, by name, that the engine cannot hold, and why."""

    @property
    def clock(self) -> SteppedClock:
        """The clock of every queue that this harness makes."""

    def queue(self, **options: Any) -> Any:
        """Return a new, empty queue.

        Options are those of `KeyedQueue` but `clock`: maxsize, maxbytes, sizeof, keys, shared,
        retry, lease, maxdead, dedup_window. A wrong one raises what `KeyedQueue` raises.
        """

    def aio(self, queue: Any) -> Any:
        """Return the asyncio face of a queue that `queue()` made; called on the running loop."""

    def close(self) -> None:
        """Free what the queues hold; the last call, after a failed case too."""
