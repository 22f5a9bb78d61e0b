"""A coroutine that has begun within another one's task, and waits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context
from types import CoroutineType
from typing import Any

from interlock.retry import Retry

__all__ = ["SuspendedCall", "first_step"]


def first_step(
    function: Callable[..., Awaitable[Any]], *arguments: Any
) -> tuple[Coroutine[Any, Any, Any] | None, Any]:
    """Run a coroutine function until it waits: return the coroutine, and what it waits for. If it
    never does, return None and its result."""
    coroutine = function(*arguments)
    # The type first: to ask an abstract class costs more than a short coroutine.
    if type(coroutine) is not CoroutineType and not isinstance(coroutine, Coroutine):
        # The function is only marked as a coroutine function, and returns something else to await.
        coroutine = _await(coroutine)
    try:
        return coroutine, coroutine.send(None)
    except StopIteration as end:
        return None, end.value


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


class SuspendedCall:
    """The rest of such a coroutine, to be awaited once in the same task. It runs in its own
    context, and the task's stack includes it."""

    __slots__ = ("_awaited", "_context", "_resumed", "began", "cr_await", "retry")

    def __init__(
        self,
        context: Context,
        coroutine: Coroutine[Any, Any, Any],
        awaited: Any,
        began: float,
        retry: Retry | None,
    ) -> None:
        self._context, self._awaited, self._resumed = context, awaited, False
        self.cr_await = coroutine
        """Named like a coroutine's attribute: see ``stack_of``."""
        self.began = began
        """The time.monotonic() at which it began."""
        self.retry = retry
        """Policy that judges what it raises; None: it returns an outcome, and never raises."""

    def __await__(self) -> Generator[Any, Any, Any]:
        return self  # type: ignore[return-value]

    def __iter__(self) -> SuspendedCall:
        return self

    def __next__(self) -> Any:
        if not self._resumed:
            self._resumed = True
            return self._awaited
        return self._context.run(self.cr_await.send, None)

    def throw(self, *error: Any) -> Any:
        """Raise an exception where it waits."""
        return self._context.run(self.cr_await.throw, *error)

    def close(self) -> None:
        """End it."""
        self._context.run(self.cr_await.close)
