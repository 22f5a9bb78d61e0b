"""The questions of an outbox and its relay to an SQLite file."""

from __future__ import annotations

import contextlib
import os
import select
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from interlock.outbox.postgres.driver import quoted
from interlock.outbox.rows import Reference
from interlock.outbox.sqlite import schema as schemas
from interlock.outbox.sqlite.lock import FileLock
from interlock.outbox.sqlite.position import NOW, SENT, Position
from interlock.outbox.transactions import ENDED

__all__ = ["BUSY", "RelayConnection", "SQLiteDatabase", "connect"]

BUSY = 30.0
"""Seconds that a connection waits for the right to write."""
COMMIT, ROLLBACK = "commit -- of the worker", "rollback -- of the worker"
"""With words of their own: a handler does not get them from the cache of checked statements."""
LOOK = 0.004
"""Seconds after which the relay asks whether the file has changed: that reads shared memory."""


class SQLiteDatabase:
    """An SQLite file with the tables of an outbox.

    Args:
        url: ``sqlite:///`` and the path.
        schema: prefix of the tables' names.

    Raises ValueError if the path or the prefix is not allowed.
    """

    is_local = True
    """The database is a file."""
    live = "state is not 'dead'"
    """A condition: the row is not dead."""
    greatest = "max"
    """The function that returns the greatest of its arguments."""
    sent = SENT
    """SQL: time of a row's send, in µs from 1970; a rollback or a failover may free its id."""
    returned = f"id, {SENT}"
    """The columns that identify a row."""
    given_id = "(?)"
    now = NOW
    after = f"{NOW} + {{}}"
    """The time that is this number of seconds ahead."""
    skip = ""
    """Words for rows that no other transaction has: there is one writer at a time."""
    poll = 1.0
    """Seconds after which the relay reads even if the file seems unchanged."""
    errors = (sqlite3.Error,)
    """The errors of the database."""

    def __init__(self, url: str, schema: str) -> None:
        quoted(schema)
        self.url = self.relay_url = url
        self.path, self.schema = path_of(url), schema
        self.table = f'"{schema}_outbox"'
        self.results = f'"{schema}_outbox_results"'
        self._writer = threading.Lock()

    def check(self) -> None:
        """Raise ImportError if SQLite is too old."""
        schemas.check_library()

    def columns(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return the values of a row as the database keeps them: the lists of keys are packed."""
        pack = msgspec.msgpack.encode
        return [pack(each) if isinstance(each, list) else each for each in values]

    def migrate(self) -> None:
        """Bring the tables to the present version. Raises WrongVersion."""
        with contextlib.closing(connect(self.path, "rwc")) as connection:
            schemas.migrate(connection, self.schema)

    def relay_connection(self) -> RelayConnection:
        """Return a new connection for the relay."""
        return RelayConnection(self.path, self.schema)

    def find(self, row: Reference) -> tuple[str, tuple[Any, ...]]:
        """Return the condition that finds the row of a message, and its values."""
        return f"id = {{}} and {SENT} = {{}}", (row.id, row.sent)

    def note(self, error: BaseException) -> None:
        """Add to a failed send what its user can do."""
        if "database is locked" in str(error):
            error.add_note(
                "another connection is writing to the file, which has one writer at a time: keep "
                "transactions short, raise the connection's timeout, and begin with `begin "
                "immediate` a transaction that reads before it writes"
            )

    def results_connection(self) -> FileConnection:
        """Return a new connection for the reader of results."""
        return connect(self.path)

    # -- Handlers ---------------------------------------------------------------------------------

    def connect(self) -> sqlite3.Connection:
        """Return a connection for a handler."""
        return connect(self.path, factory=HandlerConnection)

    async def aconnect(self) -> Any:
        """Return one of asyncio. Raises ImportError without aiosqlite."""
        try:
            import aiosqlite
        except ImportError as error:
            raise ImportError(
                "the transaction of a coroutine function needs aiosqlite: pip install aiosqlite "
                f"({error})"
            ) from None
        made: Any = aiosqlite.connect(_uri(self.path, "rw"), factory=HandlerConnection, **_OPTIONS)
        # A thread that is not a daemon would keep the program from ending.
        getattr(made, "_thread", made).daemon = True
        file = _file(self.path)
        opened = await made
        opened._conn.file = file
        return opened

    @contextlib.contextmanager
    def transaction(self, connection: Any) -> Iterator[None]:
        """Begin a transaction that may write at once; commit it at the end, or roll it back if an
        exception is raised."""
        # Threads of one process queue here, where the next one need not poll the file.
        if not self._writer.acquire(timeout=BUSY):
            raise self._busy()
        try:
            try:
                connection.execute("begin immediate")
            except sqlite3.OperationalError as error:
                raise self._explained(error) from error
            try:
                with _refused(connection):
                    yield
                with _ending(connection):
                    connection.execute(COMMIT)
            except BaseException:
                # Also if the commit failed: a cursor that the handler left open refuses it.
                if connection.in_transaction:
                    with _ending(connection):
                        connection.execute(ROLLBACK)
                raise
        finally:
            self._writer.release()

    @contextlib.asynccontextmanager
    async def atransaction(self, connection: Any) -> AsyncIterator[None]:
        """Do the same on a connection of aiosqlite."""
        try:
            await connection.execute("begin immediate")
        except sqlite3.OperationalError as error:
            raise self._explained(error) from error
        own = connection._conn
        try:
            with _refused(own):
                yield
            with _ending(own):
                await connection.execute(COMMIT)
        except BaseException:
            if connection.in_transaction:
                with _ending(own):
                    await connection.execute(ROLLBACK)
            raise

    def is_usable(self, connection: Any) -> bool:
        """Return whether a connection that nothing uses has no transaction, and has the file open
        that is at the path now."""
        own = connection if isinstance(connection, FileConnection) else connection._conn
        return not connection.in_transaction and own.file == _file(self.path)

    def drop(self, connection: Any) -> None:
        """Close a connection."""
        if isinstance(connection, sqlite3.Connection):
            connection.close()
            return
        # Not the close() of aiosqlite, which needs its loop; in a thread, where its stop() makes
        # no loop that nobody would close.
        ending = threading.Thread(target=connection.stop)
        ending.start()
        ending.join()

    def _explained(self, error: sqlite3.OperationalError) -> sqlite3.OperationalError:
        return self._busy() if "database is locked" in str(error) else error

    def _busy(self) -> sqlite3.OperationalError:
        return sqlite3.OperationalError(
            f"another transaction has been writing to {self.path} for {BUSY:.3g} s"
        )


class FileConnection(sqlite3.Connection):
    """A connection that knows which file it has open."""

    file: tuple[int, int] | None = None
    """Device and number of the file."""


class HandlerConnection(FileConnection):
    """A connection whose transaction the worker commits, not the handler."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.ends = False
        """The worker is ending the transaction."""
        self.was_refused = False
        """The handler tried to end it by SQL, in this transaction."""
        self.set_authorizer(self._authorize)

    def _authorize(self, action: int, what: str | None, *_: object) -> int:
        if action == sqlite3.SQLITE_TRANSACTION and what != "BEGIN" and not self.ends:
            self.was_refused = True
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def _refuse(self, *_: object) -> Any:
        raise sqlite3.ProgrammingError(ENDED)

    commit = rollback = executescript = __enter__ = __exit__ = _refuse


@contextlib.contextmanager
def _ending(connection: HandlerConnection) -> Iterator[None]:
    connection.ends = True
    try:
        yield
    finally:
        connection.ends = False


@contextlib.contextmanager
def _refused(connection: HandlerConnection) -> Iterator[None]:
    """Explain the words "not authorized"."""
    connection.was_refused = False
    try:
        yield
    except sqlite3.DatabaseError as error:
        if connection.was_refused and "not authorized" in str(error):
            raise sqlite3.ProgrammingError(ENDED) from error
        raise


class RelayConnection:
    """The relay's connection, which may have the lock. Raises what sqlite3 raises."""

    def __init__(self, path: Path, schema: str) -> None:
        self.schema, self._path = schema, path
        self.connection = connect(path)
        self._lock = FileLock(path)
        self._seen: int | None = None
        """The version of the file at the last read."""

    def prefix(self) -> str:
        """Return the prefix of the rows' dedup strings. Raises WrongVersion."""
        return schemas.prefix(self.connection, self.schema)

    def lock(self) -> bool:
        """Try to get the lock, for the life of this connection."""
        if not self._lock.acquire():
            return False
        # It writes only reports: one that is lost with the machine does no harm, nor one that is
        # left out because a transaction is writing.
        self.connection.execute("pragma synchronous = normal")
        self.connection.execute("pragma busy_timeout = 0")
        return True

    def report(self, relay: str, position: int, gaps: int, waits: str | None) -> None:
        """Write what the relay reports; see ``Report``."""
        try:
            self.connection.execute(
                f'update "{self.schema}_outbox_meta" set position = ?, waits = ?, reported = {NOW}',
                (position, waits),
            )
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise

    def is_left(self, id: int) -> bool:
        """Return whether a row is there and not dead."""
        query = f'select 1 from "{self.schema}_outbox" where id = ? and {SQLiteDatabase.live}'
        return self.connection.execute(query, (id,)).fetchone() is not None

    def set_dead(self, id: int, error: str) -> None:
        """Make a row dead that cannot be put."""
        self.connection.execute(f"pragma busy_timeout = {BUSY * 1000:.0f}")
        try:
            self.connection.execute(
                f"update \"{self.schema}_outbox\" set state = 'dead', error = ? where id = ?",
                (error, id),
            )
        finally:
            self.connection.execute("pragma busy_timeout = 0")

    def delete_expired(self, limit: int) -> int:
        """Delete results that have expired; return their number."""
        table = f'"{self.schema}_outbox_results"'
        try:
            return self.connection.execute(
                f"delete from {table} where id in (select id from {table} where expires <= {NOW} "
                "order by expires limit ?)",
                (limit,),
            ).rowcount
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            return 0

    def position(self, window: int) -> Position:
        """Return a reader that begins at the oldest row."""
        return Position(self, self.schema, window)

    def looked(self) -> None:
        """Note the version of the file, before it is read."""
        self._seen = self._version()

    def wait(self, wake: int, seconds: float) -> None:
        """Return when another connection has committed, when the pipe ``wake`` is readable, or in
        time. Raises OperationalError if another file has taken the place of this one."""
        if _file(self._path) != self.connection.file:
            raise sqlite3.OperationalError(f"{self._path} was replaced or removed")
        until = time.monotonic() + seconds
        while self._version() == self._seen and (left := until - time.monotonic()) > 0:
            if select.select([wake], (), (), min(LOOK, left))[0]:
                return

    def close(self) -> None:
        """Release the lock."""
        self.connection.close()
        self._lock.release()

    def _version(self) -> int:
        found: int = self.connection.execute("pragma data_version").fetchone()[0]
        return found


def connect(
    path: Path, mode: str = "rw", factory: type[FileConnection] = FileConnection
) -> FileConnection:
    """Return a connection that commits each statement, unless it begins a transaction.

    Args:
        path: the file.
        mode: ``"rw"``, or ``"rwc"`` to create the file.
        factory: class of the connection.

    Raises sqlite3.OperationalError if the file does not exist.
    """
    if mode == "rw" and not path.exists():
        raise sqlite3.OperationalError(f"{path} does not exist; run `interlock outbox migrate`")
    # Before it is opened: a file that takes its place meanwhile is opened once more.
    file = _file(path)
    made = sqlite3.connect(_uri(path, mode), factory=factory, **_OPTIONS)
    made.file = file
    return made


def _file(path: Path) -> tuple[int, int] | None:
    """Return the device and the number of a file; None: there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def path_of(url: str) -> Path:
    """Return the path of a URL. Raises ValueError."""
    scheme, _, path = url.partition("///")
    if scheme != "sqlite:" or not path or path.startswith(":"):
        raise ValueError(
            f"the database is {url!r}; allowed: sqlite:///relative/path, sqlite:////absolute/path"
        )
    return Path(os.path.realpath(path))


def _uri(path: Path, mode: str) -> str:
    return f"{path.as_uri()}?mode={mode}"


_OPTIONS: dict[str, Any] = {
    "timeout": BUSY, "isolation_level": None, "check_same_thread": False, "uri": True,
}  # fmt: skip
