"""The handling of a call that has a row in an outbox.

The row is deleted in the transaction that the handler gets, or else after the handler. Its outcome
is written to the row too, because the engine may lose it.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from interlock.app.invocation import Invoked
from interlock.app.row import ROW
from interlock.errors import PayloadError, RetryAfter
from interlock.failure import Expired, judged, kept
from interlock.outbox import connections
from interlock.outbox.postgres.driver import sqlstate
from interlock.outbox.postgres.rights import with_grants
from interlock.outbox.rows import Reference
from interlock.retry import Retry
from interlock.runtime.limits import MAX_ERROR
from interlock.worker.message.execution import details

if TYPE_CHECKING:
    from interlock.app import envelope
    from interlock.app.middleware import Hooks
    from interlock.app.task import AsyncTask, Task
    from interlock.worker.message.execution import TaskLease

__all__ = ["RowInvocation"]

_log = logging.getLogger("interlock.outbox")

PAUSE = 1.0
"""Seconds after which a message is tried again if the database cannot be reached."""


class RowInvocation(Invoked):
    """One call whose row is deleted when it was handled."""

    __slots__ = ("_before_put", "_begun", "_outbox", "_row", "_table")

    def __init__(
        self,
        outbox: Any,
        task: Task[..., Any] | AsyncTask[..., Any],
        hooks: Hooks,
        retry: Retry,
        lease: TaskLease,
        read: envelope.Envelope,
    ) -> None:
        super().__init__(task, hooks, retry, lease, read)
        self._outbox = outbox
        self._table = outbox.database.table
        text = read.headers.get(ROW)
        self._row = None if text is None else Reference.parse(text)
        self._begun = False
        if self._row is not None:
            # The engine that counted the earlier attempts has lost them.
            lease.attempt += self._row.attempts
        self._before_put = 0.0 if self._row is None else self._row.age

    # -- Threads ----------------------------------------------------------------------------------

    def run(self) -> bytes | None:
        """See ``Invoked``."""
        try:
            if self._task.declared.transaction is not None:
                return self._run_in_transaction()
            if self._row is not None and self._row.held and self._ask(self._held()):
                raise self._still_held()
            self._begun = True
            result = super().run()
            if self._row is None:
                return result
            with self._outbox.transactions.begin() as db:
                self._keep(db, connections.one(db, *self._delete()), "acked", result)
            return None
        except Exception as error:
            try:
                self._write_outcome(error)
            except Exception as failure:
                self._not_written(failure)
            self._raise_later(error)
            raise

    def _run_in_transaction(self) -> bytes | None:
        row = self._row
        with self._outbox.transactions.begin() as db:
            if row is not None:
                if row.held and connections.one(db, *self._held()):
                    raise self._still_held()
                deleted = connections.one(db, *self._delete())
                if deleted is None:
                    self._log_handled_before()
                    return None
            self._begun = True
            self._function = functools.partial(self._task.function, db)
            result = super().run()
            if row is None:
                return result
            self._keep(db, deleted, "acked", result)
            return None

    def _ask(self, statement: Statement) -> Any:
        if self._row is None:
            return None
        with self._outbox.transactions.begin() as db:
            return connections.one(db, *statement)

    def _write_outcome(self, error: Exception) -> None:
        statement = self._outcome(error)
        if statement is None:
            return
        try:
            self._write(error, statement)
        except Exception as failure:
            self._write(error, _in_ascii(statement, failure))

    def _write(self, error: Exception, statement: Statement) -> None:
        with self._outbox.transactions.begin() as db:
            found = connections.one(db, *statement)
            if type(error) is Expired:
                self._keep(db, found, "expired", None, str(error))

    def _keep(
        self, db: Any, deleted: Any, state: str, result: bytes | None, error: str | None = None
    ) -> None:
        """Keep the result of a call, in the transaction that has deleted its row."""
        ttl = self._task.declared.result_ttl
        if deleted is not None and ttl > 0:
            connections.one(db, *self._outbox.keep(deleted, state, result, error, ttl))

    # -- asyncio ----------------------------------------------------------------------------------

    async def arun(self) -> bytes | None:
        """See ``Invoked``."""
        try:
            if self._task.declared.transaction is not None:
                return await self._arun_in_transaction()
            if self._row is not None and self._row.held and await self._aask(self._held()):
                raise self._still_held()
            self._begun = True
            result = await super().arun()
            if self._row is None:
                return result
            async with self._outbox.transactions.abegin() as db:
                await self._akeep(db, await connections.aone(db, *self._delete()), "acked", result)
            return None
        except Exception as error:
            try:
                await self._awrite_outcome(error)
            except Exception as failure:
                self._not_written(failure)
            self._raise_later(error)
            raise

    async def _arun_in_transaction(self) -> bytes | None:
        row = self._row
        async with self._outbox.transactions.abegin() as db:
            if row is not None:
                if row.held and await connections.aone(db, *self._held()):
                    raise self._still_held()
                deleted = await connections.aone(db, *self._delete())
                if deleted is None:
                    self._log_handled_before()
                    return None
            self._begun = True
            self._function = functools.partial(self._task.function, db)
            result = await super().arun()
            if row is None:
                return result
            await self._akeep(db, deleted, "acked", result)
            return None

    async def _aask(self, statement: Statement) -> Any:
        if self._row is None:
            return None
        async with self._outbox.transactions.abegin() as db:
            return await connections.aone(db, *statement)

    async def _awrite_outcome(self, error: Exception) -> None:
        statement = self._outcome(error)
        if statement is None:
            return
        try:
            await self._awrite(error, statement)
        except Exception as failure:
            await self._awrite(error, _in_ascii(statement, failure))

    async def _awrite(self, error: Exception, statement: Statement) -> None:
        async with self._outbox.transactions.abegin() as db:
            found = await connections.aone(db, *statement)
            if type(error) is Expired:
                await self._akeep(db, found, "expired", None, str(error))

    async def _akeep(
        self, db: Any, deleted: Any, state: str, result: bytes | None, error: str | None = None
    ) -> None:
        ttl = self._task.declared.result_ttl
        if deleted is not None and ttl > 0:
            await connections.aone(db, *self._outbox.keep(deleted, state, result, error, ttl))

    # -- Statements -------------------------------------------------------------------------------

    def _delete(self) -> Statement:
        assert self._row is not None
        database = self._outbox.database
        where, values = database.find(self._row)
        return f"delete from {self._table} where {where} returning {database.returned}", values

    def _held(self) -> Statement:
        assert self._row is not None
        where, values = self._outbox.database.find(self._row)
        return f"select id from {self._table} where {where} and state = 'held'", values

    def _outcome(self, error: Exception) -> Statement | None:
        """Return the statement that writes the outcome of a failed handler to the row; None: there
        is nothing to write."""
        row, lease = self._row, self._lease
        if row is None or not self._begun:
            return None
        if type(error) is Expired:
            return self._delete()
        found = judged(error, self.retry.on, details=True)
        if found.how == "defer":
            return None
        attempts = self.retry.attempts
        last = found.how == "give_up" or (attempts is not None and lease.attempt >= attempts)
        state = None
        if found.how == "reject" or isinstance(error, PayloadError):
            state = "dead"
        elif last:
            state = "dead" if self.retry.then == "dead" else "held"
        # PostgreSQL's text has no NUL.
        text = kept(found.whole, MAX_ERROR).replace("\0", "\u2400")
        where, values = self._outbox.database.find(row)
        return (
            f"update {self._table} set "
            f"attempts = {self._outbox.database.greatest}(attempts, {{}}), error = {{}}, "
            f"state = {{}} where {where} returning id",
            (lease.attempt, text, state, *values),
        )

    # -- Outcomes ---------------------------------------------------------------------------------

    def _log_handled_before(self) -> None:
        lease = self._lease
        _log.info(
            "message %d (%s) in queue %r has no row: it was handled or cancelled before, or put "
            "before a failover",
            lease.id, lease.task, lease.queue, extra=details(lease),
        )  # fmt: skip

    def _still_held(self) -> StillHeld:
        # As if this was the last attempt, whatever the policy retries.
        self.retry = Retry(self.retry.attempts, on=(), then="hold")
        self._begun = False
        return StillHeld("the row is held; `interlock outbox requeue` clears that")

    def _not_written(self, error: Exception) -> None:
        lease = self._lease
        _log.warning(
            "the outcome of message %d (%s) in queue %r is not in its row: %s",
            lease.id, lease.task, lease.queue, self._text(error), extra=details(lease),
        )  # fmt: skip

    def _text(self, error: Exception) -> str:
        return with_grants(error, "worker", self._outbox.schema)

    def _raise_later(self, error: Exception) -> None:
        """Raise RetryAfter if the handler has not begun: that does not count as an attempt."""
        if self._begun or isinstance(error, StillHeld):
            return
        lease = self._lease
        _log.warning(
            "message %d (%s) in queue %r has no transaction: %s; trying again in %.3g s",
            lease.id, lease.task, lease.queue, self._text(error), PAUSE, extra=details(lease),
        )  # fmt: skip
        raise RetryAfter(PAUSE, attempt=False) from error


def _in_ascii(statement: Statement, error: Exception) -> Statement:
    """Return a statement with texts that any database can keep. Raises the error if it has another
    cause."""
    if not isinstance(error, UnicodeError) and sqlstate(error) != UNTRANSLATABLE:
        raise error
    text, values = statement
    return text, tuple(
        each.encode("ascii", "backslashreplace").decode() if isinstance(each, str) else each
        for each in values
    )


UNTRANSLATABLE = "22P05"
"""SQLSTATE of a character that the database's encoding does not have."""


class StillHeld(Exception):
    """The row of a message was held before the engine lost it."""


Statement = tuple[str, tuple[Any, ...]]
