"""The job that a send gives back: the message's id, and its result where one was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from interlock.app.envelope import Types
from interlock.errors import ResultGone
from interlock.retry import Seconds

if TYPE_CHECKING:
    from interlock.app.app import App

__all__ = ["Job"]

R = TypeVar("R")


class Job(Generic[R]):
    """A call of a task that was sent."""

    __slots__ = ("_app", "_kept", "_queue", "_types", "id", "known", "task")

    def __init__(
        self, app: App, queue: str, task: str, types: Types, id: int, known: bool, kept: bool
    ) -> None:
        self.id = id
        """The message's id, for ``explain``, ``cancel`` and ``revoke``."""
        self.known = known
        """Its ``dedup`` string was known: this is the first one's job, and nothing was sent."""
        self.task = task
        """The task's name."""
        self._app, self._queue, self._types, self._kept = app, queue, types, kept

    def result(self, timeout: Seconds | None = None) -> R:
        """Wait for what the handler returns; ``timeout`` in seconds, by default for ever.

        Raises:
            TimeoutError: it was not settled in time.
            JobFailed: it became a dead letter, was cancelled or skipped; with the last error.
            ResultGone: the task keeps no results (``result_ttl``), or the time for that is over.
        """
        self._check()
        queue = self._app._queue(self._queue)
        try:
            found: R = queue.result(self.id, timeout, self._types.returns)
        except TimeoutError as error:
            raise self._overdue(error) from None
        return found

    async def aresult(self, timeout: Seconds | None = None) -> R:
        """Do what ``result`` does, awaited."""
        self._check()
        queue = self._app._queue(self._queue).aio
        try:
            found: R = await queue.result(self.id, timeout, self._types.returns)
        except TimeoutError as error:
            raise self._overdue(error) from None
        return found

    def __repr__(self) -> str:
        known = ", known" if self.known else ""
        return f"<{type(self).__name__} {self.id} of {self.task!r}{known}>"

    def _overdue(self, error: TimeoutError) -> TimeoutError:
        """Return the error with a hint where to look.

        Nothing is wrong that could be seen from here. Who has not set INTERLOCK_URL sends into the
        own process, where mostly no worker is.
        """
        url = self._app._url_in_use()
        if url.startswith("memory:"):
            where = f"it is in this process ({url}), where only a worker of this process has it"
        else:
            where = f"`interlock queue explain {self._queue} {self.id}` tells what it waits for"
        return TimeoutError(f"{error} (a call of {self.task!r}); {where}")

    def _check(self) -> None:
        if not self._kept:
            raise ResultGone(
                f"message {self.id}: task {self.task!r} keeps no results; give it "
                f"result_ttl=, in seconds, to have them kept"
            )
