"""``Outbox``: sends calls of tasks within the transactions of a database."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from interlock.app import App
from interlock.app.task import AsyncTask, Task
from interlock.errors import PayloadError
from interlock.outbox import connections
from interlock.outbox.postgres.database import Database
from interlock.outbox.postgres.driver import SCHEMA, named_url
from interlock.outbox.postgres.rights import with_grants
from interlock.outbox.results import Results
from interlock.outbox.row_job import RowJob
from interlock.outbox.row_list import RowList
from interlock.outbox.rows import LONGEST_CALL, options_text
from interlock.outbox.transactions import Transactions
from interlock.retry import whole

if TYPE_CHECKING:
    from interlock.app import envelope
    from interlock.app.middleware import Hooks
    from interlock.outbox.explanation import RowExplanation
    from interlock.outbox.handling import RowInvocation
    from interlock.outbox.relay import Relay
    from interlock.outbox.sqlite.database import SQLiteDatabase
    from interlock.retry import Retry
    from interlock.worker.message.execution import TaskLease

__all__ = ["Outbox"]

P = ParamSpec("P")
R = TypeVar("R")

WINDOW = 100_000


class Outbox:
    """A table of a PostgreSQL database or an SQLite file, whose rows are calls of an app's tasks.

    ``send`` writes a row in the caller's transaction. The workers of the app put the rows into the
    app's engine in the order of the commits: one of them at a time, by its relay. A row is deleted
    when its call was handled; the engine may lose all its data meanwhile.

    Args:
        app: the app. It has one outbox at most.
        url: URL of the database, for workers: ``postgresql://…``, or ``sqlite:///`` and the path of
            a file, for the processes of one machine. Default: INTERLOCK_POSTGRES_URL.
        relay_url: URL for the relay, whose lock needs a session of its own: a PgBouncer in
            transaction mode does not provide one. Default: ``url``.
        begin: a function that returns a context manager, whose value is a connection with an open
            transaction that its end commits, such as ``engine.begin`` of SQLAlchemy. Handlers with
            ``transaction=`` get that connection; for coroutine functions it is asynchronous.
            Default: connections of psycopg, or of sqlite3 and aiosqlite, opened by ``url``.
        schema: schema of the tables, or in SQLite the prefix of their names; ``migrate`` creates
            them. Default ``"interlock"``.
        window: maximum number of rows that are in the engine at once. Default 100,000.

    Raises:
        TypeError, ValueError: an argument is of a wrong type or out of its range, or the app has
            an outbox.

    The database is not contacted yet. An outbox may be used from any thread and event loop.
    """

    def __init__(
        self,
        app: App,
        url: str | None = None,
        *,
        relay_url: str | None = None,
        begin: Callable[[], Any] | None = None,
        schema: str = SCHEMA,
        window: int = WINDOW,
    ) -> None:
        if not isinstance(app, App):
            raise TypeError(f"Outbox(): app is {type(app).__name__}; allowed: App")
        if app._outbox is not None:
            raise ValueError("Outbox(): the app has an outbox already")
        if not isinstance(window, int) or window < 1:
            raise ValueError(f"Outbox(): window is {window!r}; allowed: a whole number from 1")
        self.app = app
        self.schema = schema
        self.window = window
        self._begin = begin
        self.database: Database | SQLiteDatabase = _database(url, relay_url, schema)
        """The questions to the database."""
        table, columns = self.database.table, self.database.returned
        self._insert = (
            f"insert into {table} (queue, task, payload, keys, shared, delay, dedup, options) "
            "values ({}, {}, {}, {}, {}, {}, {}, {}) on conflict do nothing returning "
            f"{columns}"
        )
        known = f"queue = {{}} and dedup = {{}} and {self.database.live}"
        self._known = f"select {columns} from {table} where {known}"
        self.transactions = Transactions(self)
        """The connections of handlers in this process."""
        self.results = Results(self.database)
        """The reader of results in this process."""
        app._outbox = self

    def migrate(self) -> None:
        """Create the tables, or bring them to this release's version, like `interlock outbox
        migrate`.

        Raises:
            ValueError: no database is named.
            WrongVersion: the tables are of a later release.
            Exception: what the database's library raises.
        """
        self.database.migrate()

    def send(
        self, db: Any, task: Task[P, R] | AsyncTask[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> RowJob[R]:
        """Send a call of a task when the transaction of ``db`` commits; not at all if it does not.

        Args:
            db: a connection, cursor or session of psycopg, psycopg2, sqlite3 or SQLAlchemy, or
                Django's ``connection``. On one that commits each statement the call is sent at
                once.
            task: a task of this app; ``task.options(...)`` for a delay, a priority, a dedup string
                or an expiry. A delay begins with the commit, in SQLite with the send. A dedup
                string is known while a row has it that is not dead: until its call was handled.
            args, kwargs: the arguments of the call.

        Raises:
            TypeError, ValueError, PayloadError: as ``task.send``; or ``db`` is of another type.
            Exception: what the library of ``db`` raises.
        """
        return self._send(db, task, *self._row(task, args, kwargs))

    def _send(self, db: Any, task: Any, values: Sequence[Any], ready: Any) -> RowJob[Any]:
        try:
            found = connections.one(db, self._insert, values)
            known = found is None
            if known:
                found = connections.one(db, self._known, (values[0], values[6]))
        except BaseException as error:
            self._failed([ready], error)
            raise
        return self._sent(task, ready, found, known)

    async def asend(
        self, db: Any, task: Task[P, R] | AsyncTask[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> RowJob[R]:
        """Do what ``send`` does, on an asynchronous connection, cursor or session of psycopg,
        asyncpg, aiosqlite or SQLAlchemy."""
        return await self._asend(db, task, *self._row(task, args, kwargs))

    async def _asend(self, db: Any, task: Any, values: Sequence[Any], ready: Any) -> RowJob[Any]:
        try:
            found = await connections.aone(db, self._insert, values)
            known = found is None
            if known:
                found = await connections.aone(db, self._known, (values[0], values[6]))
        except BaseException as error:
            self._failed([ready], error)
            raise
        return self._sent(task, ready, found, known)

    def send_many(
        self,
        db: Any,
        task: Task[..., R] | AsyncTask[..., R],
        calls: Iterable[Sequence[Any] | Mapping[str, Any]],
    ) -> list[RowJob[R]]:
        """Send several calls of a task by one statement, in their order.

        Args:
            db, task: see ``send``.
            calls: the arguments of each call: a sequence of positional ones, or a mapping of named
                ones.

        Returns a result for each call. Raises as ``send``, before anything is sent.
        """
        rows = self._list(task, calls)
        if not rows.rows:
            return []
        if self.database.is_local:
            # Without a server, a statement for each costs no more.
            return [self._send(db, task, *row) for row in rows.rows]
        try:
            found = connections.one(db, *rows.insert())
            known = None
            if rows.are_known(found):
                known = connections.one(db, *rows.known())
        except BaseException as error:
            self._failed([ready for _, ready in rows.rows], error)
            raise
        return self._sent_list(task, rows, found, known)

    async def asend_many(
        self,
        db: Any,
        task: Task[..., R] | AsyncTask[..., R],
        calls: Iterable[Sequence[Any] | Mapping[str, Any]],
    ) -> list[RowJob[R]]:
        """Do what ``send_many`` does, on what ``asend`` takes."""
        rows = self._list(task, calls)
        if not rows.rows:
            return []
        if self.database.is_local:
            return [await self._asend(db, task, *row) for row in rows.rows]
        try:
            found = await connections.aone(db, *rows.insert())
            known = None
            if rows.are_known(found):
                known = await connections.aone(db, *rows.known())
        except BaseException as error:
            self._failed([ready for _, ready in rows.rows], error)
            raise
        return self._sent_list(task, rows, found, known)

    def _list(self, task: Any, calls: Iterable[Any]) -> RowList:
        rows: list[tuple[Sequence[Any], Any]] = []
        try:
            for call in calls:
                named = isinstance(call, Mapping)
                rows.append(self._row(task, () if named else tuple(call), call if named else {}))
        except BaseException as error:
            self._failed([ready for _, ready in rows], error)
            raise
        sent = self.database.sent if rows and task.declared.result_ttl > 0 else None
        return RowList(self.database.table, rows, sent)

    def _sent_list(self, task: Any, rows: RowList, found: Any, known: Any) -> list[RowJob[Any]]:
        sent = rows.sent(found, known)
        return [self._sent(task, ready, id, known) for ready, id, known in sent]

    def _row(self, task: Any, args: Any, kwargs: Any) -> tuple[Sequence[Any], Any]:
        ready = self._checked(task, "send()")._ready(args, kwargs)
        if len(ready.payload) > LONGEST_CALL:
            error = PayloadError(
                f"{task.name}: the call is {len(ready.payload)} bytes when encoded; allowed in an "
                f"outbox: up to {LONGEST_CALL}"
            )
            self._failed([ready], error)
            raise error
        options = ready.options
        queue = task.declared.queue
        retry = options["retry"] or self.app.queues.get(queue, {}).get("retry") or self.app.retry
        values = (
            queue,
            task.name,
            ready.payload,
            options["keys"],
            options["shared"],
            options.get("delay") or None,
            options.get("dedup"),
            options_text(options, retry),
        )
        return self.database.columns(values), ready

    def _checked(self, task: Any, call: str) -> Any:
        if not isinstance(task, Task | AsyncTask) or task._app is not self.app:
            raise TypeError(f"{call}: {task!r} is given; allowed: a task of the outbox's app")
        if task._coalesce is not None:
            raise ValueError(
                f"{call}: task {task.name!r} has coalesce=, and each row of an outbox is handled; "
                "declare a task without it, or send this one by send() once the transaction has "
                "committed"
            )
        if task.declared.run is not None:
            raise ValueError(
                f"{call}: task {task.name!r} has run=, and each row of an outbox is handled by "
                "itself; declare a task without it, or send this one by send() once the "
                "transaction has committed"
            )
        return task

    def _failed(self, sends: list[Any], error: BaseException) -> None:
        if (text := with_grants(error, "producer", self.schema)) != str(error).strip():
            error.add_note(text)
        self.database.note(error)
        for ready in sends:
            self.app._hooks.after("on_send_error", ready.sending, error)

    def _sent(self, task: Any, ready: Any, found: Any, known: bool) -> RowJob[Any]:
        # A row with the dedup string that ended meanwhile has no id any more.
        sent: RowJob[Any] = RowJob(self, task, None if found is None else tuple(found), known)
        self.app._hooks.after("after_send", ready.sending, sent)
        return sent

    def job(self, task: Task[..., R] | AsyncTask[..., R], id: int) -> RowJob[R]:
        """Return the job of a call that was sent before, by the id of its row.

        The database is not asked: ``RowJob.state`` says whether the row exists.

        Raises:
            TypeError: the id is not an int, or the task is not one of this app.
        """
        return RowJob(self, self._checked(task, "job()"), (whole(id, "job(): id"),), False)

    def keep(
        self, identity: Sequence[Any], state: str, result: bytes | None, error: str | None,
        ttl: float,
    ) -> tuple[str, tuple[Any, ...]]:  # fmt: skip
        """Return the statement that keeps the result of a deleted row, and its values."""
        database = self.database
        return (
            f"insert into {database.results} (id, sent, state, result, error, expires) "
            f"values ({{}}, {{}}, {{}}, {{}}, {{}}, {database.after}) on conflict do nothing "
            "returning id",
            (*identity, state, result, error, ttl),
        )

    def explain(self, id: int) -> RowExplanation:
        """Return what the row of a send waits for: its commit, the relay, or messages in the
        engine.

        Args:
            id: that of the job.

        Raises:
            WrongVersion: the database has no tables of this release.
            InterlockError: the engine does not answer, or refuses.
            Exception: what the database's library raises.
        """
        from interlock.client.admin.operator import Operator
        from interlock.client.admin.server import Server
        from interlock.outbox.explanation import explain

        kind = "sqlite" if self.database.is_local else "postgres"
        admin = importlib.import_module(f"interlock.outbox.{kind}.admin")
        self.app._open("default")
        with contextlib.closing(self.database.results_connection()) as connection:
            operator = Operator(Server(self.app._client))
            return explain(admin, connection, self.schema, id, operator)

    # -- For the app: see interlock.app.row -------------------------------------------------------

    def invocation(
        self,
        task: Task[..., Any] | AsyncTask[..., Any],
        hooks: Hooks,
        retry: Retry,
        lease: TaskLease,
        read: envelope.Envelope,
    ) -> RowInvocation:
        """See ``AnyOutbox``."""
        from interlock.outbox.handling import RowInvocation

        return RowInvocation(self, task, hooks, retry, lease, read)

    def relay(self, client: Callable[[], Any]) -> Relay:
        """See ``AnyOutbox``."""
        from interlock.outbox.relay import Relay

        return Relay(self, client)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.app!r}>"


def _database(url: str | None, relay_url: str | None, schema: str) -> Database | SQLiteDatabase:
    named = named_url(url)
    if named is None or not named.startswith("sqlite:"):
        return Database(url, relay_url, schema)
    if relay_url is not None:
        raise ValueError("Outbox(): relay_url is for PostgreSQL; a file has one URL")
    from interlock.outbox.sqlite.database import SQLiteDatabase

    return SQLiteDatabase(named, schema)
