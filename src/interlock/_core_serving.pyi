"""A part of the native module's stub, which is too long for one file: engines here, and clocks."""

import datetime as dt
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Literal, Self, final

@final
class WallClock:
    """The tracking of a server's clock: a jump of it is followed once it has lasted."""

    def __new__(cls) -> Self: ...
    def read(self, wall: int, elapsed: int) -> tuple[int, int]:
        """Take a reading of both clocks, µs. Return the time to use, and the jump that it follows
        from this reading on; 0: none."""

@final
class ManualClock:
    """A clock for tests: it stops until ``advance`` moves it."""

    def __new__(cls, start: float | dt.timedelta | None = None) -> Self: ...
    def now(self) -> float:
        """Return the seconds since the start of the count."""
    def advance(self, seconds: float | dt.timedelta) -> None:
        """Advance the clock, and wake the waiters on it that are due by then."""
    def _following(self) -> int: ...

class EngineError(Exception):
    """A refused call to an engine: the text is that of the wire, its code first."""

@final
class Engine:
    """The functions of the wire in this process, for ``memory://``. Thread-safe.

    A call is ``function`` (``"il1_put"``), the queue's ``key`` (``b"il:{orders}"``; None for
    ``il1_version`` and ``il1_queues``) and ``args``, the further strings: bytes, str (sent as
    UTF-8) or int (sent as decimal digits). The answer is the reply's strings. A refusal raises
    ``EngineError``; an argument of another type is a ``TypeError``.

    It has the feature ``parks``: a call with a WAIT is answered when a message is ready.
    """

    def __new__(cls, clock: ManualClock | None = None, memory: int = 0) -> Self:
        """``memory``: maximum bytes of all queues; beyond it puts get ``OOM``. 0 means no bound."""

    def wall(self) -> int:
        """Return the time for dates, µs since 1970."""

    def call(
        self, function: str, key: bytes | None, args: Sequence[bytes | str | int], /
    ) -> list[bytes]:
        """Make a call and wait for its answer, without the GIL, for at most its WAIT.

        Waiting threads run the timers between them. A signal handler that raises ends the wait; the
        call is then forgotten, and may be sent again under the same number.
        """

    def start(
        self,
        function: str,
        key: bytes | None,
        args: Sequence[bytes | str | int],
        waker: Callable[[int], object],
        /,
    ) -> list[bytes] | int:
        """Make a call without waiting: return its answer, or a ticket if it was parked.

        Once it is answered, ``waker(ticket)`` is called, once, on the thread whose call answers it
        (never before ``start`` has returned), and ``take`` returns the answer. An exception of the
        waker is reported and ignored.
        """

    def renewals(self) -> EngineRenewals:
        """Return the renewals that keep leases alive while their client cannot renew them."""

    def take(self, ticket: int, /) -> list[bytes]:
        """Return a parked call's answer, once. Raises ``LookupError`` before its waker was
        called."""

    def forget(self, ticket: int, /) -> None:
        """Drop a parked call: it stops waiting, and its waker is not called."""

    def keep_time(self) -> None:
        """Answer parked calls when their WAIT is over or a timer is due, until ``close``.

        Run it on a daemon thread if calls are made by ``start``: it sleeps without the GIL, and
        costs nothing while no call waits. A manual clock does not need it: ``advance`` does the
        same.
        """

    def close(self) -> None:
        """End ``keep_time``. Calls still work."""

