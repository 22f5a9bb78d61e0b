"""The rows of a table by its name: what a handle asks for, wherever they are.

Each call is a request, as those of queues are, for threads and for asyncio alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

from interlock.engine.request import Request
from interlock.table.row import Row

if TYPE_CHECKING:
    from interlock.engine.session import Session

W = TypeVar("W", bound=Row)
Only = Literal["absent", "present"]
Overflow = Literal["raise", "wrap", "saturate"]
OnFull = Literal["evict", "raise"]

NONE: Final[Any] = object()
"""Stands for what a row would have, if there were one."""


class Rows(Protocol[W]):
    """The rows of one table. Keys are canonical: bytes."""

    def get_many(self, session: Session[Any], keys: Sequence[bytes]) -> Request[list[W | None]]:
        """Return the rows of keys; None where there is none."""

    def set_many(self, session: Session[Any], rows: Sequence[tuple[bytes, W]]) -> Request[None]:
        """Set rows, each by itself."""

    def set(
        self, session: Session[Any], key: bytes, row: W, ttl: float | None, only: Only | None
    ) -> Request[bool]:
        """Set a row, and return whether it was done."""

    def delete(self, session: Session[Any], keys: Sequence[bytes]) -> Request[int]:
        """Delete rows, and return how many there were."""

    def pop(self, session: Session[Any], key: bytes) -> Request[W | None]:
        """Delete a row and return it."""

    def contains(self, session: Session[Any], key: bytes) -> Request[bool]:
        """Return whether there is a row."""

    def get_column(self, session: Session[Any], key: bytes, column: str) -> Request[Any]:
        """Return a column, or NONE."""

    def patch(self, session: Session[Any], key: bytes, columns: Mapping[str, Any]) -> Request[bool]:
        """Set columns, and return whether there is a row."""

    def incr(
        self, session: Session[Any], key: bytes, column: str, by: float, overflow: Overflow
    ) -> Request[Any]:
        """Raise a column; return what it is then, or NONE."""

    def compare_and_set(
        self, session: Session[Any], key: bytes, column: str, expected: Any, value: Any
    ) -> Request[bool | None]:
        """Set a column if it is as expected; None: there is no row."""

    def expire(self, session: Session[Any], key: bytes, ttl: float) -> Request[bool]:
        """Have a row expire, and return whether it is there."""

    def persist(self, session: Session[Any], key: bytes) -> Request[bool]:
        """Have a row live for ever, and return whether it would have expired."""

    def ttl(self, session: Session[Any], key: bytes) -> Request[float | None]:
        """Return the seconds that a row has to live, None for ever, or NONE."""

    def touch(self, session: Session[Any], key: bytes) -> Request[bool]:
        """Note an access, and return whether there is a row."""

    def idle(self, session: Session[Any], key: bytes) -> Request[float]:
        """Return the seconds since a row was accessed, or NONE."""

    def count(self, session: Session[Any]) -> Request[int]:
        """Count the rows."""

    def page(
        self, session: Session[Any], cursor: Any, count: int
    ) -> Request[tuple[Any, list[tuple[bytes, W]]]]:
        """Return the next cursor, None at the end, and some rows; the first cursor is None."""
