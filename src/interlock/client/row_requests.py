"""Protocol of the calls on the rows of a named table, on a hub, a cluster or in memory.

As with queues, each call returns a request, which threads and asyncio tasks can both execute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

from interlock.client.request import Request
from interlock.table.row import Row

if TYPE_CHECKING:
    from interlock.client.session import Session

W = TypeVar("W", bound=Row)
Only = Literal["absent", "present"]
Overflow = Literal["raise", "wrap", "saturate"]
OnFull = Literal["evict", "raise"]

NONE: Final[Any] = object()
"""Stands for the value of a row that does not exist."""


class Rows(Protocol[W]):
    """The rows of one table. Keys are canonical: bytes."""

    def get_many(self, session: Session[Any], keys: Sequence[bytes]) -> Request[list[W | None]]:
        """Return the rows of keys; None for a key without a row."""

    def set_many(self, session: Session[Any], rows: Sequence[tuple[bytes, W]]) -> Request[None]:
        """Set rows, each separately."""

    def set(
        self, session: Session[Any], key: bytes, row: W, ttl: float | None, only: Only | None
    ) -> Request[bool]:
        """Set a row, and return whether it was set."""

    def delete(self, session: Session[Any], keys: Sequence[bytes]) -> Request[int]:
        """Delete rows, and return how many existed."""

    def pop(self, session: Session[Any], key: bytes) -> Request[W | None]:
        """Delete a row and return it."""

    def contains(self, session: Session[Any], key: bytes) -> Request[bool]:
        """Return whether the row exists."""

    def get_column(self, session: Session[Any], key: bytes, column: str) -> Request[Any]:
        """Return a column, or NONE."""

    def patch(self, session: Session[Any], key: bytes, columns: Mapping[str, Any]) -> Request[bool]:
        """Set columns, and return whether the row exists."""

    def incr(
        self, session: Session[Any], key: bytes, column: str, by: float, overflow: Overflow
    ) -> Request[Any]:
        """Increase a column; return its new value, or NONE."""

    def compare_and_set(
        self, session: Session[Any], key: bytes, column: str, expected: Any, value: Any
    ) -> Request[bool | None]:
        """Set a column if it is as expected; None: the row does not exist."""

    def expire(self, session: Session[Any], key: bytes, ttl: float) -> Request[bool]:
        """Set a row to expire, and return whether it exists."""

    def persist(self, session: Session[Any], key: bytes) -> Request[bool]:
        """Keep a row forever, and return whether it would have expired."""

    def ttl(self, session: Session[Any], key: bytes) -> Request[float | None]:
        """Return the seconds until a row expires, None for never, or NONE."""

    def touch(self, session: Session[Any], key: bytes) -> Request[bool]:
        """Note an access, and return whether the row exists."""

    def idle(self, session: Session[Any], key: bytes) -> Request[float]:
        """Return the seconds since a row was accessed, or NONE."""

    def count(self, session: Session[Any]) -> Request[int]:
        """Count the rows."""

    def page(
        self, session: Session[Any], cursor: Any, count: int
    ) -> Request[tuple[Any, list[tuple[bytes, W]]]]:
        """Return the next cursor, None at the end, and some rows; the first cursor is None."""
