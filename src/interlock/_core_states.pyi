"""The part of the native module for the states of rows; Linux only."""

from typing import Any, Self, final

@final
class StateRules:
    """The states of one table: how they are shown, joined and checked.

    Raises:
        ValueError: ``fingerprint`` is not of the form ``n: U8, t: str[8]; last, sum; 1000 ms``:
            columns, merge kinds, and the ms for which deleted rows are remembered.
    """

    def __new__(cls, fingerprint: str) -> Self: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def schema(self) -> str:
        """The columns, as ``Schema.parse`` takes them."""

    @property
    def layout(self) -> str:
        """Columns of a state and their merge kinds, as ``relaid`` takes them."""

    @property
    def age_ms(self) -> int: ...
    def check(self, state: bytes) -> None:
        """Raise ValueError unless these rules could have written the state."""

    def shown(self, state: bytes, now_ms: int) -> tuple[tuple[Any, ...] | None, int, int, int]:
        """Return the row of a state.

        Returns:
            The values of all columns (None if there is no row at ``now_ms``), and, in ms since
            1970, when the row expires, from when the state may be forgotten (0: never), and when
            it was last changed.
        """

    def join(self, ours: bytes, theirs: bytes) -> bytes:
        """Return two states of a key as one; ``ours`` itself if nothing changes.

        Raises:
            ValueError: ``theirs`` is not a state.
        """

    def relaid(self, layout: str, state: bytes) -> bytes:
        """Return a state of another layout in this one.

        Raises:
            ValueError: a column can no longer hold its value.
        """
