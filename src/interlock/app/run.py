"""Runs: messages that one handler is given as a list (contract, clause 30)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from inspect import Parameter, Signature
from typing import Any, Generic, Self, TypeVar, get_args, get_origin, overload

from interlock.retry import whole
from interlock.worker.message.execution import RunProgress, TaskLease

__all__ = ["Run", "check_signature", "item_of"]

T = TypeVar("T", covariant=True)


class Run(Sequence[T], Generic[T]):
    """The messages of a run, in order: what a task with ``run=`` is given.

    Each item is the argument of one call. All have the same keys. The handler returns when all are
    done. If it raises before, the message behind those that it has reported with ``done`` failed;
    the messages behind that one are handled later.
    """

    __slots__ = ("_items", "_places", "_progress", "messages")

    def __init__(self, items: Iterable[T]) -> None:
        self._items = tuple(items)
        self.messages: tuple[TaskLease, ...] = ()
        """The lease of each: id, keys and attempt; empty if it was made by hand."""
        self._places: Sequence[int] = range(len(self._items))
        """The numbers of the items among all messages of the run, of which some have expired."""
        self._progress = RunProgress()

    @classmethod
    def _of(
        cls,
        items: Iterable[T],
        messages: Iterable[TaskLease],
        places: Sequence[int],
        progress: RunProgress,
    ) -> Self:
        made = cls(items)
        made.messages, made._places, made._progress = tuple(messages), places, progress
        return made

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[T, ...]: ...
    def __getitem__(self, at: int | slice) -> T | tuple[T, ...]:
        return self._items[at]

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"Run({list(self._items)!r})"

    def done(self, count: int) -> None:
        """Report that the first ``count`` messages are done.

        They are acknowledged when the handler has ended, whatever its end: returned, raised, or
        after its timeout. (With ``pool="process"`` not after a timeout: the process is killed.)

        Raises:
            TypeError: the count is not an int.
            ValueError: it is above the number of messages, or below an earlier report.
        """
        found = whole(count, "done(): count")
        before = self._progress.reported or 0
        if not before <= found <= len(self):
            raise ValueError(
                f"done(): count is {found}; allowed: {before} to {len(self)}; it never falls"
            )
        self._progress.report(found, self._places)


def item_of(hint: Any) -> Any:
    """Return the type of a run's items, or any other type as it is."""
    if hint is Run:
        return Any
    return get_args(hint)[0] if get_origin(hint) is Run else hint


def check_signature(name: str, signature: Signature) -> None:
    """Raise TypeError unless a task that takes runs has one argument."""
    parameters = list(signature.parameters.values())
    placed = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    one = parameters[0] if len(parameters) == 1 else None
    if one is None or one.kind not in placed or one.default is not Parameter.empty:
        raise TypeError(
            f"task(): {name}{signature} is given; allowed with run=: a function of one argument "
            "without a default, such as def send(updates: Run[Update])"
        )
