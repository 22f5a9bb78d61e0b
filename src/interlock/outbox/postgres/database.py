"""The questions of an outbox and its relay to PostgreSQL; ``sqlite.database`` has the same ones."""

from __future__ import annotations

import contextlib
import secrets
import select
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from interlock.client.transport.thread_link import readable
from interlock.outbox.postgres import schema as schemas
from interlock.outbox.postgres.driver import (
    connect,
    connect_options,
    database_url,
    psycopg,
    quoted,
)
from interlock.outbox.postgres.position import Position
from interlock.outbox.rows import SENT, Reference
from interlock.outbox.transactions import ENDED

__all__ = ["LOCK", "Database", "RelayConnection"]

LOCK = "hashtext('interlock'), hashtext({})"
"""The key of the relay's lock, of the schema's name."""
HANDLER = "interlock handler"
RELAY = "interlock relay"
SETTINGS = """
select set_config(name, '0', false) from pg_settings where name in ('lock_timeout',
    'transaction_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout')
union all select set_config('row_security', 'off', false)"""
"""For the relay, whatever its role has: its statements are short, and its session idles. Rows that
a policy hides are an error."""


class Database:
    """A PostgreSQL with the tables of an outbox.

    Args:
        url: for handlers; None: the one in the environment.
        relay_url: for the relay; None: the same.
        schema: that of the tables.

    Raises ValueError if the schema's name is not a plain one.
    """

    is_local = False
    """The database is a file."""
    live = "state is distinct from 'dead'"
    """A condition: the row is not dead."""
    greatest = "greatest"
    """The function that returns the greatest of its arguments."""
    sent = SENT
    """SQL: time of a row's send, in µs from 1970; a rollback or a failover may free its id."""
    returned = f"id, {SENT}"
    """The columns that identify a row."""
    given_id = "(%s::bigint)"
    now = "clock_timestamp()"
    after = "clock_timestamp() + make_interval(secs => {}::float8)"
    """The time that is this number of seconds ahead."""
    skip = "for update skip locked"
    """Words for rows that no other transaction has."""
    poll = 1.0
    """Seconds after which the relay looks for rows without being notified."""

    def __init__(self, url: str | None, relay_url: str | None, schema: str) -> None:
        self._url, self._relay_url, self.schema = url, relay_url, schema
        self.table = f"{quoted(schema)}.outbox"
        self.results = f"{self.table}_results"

    @property
    def url(self) -> str:
        """The URL for handlers. Raises ValueError if none is given."""
        return database_url(self._url)

    @property
    def relay_url(self) -> str:
        """The URL for the relay. Raises ValueError if none is given."""
        return self._relay_url or self.url

    def check(self) -> None:
        """Raise ValueError if no database is named, ImportError if a library is missing."""
        self.url  # noqa: B018
        psycopg()

    def columns(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the values of a row as the database keeps them."""
        return values

    def migrate(self) -> None:
        """Bring the tables to the present version. Raises WrongVersion."""
        with contextlib.closing(connect(self.url, "interlock postgres")) as connection:
            schemas.migrate(connection, self.schema)

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The errors of the database."""
        found: tuple[type[Exception], ...] = (psycopg().Error,)
        return found

    def find(self, row: Reference) -> tuple[str, tuple[Any, ...]]:
        """Return the condition that finds the row of a message, and its values."""
        # Not what was put before a failover: the relay has put the rows again, in their order.
        same, values = f"id = {{}} and {SENT} = {{}}", (row.id, row.sent)
        if row.timeline:
            return f"{same} and {schemas.TIMELINE} = {{}}", (*values, row.timeline)
        return same, values

    def note(self, error: BaseException) -> None:
        """Add to a failed send what its user can do."""

    def relay_connection(self) -> RelayConnection:
        """Return a new connection for the relay."""
        return RelayConnection(self.relay_url, self.schema)

    def results_connection(self) -> Any:
        """Return a new connection for the reader of results."""
        return connect(self.url, "interlock results", **self._options())

    # -- Handlers ---------------------------------------------------------------------------------

    def connect(self) -> Any:
        """Return a connection for a handler."""
        return connect(self.url, HANDLER, **self._options())

    async def aconnect(self) -> Any:
        """Return one of asyncio."""
        return await psycopg().AsyncConnection.connect(
            self.url, **connect_options(HANDLER), **self._options()
        )

    def _options(self) -> dict[str, Any]:
        # A relay with a URL of its own: a PgBouncer may give each transaction another session,
        # which does not know the statements that psycopg prepares after five uses.
        return {} if self._relay_url is None else {"prepare_threshold": None}

    @contextlib.contextmanager
    def transaction(self, connection: Any) -> Iterator[None]:
        """Begin a transaction; commit it at the end, or roll it back if an exception is raised."""
        with connection.transaction():
            yield
            _check_open(connection)

    @contextlib.asynccontextmanager
    async def atransaction(self, connection: Any) -> AsyncIterator[None]:
        """Do the same on a connection of asyncio."""
        async with connection.transaction():
            yield
            _check_open(connection)

    def is_usable(self, connection: Any) -> bool:
        """Return whether a connection that nothing uses is open, without a transaction."""
        # Nothing was requested: any data means the end of the connection.
        idle = psycopg().pq.TransactionStatus.IDLE
        return connection.info.transaction_status == idle and not readable(connection, 0)

    def drop(self, connection: Any) -> None:
        """Close a connection."""
        # Not its close(): that of asyncio needs its loop.
        connection.pgconn.finish()


def _check_open(connection: Any) -> None:
    """Raise ProgrammingError of psycopg if the handler has ended its transaction by SQL."""
    if connection.info.transaction_status == psycopg().pq.TransactionStatus.IDLE:
        raise psycopg().ProgrammingError(ENDED)


class RelayConnection:
    """The relay's connection, which may have the lock.

    Raises what psycopg raises.
    """

    def __init__(self, url: str, schema: str) -> None:
        self.schema = schema
        self.connection = connect(url, RELAY)
        try:
            self._check_session(url)
            self.connection.execute("set statement_timeout = 0")
            self.connection.execute(SETTINGS)
        except BaseException:
            self.connection.close()
            raise

    def _check_session(self, url: str) -> None:
        """Raise OperationalError of psycopg if each transaction may have another session."""
        query = "select pg_backend_pid()"
        if self.connection.execute(query).fetchone()[0] == self.connection.info.backend_pid:
            return
        # Something is in between. If it shares sessions, others see a setting, or this one does not
        # see it again.
        query = "select current_setting('interlock.relay', true)"
        for _ in range(3):
            drawn = secrets.token_hex(8)
            self.connection.execute("select set_config('interlock.relay', %s, false)", (drawn,))
            with contextlib.closing(connect(url, RELAY)) as other:
                seen = other.execute(query).fetchone()[0]
            if seen == drawn or self.connection.execute(query).fetchone()[0] != drawn:
                raise psycopg().OperationalError(
                    "its transactions change their sessions, as by a PgBouncer in transaction "
                    "mode: name the database itself, as relay_url of the outbox"
                )

    def prefix(self) -> str:
        """Return the prefix of the rows' dedup strings, and the timeline behind a dot. Raises
        WrongVersion."""
        return schemas.prefix_on_timeline(self.connection, self.schema)

    def lock(self) -> bool:
        """Try to get the lock, for the life of this connection; then listen."""
        lock = f"select pg_try_advisory_lock({LOCK.format('%s')})"
        if not self.connection.execute(lock, (self.schema,)).fetchone()[0]:
            return False
        self.connection.execute(f'listen "{self.schema}.outbox"')
        # A report that is lost with the server does no harm.
        self.connection.execute("set synchronous_commit = off")
        return True

    def report(self, relay: str, position: int, gaps: int, waits: str | None) -> None:
        """Write what the relay reports; see ``Report``."""
        self.connection.execute(
            f"update {quoted(self.schema)}.outbox_meta set relay = %s, session = pg_backend_pid(), "
            "position = %s, gaps = %s, waits = %s, reported = clock_timestamp()",
            (relay, position, gaps, waits),
        )

    def is_left(self, id: int) -> bool:
        """Return whether a row is there and not dead."""
        query = f"select 1 from {quoted(self.schema)}.outbox where id = %s and {Database.live}"
        return self.connection.execute(query, (id,)).fetchone() is not None

    def set_dead(self, id: int, error: str) -> None:
        """Make a row dead that cannot be put."""
        self.connection.execute(
            f"update {quoted(self.schema)}.outbox set state = 'dead', error = %s where id = %s",
            (error.replace("\0", "\u2400"), id),
        )

    def delete_expired(self, limit: int) -> int:
        """Delete results that have expired; return their number."""
        table = f"{quoted(self.schema)}.outbox_results"
        found: int = self.connection.execute(
            f"delete from {table} where id = any(array(select id from {table} "
            "where expires <= clock_timestamp() order by expires limit %s))",
            (limit,),
        ).rowcount
        return found

    def position(self, window: int) -> Position:
        """Return a reader that begins at the oldest row."""
        return Position(self.connection, self.schema, window)

    def wait(self, wake: int, seconds: float) -> None:
        """Return when rows may have come, when the pipe ``wake`` is readable, or in time."""
        pgconn = self.connection.pgconn
        if not pgconn.notifies():
            ready, _, _ = select.select([self.connection, wake], (), (), seconds)
            if self.connection in ready:
                pgconn.consume_input()
        while pgconn.notifies():
            pass

    def close(self) -> None:
        """Release the lock."""
        self.connection.close()
