"""The interface of an engine under the contract suite: a `Harness`.

A harness makes queues on one engine, all on one clock that the test moves, and names the clauses
that the engine cannot satisfy. The suite needs nothing else; tests/contract/test_memory.py is the
shortest example.
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

Face = Literal["sync", "aio"]
FACES: tuple[Face, ...] = ("sync", "aio")


class SteppedClock(Protocol):
    """A clock that stops until it is advanced, such as `interlock.testing.ManualClock`."""

    def now(self) -> float:
        """Return the seconds since the clock's own zero."""

    def advance(self, seconds: float) -> None:
        """Advance by `seconds`, and wake the sleepers on this clock that are due by then."""


class Harness(Protocol):
    """One engine under test. Each run of a case gets a fresh one."""

    @property
    def name(self) -> str:
        """The engine's name, for reports."""

    @property
    def capabilities(self) -> Mapping[int | str, str]:
        """Clauses, by number, and cases, by name, that the engine cannot satisfy; with reasons."""

    @property
    def clock(self) -> SteppedClock:
        """The clock of every queue that this harness makes."""

    def queue(self, **options: Any) -> Any:
        """Return a new, empty queue.

        Options are those of `KeyedQueue` except `clock`: maxsize, maxbytes, sizeof, keys, shared,
        retry, lease, maxdead, dedup_window. A wrong one raises the exception of `KeyedQueue`.
        """

    def aio(self, queue: Any) -> Any:
        """Return the asyncio face of a queue that `queue()` made; called on the running loop."""

    def close(self) -> None:
        """Free the queues' messages; the last call, after a failed case too."""
