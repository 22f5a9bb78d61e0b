"""The job that a send through an outbox returns: its row's id, its state, and its result."""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.app.job import Job, JobState, loaded_task
from interlock.client.wire.codec import decode_result
from interlock.errors import JobFailed, ResultGone, WouldDeadlock
from interlock.failure import first_line
from interlock.message import current_lease
from interlock.outbox import connections
from interlock.retry import Seconds, seconds

if TYPE_CHECKING:
    from interlock.outbox.results import Outcome

__all__ = ["RowJob"]

R = TypeVar("R")


class RowJob(Job[R]):
    """A call of a task that was sent through an outbox.

    Its methods read the database on connections of the outbox, so they need its URL. They find a
    row only once its transaction has committed.
    """

    __slots__ = ("_identity", "_outbox")

    def __init__(
        self, outbox: Any, task: Any, identity: tuple[Any, ...] | None, known: bool
    ) -> None:
        declared = task.declared
        id = 0 if identity is None else identity[0]
        kept = declared.result_ttl > 0
        super().__init__(outbox.app, declared.queue, task.name, task.types, id, known, kept)
        self._outbox, self._identity = outbox, (id, *(identity or ())[1:])

    def result(self, timeout: Seconds | None = None) -> R:
        """Wait for the handler's return value; ``timeout`` in seconds, by default without limit.

        Raises:
            TimeoutError: it was not handled in time.
            JobFailed: it became a dead letter, expired or was cancelled; carries the last error and
                the ``reason``.
            ResultGone: there is neither a row nor a result: the transaction of the send is open or
                was rolled back, the result has expired, or the task keeps no results.
            WouldDeadlock: the caller is a handler, and gave no timeout.
            Exception: what the library of the database raises.
        """
        return self._decoded(self._outbox.results.ask(*self._asked(timeout)).result())

    async def aresult(self, timeout: Seconds | None = None) -> R:
        """Do what ``result`` does, awaited."""
        asked = self._outbox.results.ask(*self._asked(timeout))
        return self._decoded(await asyncio.wrap_future(asked))

    def state(self) -> JobState:
        """Return the job's state.

        ``"waiting"``: its row is there, and its handler has not returned; ``"held"``; ``"dead"``;
        ``"acked"``, ``"expired"`` or ``"cancelled"``, for as long as the task's ``result_ttl``;
        else ``"gone"``: the transaction of the send is open or was rolled back, or the job is
        settled and nothing of it is kept.
        """
        found: Outcome = self._outbox.results.ask(self._identity, 0).result()
        return found.state

    async def astate(self) -> JobState:
        """Do what ``state`` does, awaited."""
        found: Outcome = await asyncio.wrap_future(self._outbox.results.ask(self._identity, 0))
        return found.state

    def cancel(self) -> bool:
        """Settle it, unless a handler's transaction has it. Return False if one has it, or if it is
        dead or already settled.

        A handler without ``transaction=`` that has begun is not interrupted.
        """
        outbox = self._outbox
        with outbox.transactions.begin() as db:
            found = connections.one(db, *self._cancelled())
            if found is not None and self._kept:
                connections.one(db, *outbox.keep(found, "cancelled", None, None, self._ttl))
        return found is not None

    async def acancel(self) -> bool:
        """Do what ``cancel`` does, awaited."""
        outbox = self._outbox
        async with outbox.transactions.abegin() as db:
            found = await connections.aone(db, *self._cancelled())
            if found is not None and self._kept:
                await connections.aone(db, *outbox.keep(found, "cancelled", None, None, self._ttl))
        return found is not None

    def forget(self) -> bool:
        """Drop its result before it expires. Return False if no result is kept."""
        with self._outbox.transactions.begin() as db:
            return connections.one(db, *self._forgotten()) is not None

    async def aforget(self) -> bool:
        """Do what ``forget`` does, awaited."""
        async with self._outbox.transactions.abegin() as db:
            return await connections.aone(db, *self._forgotten()) is not None

    def __reduce__(self) -> tuple[Any, ...]:
        from interlock.app.place import NoPlace, place_in_program

        try:
            place = place_in_program(self._app)
        except NoPlace as error:
            raise pickle.PicklingError(
                f"the job {self.id} of {self.task!r} cannot be pickled: {error}"
            ) from None
        return _found_again, (place, self.task, self._identity, self.known)

    @property
    def _ttl(self) -> float:
        found: float = self._app.tasks[self.task].declared.result_ttl
        return found

    def _asked(self, timeout: Seconds | None) -> tuple[tuple[Any, ...], float | None]:
        self._check()
        if timeout is not None:
            return self._identity, seconds(timeout, "result(): timeout")
        try:
            lease = current_lease()
        except LookupError:
            return self._identity, None
        raise WouldDeadlock(
            f"result(): the handler of message {lease.id} would wait for a row of the outbox "
            "without limit, perhaps for one behind its own key; give a timeout"
        )

    def _decoded(self, found: Outcome) -> R:
        if found.state == "acked":
            result: R = decode_result(found.result, self.id, self._types.returns)
            return result
        if found.state in ("dead", "expired", "cancelled"):
            error = first_line(found.error) or found.state
            traceback = found.error.partition("\n")[2]
            raise JobFailed(self.id, error, found.reason, traceback)
        if found.state == "gone":
            raise ResultGone(
                f"row {self.id}: neither the row nor a result is there: the transaction of the "
                "send has not committed, or the result has expired"
            )
        raise TimeoutError(
            f"row {self.id} was not handled in time (a call of {self.task!r}); "
            f"`interlock outbox explain {self.id}` shows what it waits for"
        )

    def _cancelled(self) -> tuple[str, tuple[Any, ...]]:
        database = self._outbox.database
        where = f"{self._where(database.sent)} and {database.live} {database.skip}"
        return (
            f"delete from {database.table} where id in (select id from {database.table} "
            f"where {where}) returning {database.returned}",
            self._identity,
        )

    def _forgotten(self) -> tuple[str, tuple[Any, ...]]:
        results = self._outbox.database.results
        return f"delete from {results} where {self._where('sent')} returning id", self._identity

    def _where(self, sent: str) -> str:
        return "id = {}" if len(self._identity) == 1 else f"id = {{}} and {sent} = {{}}"


def _found_again(place: str, task: str, identity: tuple[Any, ...], known: bool) -> RowJob[Any]:
    """Return a job as it was pickled; called by pickle."""
    found = loaded_task(place, task, identity[0])
    outbox: Any = found._app._outbox
    if outbox is None:
        raise pickle.UnpicklingError(
            f"job {identity[0]} of {task!r} was sent through an outbox, which the app {place} does "
            "not have here"
        )
    return RowJob(outbox, found, identity, known)
