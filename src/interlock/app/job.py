"""The job that a send returns: the message's id, its outcome, and its result if one was
requested."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from interlock.app.envelope import Types
from interlock.errors import ResultGone
from interlock.retry import Seconds

if TYPE_CHECKING:
    from interlock.app.app import App

__all__ = ["Job", "JobState", "loaded_task"]

R = TypeVar("R")

JobState = Literal[
    "delayed", "waiting", "ready", "leased", "backing_off", "held", "parked",
    "dead", "acked", "expired", "cancelled", "skipped", "gone",
]  # fmt: skip
"""The states of a message, from a job's point of view."""


class Job(Generic[R]):
    """A call of a task that was sent.

    It can be pickled. Unpickling finds its app by its place, ``module:name``.
    """

    __slots__ = ("_app", "_kept", "_queue", "_types", "id", "known", "replaced", "task")

    def __init__(
        self, app: App, queue: str, task: str, types: Types, id: int, known: bool, kept: bool,
        replaced: bool = False,
    ) -> None:  # fmt: skip
        self.id = id
        """The message's id, for ``explain``, ``cancel`` and ``revoke``."""
        self.known = known
        """Its ``dedup`` string was known: this is the job of the first message, and nothing was
        sent."""
        self.replaced = replaced
        """An earlier call with the ``coalesce`` name has these arguments now: this is its job."""
        self.task = task
        """The task's name."""
        self._app, self._queue, self._types, self._kept = app, queue, types, kept

    def result(self, timeout: Seconds | None = None) -> R:
        """Wait for the handler's return value; ``timeout`` in seconds, by default without limit.

        Raises:
            TimeoutError: it was not settled in time.
            JobFailed: it became a dead letter, was cancelled or skipped; carries the last error and
                the ``reason``.
            ResultGone: the task keeps no results (``result_ttl``), or the result has expired.
            WouldDeadlock: the caller is a handler, gave no timeout, and the job waits for it: for
                its key, or for a free handler while all wait for results.
        """
        self._check()
        queue, tester = self._app._queue(self._queue), self._app._tested_by
        if tester is not None and not tester._before_result(queue, self.id):
            timeout = 0
        try:
            found: R = queue.result(self.id, timeout, self._types.returns)
        except TimeoutError as error:
            raise self._overdue(error) from None
        return found

    async def aresult(self, timeout: Seconds | None = None) -> R:
        """Do what ``result`` does, awaited."""
        self._check()
        queue, tester = self._app._queue(self._queue), self._app._tested_by
        if tester is not None and not await tester._abefore_result(queue, self.id):
            timeout = 0
        try:
            found: R = await queue.aio.result(self.id, timeout, self._types.returns)
        except TimeoutError as error:
            raise self._overdue(error) from None
        return found

    def state(self) -> JobState:
        """Return the job's state.

        ``"delayed"``, ``"waiting"`` (for its keys), ``"ready"``, ``"leased"`` (a worker has it),
        ``"backing_off"``, ``"held"`` or ``"parked"``; ``"dead"``; ``"acked"``, ``"expired"``,
        ``"cancelled"`` or ``"skipped"``, for as long as the task's ``result_ttl``; else ``"gone"``:
        it is settled and nothing of it is kept, or it never existed.
        """
        found: JobState = self._app._queue(self._queue)._state_of(self.id)
        return found

    async def astate(self) -> JobState:
        """Do what ``state`` does, awaited."""
        found: JobState = await self._app._queue(self._queue).aio._state_of(self.id)
        return found

    def cancel(self) -> bool:
        """Settle it, unless a worker has it. Return False if a worker has it, or it is already
        settled.

        A hub's user needs the right to operate the queue.
        """
        found: bool = self._app._queue(self._queue).cancel(self.id)
        return found

    async def acancel(self) -> bool:
        """Do what ``cancel`` does, awaited."""
        found: bool = await self._app._queue(self._queue).aio.cancel(self.id)
        return found

    def forget(self) -> bool:
        """Drop its result before it expires. Return False if no result is kept.

        A hub's user needs the right to operate the queue.
        """
        found: bool = self._app._queue(self._queue)._forget(self.id)
        return found

    async def aforget(self) -> bool:
        """Do what ``forget`` does, awaited."""
        found: bool = await self._app._queue(self._queue).aio._forget(self.id)
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Job):
            return NotImplemented
        mine, others = ((each._app, each._queue, each.id) for each in (self, other))
        return mine == others

    def __hash__(self) -> int:
        return hash((self._queue, self.id))

    def __reduce__(self) -> tuple[Any, ...]:
        from interlock.app.place import NoPlace, place_in_program

        try:
            place = place_in_program(self._app)
        except NoPlace as error:
            raise pickle.PicklingError(
                f"the job {self.id} of {self.task!r} cannot be pickled: {error}"
            ) from None
        return _found_again, (place, self.task, self.id, self.known, self.replaced)

    def __repr__(self) -> str:
        known = ", known" if self.known else ", replaced" if self.replaced else ""
        return f"<{type(self).__name__} {self.id} of {self.task!r}{known}>"

    def _overdue(self, error: TimeoutError) -> TimeoutError:
        """Return the error with a hint where to look.

        Nothing visible from here is wrong. A program without INTERLOCK_URL sends into its own
        process, which usually has no worker.
        """
        url = self._app._url_in_use()
        if self._app._tested_by is not None:
            where = "every ready message was handled, and the test's clock does not advance"
        elif url.startswith("memory:"):
            where = (
                f"it is in the memory of this process ({url}), so only a worker of this process "
                "can handle it"
            )
        else:
            where = f"`interlock queue explain {self._queue} {self.id}` shows what it waits for"
        return TimeoutError(f"{error} (a call of {self.task!r}); {where}")

    def _check(self) -> None:
        if not self._kept:
            raise ResultGone(
                f"message {self.id}: task {self.task!r} keeps no results; give it result_ttl=, "
                "in seconds, to keep them"
            )


def _found_again(place: str, task: str, id: int, known: bool, replaced: bool = False) -> Job[Any]:
    """Return a job as it was pickled; called by pickle."""
    job: Job[Any] = loaded_task(place, task, id)._job(id, known, replaced)
    return job


def loaded_task(place: str, task: str, id: int) -> Any:
    """Return the task of a pickled job from its app. Raises UnpicklingError.

    Args:
        id: the job, for the error.
    """
    from interlock.app.app import App
    from interlock.worker.process.app_reference import NoApp, load

    try:
        app: App = load(place, App)
    except NoApp as error:
        raise pickle.UnpicklingError(
            f"job {id} of {task!r} belongs to the app {place}, which cannot be loaded here: {error}"
        ) from error
    found = app.tasks.get(task)
    if found is None:
        raise pickle.UnpicklingError(
            f"job {id} belongs to the task {task!r}, which the app {place} does not have here"
        )
    return found