@final
class HubServer:
    """A server on threads of its own, none of which takes the GIL: ``interlock.Hub`` runs it."""

    def __new__(cls, settings: dict[str, Any]) -> Self: ...
    def start(self, tables: HubTables | None = None) -> None:
        """Serve the tables, bind and start the threads. Raises OSError with the address that
        failed, and the reason."""
    @property
    def addresses(self) -> list[str]: ...
    def stop(self, seconds: float = 0.0) -> int:
        """Accept no more connections, drain for this long, close; return how many were cut."""
    @staticmethod
    def commands() -> list[tuple[str, list[str]]]:
        """Return each command's name, as COMMAND INFO takes it, and its categories."""
    @staticmethod
    def refused_path(path: str, store: str) -> str | None:
        """Return why a path is not a template of a store's files; None if it is one."""
    def apply(
        self,
        settings: dict[str, Any],
        keep_users: bool = False,
        tables: HubTables | None = None,
    ) -> None:
        """Apply limits, users and certificates from now on; other keys are ignored. ``keep_users``:
        users stay as they are, and so do the passwords that were found right. Tables stay unless
        others are given."""
    def fileno(self) -> int:
        """Return a descriptor that is readable while there are events to take."""
    def events(self, last: bool = False) -> tuple[list[tuple[Any, ...]], int, bool]:
        """Return events, oldest first; the number of log lines that were dropped; whether lines
        remain to be summed up later, which ``last`` does immediately.

        ``("log", level, text)``, ``("broken", text)``,
        ``("password", asker, (host, user, password))``,
        ``("set", asker, [(name, value)])``, ``("reload", asker, ())``, ``("shutdown", asker, ())``.
        """
    def waits(self, asker: tuple[int, int, int]) -> bool:
        """Return whether the client behind a question among the events is still connected."""
    def answer(self, asker: tuple[int, int, int], error: str | None = None) -> None:
        """Answer a question among the events: yes, or no with an error's text."""
    def info(self) -> dict[str, Any]:
        """Return the counters, by their INFO names."""
    def tables(self) -> dict[str, dict[str, int]]:
        """Return the figures of each table, by its name."""
    def queues(self, most: int) -> tuple[dict[str, dict[str, int]], int]:
        """Return the figures, by name, of at most this many queues, and the number of all."""
    def stores(self) -> dict[str, dict[str, int]]:
        """Return the figures of each store, by its name."""
    def rotate(self) -> None:
        """Begin new files in the stores whose current files have messages."""
    def beats(self) -> list[int]:
        """Return the number of beats that each worker has answered."""
    def pulse(self) -> list[bool]:
        """Send each worker a beat; return for each whether it has answered the previous one."""

@final
class HubTables:
    """Tables for a hub to serve, opened before the hub gets them."""

    def __new__(cls) -> Self: ...
    def open(
        self,
        name: str,
        place: str,
        is_path: bool,
        schema: str,
        capacity: int,
        key_size: int,
        ttl: float | None,
        evict: bool,
        writers: int,
        mode: int,
        keeper: TableKeeper | None = None,
    ) -> tuple[int, bool, float | None]:
        """Open a table, or create it, to be served under a name; raises as ``Table`` does. Returns
        its actual capacity, ``evict`` and ``ttl``. With a ``keeper`` the hub does not write to it:
        it passes write commands to the keeper."""
    def keep(self, others: HubTables, name: str) -> bool:
        """Share a table that is open under this name; return False if none is."""

@final
class RowsIterator:
    """Rows of a node."""

    def take(self, most: int) -> list[tuple[bytes, bytes, int]]:
        """Return the next keys, states and numbers of changes, at most this many."""

@final
class BroughtRows:
    """Rows of another place, as many as one entry of a log has."""

    def __len__(self) -> int: ...

@final
class LinkReport:
    """Report to another data centre, for the entries with the rows that it lacks."""

    position: int
    number: int
    """The number of the last change that it has with these rows."""
    last: int
    """The number of the last change of all."""
    is_due: bool
    """It must be sent even without rows."""
    has_lost: bool
    """The other data centre has rows of entries that the log has lost."""

    def sent(self) -> bytes:
        """Return the note to keep once everything is sent."""

@final
class RowsImage:
    """All rows of a node as they were at one moment."""

    def since(self, number: int) -> RowsIterator:
        """Return the rows changed after a number, in the order of their last change."""

    def compare(
        self, rows: Sequence[tuple[bytes, bytes]], joined: bool = False
    ) -> tuple[list[BroughtRows], list[tuple[bytes, bytes, int]], list[bytes]]:
        """Compare rows of another place, each key once in all calls.

        Args:
            joined: their rows were joined before; where one differs nevertheless, they lack the row
                here.

        Returns:
            Their rows with changes missing here, the rows here with changes missing there, and the
            keys missing here.
        """

    def compare_copied(
        self, copied: bytes, joined: bool = False
    ) -> tuple[list[BroughtRows], list[tuple[bytes, bytes, int]], list[bytes]]:
        """Compare as ``compare`` does, the rows of a binary COPY of PostgreSQL.

        Args:
            copied: whole rows of two columns, key and state, without the header and the end.

        Raises:
            ValueError: not such a COPY.
        """

    def rest(self) -> RowsIterator:
        """Return the rows that were not compared."""

@final
class LogNode:
    """A node on a log, in a thread of its own that never enters Python.

    Raises:
        ValueError: an invalid setting.
        OSError: its folder cannot be used, or is another's.
        TableError: as ``Table``.
    """

    def __new__(cls, settings: dict[str, object], keeper: TableKeeper) -> Self: ...
    def figures(self) -> dict[str, Any]:
        """Return the node's status: position, checksums, times in ms and seconds, counts, and its
        current troubles, each a word, a text, and its start in ms since 1970."""

    def news(self) -> list[tuple[str, str]]:
        """Return the events since the last call: a word for each, and a text."""

    def wait_for_event(self, seen: int, seconds: float) -> int:
        """Wait this long for more events than those seen; return their number."""

    def wake(self) -> None:
        """End the waits for an event."""

    def changed(
        self, since: tuple[int, int, int], most: int, seconds: float
    ) -> (
        tuple[
            tuple[int, int, int, int, int],
            int,
            Literal["rows", "behind", "all", "other"],
            list[tuple[bytes, bytes, int]],
            RowsImage | None,
        ]
        | None
    ):
        """Return the rows that an outside reader lacks, given its position.

        Args:
            since: a position of the log, its checksum, and the number of a change.
            most: of rows.
            seconds: to wait for a change.

        Returns:
            The place with these rows (position, checksum, lineage, log time in ms, number of the
            last change), the number of the last change of all, and ``rows`` with the keys, the
            states and the numbers of their changes. If they are too many to search, ``behind``: the
            image has them. ``all``: compare the image, because rows that changed since are
            forgotten. ``other``: the same, because the place may be of another history. None: the
            node has not caught up with its log.
        """

    def report(
        self, dc: str, sent: bytes | None, most: int, seconds: float
    ) -> (
        tuple[
            LinkReport,
            Literal["rows", "behind", "all", "other"],
            list[tuple[bytes, bytes, int]],
            RowsImage | None,
        ]
        | None
    ):
        """Return the rows that another data centre lacks, and the report to send with them.

        Args:
            sent: the note of the last report.
            most: of rows.
            seconds: to wait for a change.

        Returns:
            The report, and rows or an image as ``changed`` returns them; with ``all`` and ``other``
            all rows are lacking. None: the node has not caught up with its log.

        Raises:
            ValueError: ``sent`` is not the result of ``LinkReport.sent``.
        """

    def append_states(self, rows: BroughtRows, seconds: float) -> bool:
        """Have all nodes join rows; return whether they are in this node's state in time.

        If they may be missing, appending them again does no harm.
        """

    def forget(self, node: str, seconds: float) -> bool:
        """Have no node wait for a removed one's checkpoints; return whether the order is read."""

    def states_entry(self, report: LinkReport, rows: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Return an entry with rows for the log of another data centre.

        Args:
            rows: keys and states. An entry without rows ends the report.
        """

    def release(self) -> None:
        """Serve from now on, if it was created held."""

    def drain(self, seconds: float) -> bool:
        """Accept no more writes; return whether the pending ones are answered in time."""

    def checkpoint(self) -> tuple[str, int, int] | None:
        """Return the file in its folder of its newest checkpoint that is in the log, the position
        and its checksum. None: it has none, and one is made."""

    def install(self, path: str) -> None:
        """Use a checkpoint of another node, from a file in its folder. Its figures show later
        whether that worked: ``needs_snapshot``."""

    def resync(self) -> None:
        """Forget its history, and read the log anew."""

    def stop(self) -> None:
        """End it."""

@final
class TableKeeper:
    """The calls of ``NODE`` at a hub whose table a node writes. Thread-safe.

    ``calls`` and ``size`` bound the waiting calls, taken or not, and their bytes: beyond them a
    client gets ``-TRYAGAIN``. When the last reference is dropped, or by ``close``, waiting calls
    get an error: ``-NODE`` those that were not taken, and so not executed; ``-UNANSWERED`` the
    rest, also when the hub stops. Writes to the table go to the ``LogNode`` that has this keeper.
    """

    def __new__(cls, *, calls: int = 65536, size: int = 67108864) -> Self:
        """Raises ValueError if one of them is 0."""
    def fileno(self) -> int:
        """Return a descriptor that is readable while there are calls to take."""
    def take(self, most: int) -> list[tuple[int, bytes, bool, list[bytes]]]:
        """Take up to this many calls, oldest first: the asker, the user's name (``b""`` without),
        whether it speaks RESP3, and the arguments as they came, the command's name first. Calls of
        disconnected clients are left out."""
    def answer(self, replies: list[tuple[int, bytes]]) -> None:
        """Answer askers by whole replies, sent unchanged. Disconnected or answered ones are
        skipped. Raises ValueError if one is not a whole reply: then none was sent."""
    def set_fresh(self, seconds: float | None) -> None:
        """Allow reads of its tables for this many seconds from now; later ones are refused by
        ``-STALE``; None, the initial state: for ever; 0: they are refused. Raises ValueError if it
        is negative."""
    def close(self) -> None:
        """Refuse waiting and later calls. Reads continue as set by ``set_fresh``."""

@final
class StoreFiles:
    """A reader of the messages in stores' files, including later ones on further calls. ``path`` is
    a folder, or a file: its data, packed or not, or its index."""

    def __new__(
        cls, path: str, topic: bytes | None = None, position: tuple[int, int] = (0, 0)
    ) -> Self: ...
    def next(self, most: int) -> list[tuple[int, int, bytes, bytes, int]]:
        """Return the next messages, up to this many: position, topic, payload, microseconds since
        1970. None: there are none yet. Raises OSError for unreadable files."""
    def missing(self) -> list[tuple[tuple[int, int], tuple[int, int], int, str, str]]:
        """Return the gaps that ``next`` has found since the last call: the first and the last
        position, the number of messages or 0 if it is unknown, the file, and the reason."""
    def unreadable(self) -> list[tuple[str, str]]:
        """Return the unreadable files, as far as ``next`` has come: path and reason."""
    def trailing(self) -> list[tuple[str, int, tuple[int, int]]]:
        """Return the bytes behind the last message of each newest file: path, bytes, and the first
        position they can have. A running store may be writing them."""
    def verify(
        self,
    ) -> tuple[
        list[tuple[str, int, int, list[int], list[int], int, int, bool, bool]],
        list[tuple[tuple[int, int], tuple[int, int], int, str, str]],
        list[tuple[str, str]],
    ]:
        """Compare each file with its checksums and with the next file. Return for each file: path,
        number of whole messages, their bytes, sequences of changed messages, places of unreadable
        index records, number of missing messages, bytes behind the last message, whether it is
        closed, whether its data is gone. Then the gaps between files, as ``missing`` returns them,
        and the unreadable files, as ``unreadable`` returns them."""

@final
class EngineRenewals:
    """Leases on an engine in this process: renews them before the engine would expire them, as
    ``LeaseRenewals`` does on servers. In the child of a fork nothing is renewed."""

    def hold(
        self,
        key: int,
        address: str,
        queue: str,
        token: int,
        seconds: float,
        deadline: float,
        until: float,
    ) -> None:
        """See ``LeaseRenewals``; there is no address."""
    def let_go(self, key: int) -> None:
        """Forget a lease."""
    def bound(self, key: int, until: float) -> None:
        """Set the end of the time of a lease's handler."""
    def errors(self) -> list[str]:
        """Return an empty list: the holder of a lost lease gets the error."""
    def stop(self) -> None:
        """Forget all leases."""

@final
class LeaseRenewals:
    """Leases that a native thread renews if their client has not by half of their time: a handler
    holds the GIL, or the event loop. In the child of a fork it does nothing."""

    def __new__(
        cls,
        function: str,
        *,
        user: str | None,
        password: str | None,
        database: int,
        tls: bool,
        ca: str | None,
        timeout: float,
    ) -> Self:
        """`function` moves the deadline of a lease; the rest describes the connection."""
    def hold(
        self,
        key: int,
        address: str,
        queue: str,
        token: int,
        seconds: float,
        deadline: float,
        until: float,
    ) -> None:
        """Add a lease, or note its renewal. No other lease ever has its key. The deadline and the
        end of its handler's time are by time.monotonic()."""
    def let_go(self, key: int) -> None:
        """Forget a lease."""
    def bound(self, key: int, until: float) -> None:
        """Renew nothing beyond this time, by time.monotonic()."""
    @property
    def renewed(self) -> int:
        """Return the number of renewals that it made."""
    def errors(self) -> list[str]:
        """Return the errors since the last call."""
    def stop(self) -> None:
        """End the thread."""

class JournalCopy:
    """The data to copy of a hub's journal, from its folder, whether the hub runs or not. All of it
    is read once: raises OSError for damage, or if there is no journal."""

    def __new__(cls, folder: str | PathLike[str]) -> Self: ...
    @property
    def last(self) -> int:
        """Number of its last record."""
    @property
    def files(self) -> list[tuple[str, int, int]]:
        """Name of each file, its bytes to copy, and its length, with zeroes behind those; to be
        written in this order."""
    def read(self, file: int, offset: int, count: int) -> bytes:
        """Return up to `count` bytes of a file, by its index in `files`. Raises OSError, and
        IndexError for an unknown file."""
