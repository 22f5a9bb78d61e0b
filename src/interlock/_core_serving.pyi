"""A part of the native module's stub, which is too long for one file: engines here, and clocks."""

import datetime as dt
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Literal, Self, final

@final
class WallClock:
    """The judgement of a server's clock: a jump of it is followed once it has lasted."""

    def __new__(cls) -> Self: ...
    def read(self, wall: int, elapsed: int) -> tuple[int, int]:
        """Take a reading of both clocks, µs. Return the time to use, and the jump that it
        follows from this reading on; 0: none."""

@final
class ManualClock:
    """Time for tests: it stands still until ``advance`` moves it."""

    def __new__(cls, start: float | dt.timedelta | None = None) -> Self: ...
    def now(self) -> float:
        """Seconds since the start of the count."""
    def advance(self, seconds: float | dt.timedelta) -> None:
        """Moves on, and wakes whatever waits on this clock and is due by then."""
    def _following(self) -> int: ...

class EngineError(Exception):
    """A call to an engine was refused: the text is that of the wire, its code first."""

@final
class Engine:
    """The functions of the wire in this process: what ``memory://`` is. Any thread may call.

    A call is ``function`` (``"il1_put"``), the queue's ``key`` (``b"il:{orders}"``; None for
    ``il1_version`` and ``il1_queues``) and ``args``, the strings behind it: bytes, str (sent as
    UTF-8) or int (sent as decimal digits). The answer is the reply's strings. A refusal raises
    ``EngineError``; an argument of another type is a ``TypeError``.

    It has the feature ``parks``: a call with a WAIT is answered when there is something.
    """

    def __new__(cls, clock: ManualClock | None = None, memory: int = 0) -> Self:
        """``memory``: bytes that all queues may take before puts get ``OOM``; 0 is no bound."""

    def wall(self) -> int:
        """Return the time for dates, µs since 1970."""

    def call(
        self, function: str, key: bytes | None, args: Sequence[bytes | str | int], /
    ) -> list[bytes]:
        """Make a call and wait for its answer, without the GIL, as long as its WAIT says.

        Threads that wait keep the time between them. A signal handler that raises ends the wait;
        the call is then forgotten, and may be sent again under the same number.
        """

    def start(
        self,
        function: str,
        key: bytes | None,
        args: Sequence[bytes | str | int],
        waker: Callable[[int], object],
        /,
    ) -> list[bytes] | int:
        """Make a call without waiting: its answer, or a ticket if it was parked.

        Once it is answered, ``waker(ticket)`` is called, once, on whatever thread made the call
        that answers it (never before ``start`` has returned), and ``take`` gives the answer. What
        the waker raises is reported and ignored.
        """

    def renewals(self) -> EngineRenewals:
        """Return what has leases not run out because nobody could renew them."""

    def take(self, ticket: int, /) -> list[bytes]:
        """The answer of a parked call, once. ``LookupError`` before its waker was called."""

    def forget(self, ticket: int, /) -> None:
        """Nobody wants this answer: the call waits no more, and its waker is not called."""

    def keep_time(self) -> None:
        """Answer parked calls when their WAIT is over or something falls due, until ``close``.

        Run it on a daemon thread where calls are made by ``start``: it sleeps without the GIL, and
        costs nothing while nobody waits. A manual clock needs it not: ``advance`` does the same.
        """

    def close(self) -> None:
        """End ``keep_time``. Calls go on."""

@final
class HubServer:
    """A server on threads of its own, none of which takes the GIL: ``interlock.Hub`` runs it."""

    def __new__(cls, settings: dict[str, Any]) -> Self: ...
    def start(self, tables: HubTables | None = None) -> None:
        """Serves the tables, binds and starts the threads. OSError says which address could not be
        had, and why."""
    @property
    def addresses(self) -> list[str]: ...
    def stop(self, seconds: float = 0.0) -> int:
        """Accepts no more, drains for so long, closes; answers how many connections were cut."""
    @staticmethod
    def commands() -> list[tuple[str, list[str]]]:
        """Each command's name, as COMMAND INFO takes it, and its categories."""
    @staticmethod
    def refused_path(path: str, store: str) -> str | None:
        """Tells why a path is no template of a store's files; None: it is one."""
    def apply(
        self,
        settings: dict[str, Any],
        keep_users: bool = False,
        tables: HubTables | None = None,
    ) -> None:
        """Limits, users and certificates that hold from now on; other keys are passed over.
        ``keep_users``: users stay as they are, and so do the passwords that were found right.
        Tables stay unless others are given."""
    def fileno(self) -> int:
        """Readable while there are events to take."""
    def events(self, last: bool = False) -> tuple[list[tuple[Any, ...]], int, bool]:
        """Events, oldest first; how many lines of the log found no room; whether there
        are lines to be summed up later, which ``last`` does at once.

        ``("log", level, text)``, ``("broken", text)``,
        ``("password", asker, (host, user, password))``,
        ``("set", asker, [(name, value)])``, ``("reload", asker, ())``, ``("shutdown", asker, ())``.
        """
    def waits(self, asker: tuple[int, int, int]) -> bool:
        """Tells if who asked a question among the events is still there."""
    def answer(self, asker: tuple[int, int, int], error: str | None = None) -> None:
        """Answers a question among the events: yes, or no with an error's text."""
    def info(self) -> dict[str, Any]:
        """The counters, as INFO names them."""
    def tables(self) -> dict[str, dict[str, int]]:
        """The figures of each table, by its name."""
    def queues(self, most: int) -> tuple[dict[str, dict[str, int]], int]:
        """The figures of at most so many queues, by their names, and how many queues there are."""
    def stores(self) -> dict[str, dict[str, int]]:
        """The figures of each store, by its name."""
    def rotate(self) -> None:
        """Stores begin new files, where there are messages in the old ones."""
    def beats(self) -> list[int]:
        """The number of beats that each worker has answered."""
    def pulse(self) -> list[bool]:
        """Sends each worker a beat; tells of each whether it has answered the one before."""

@final
class HubTables:
    """Tables that a hub is to serve, opened before it is told of them."""

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
        """Opens a table, or makes it, to be served under a name; raises as ``Table`` does. Returns
        capacity, ``evict`` and ``ttl`` as its maker said. With a ``keeper`` the hub does not write
        to it: it gives commands that do to the keeper."""
    def keep(self, others: HubTables, name: str) -> bool:
        """Goes on with a table that others have open by this name; false: they have none."""

@final
class RowsIterator:
    """Rows of a node."""

    def take(self, most: int) -> list[tuple[bytes, bytes, int]]:
        """Return the next keys, states and numbers of changes, so many at most."""

@final
class BroughtRows:
    """Rows of another place, as many as one entry of a log has."""

    def __len__(self) -> int: ...

@final
class RowsImage:
    """All rows of a node as they were at one moment."""

    def since(self, number: int) -> RowsIterator:
        """Return those that changed behind a number, in the order of their last change."""

    def compare(
        self, rows: Sequence[tuple[bytes, bytes]], joined: bool = False
    ) -> tuple[list[BroughtRows], list[tuple[bytes, bytes, int]], list[bytes]]:
        """Compare rows of another place, each key once in all calls.

        Args:
            joined: what they have was joined before; where it differs nevertheless, they lack the
                row here.

        Returns:
            Those that have something that is not here, those here that have something that is not
            there, and the keys that are not here.
        """

    def compare_copied(
        self, copied: bytes, joined: bool = False
    ) -> tuple[list[BroughtRows], list[tuple[bytes, bytes, int]], list[bytes]]:
        """Compare as ``compare`` does, the rows of a binary COPY of PostgreSQL.

        Args:
            copied: whole rows of two columns, key and state, without the header and the end.

        Raises:
            ValueError: it is something else.
        """

    def rest(self) -> RowsIterator:
        """Return those that were not compared."""

@final
class LogNode:
    """A node on a log, in a thread of its own that never enters Python.

    Raises:
        ValueError: a setting that none can have.
        OSError: its folder cannot be used, or is another's.
        TableError: as ``Table``.
    """

    def __new__(cls, settings: dict[str, object], keeper: TableKeeper) -> Self: ...
    def figures(self) -> dict[str, Any]:
        """Return the node as it stands: position, checksums, times in ms and seconds, counts, and
        what keeps it from its work now, each a word, a text, and since when in ms since 1970."""

    def news(self) -> list[tuple[str, str]]:
        """Return what has happened since the last call: a word for each, and a text."""

    def changed(
        self, since: tuple[int, int, int], most: int, seconds: float, own: bool = False
    ) -> (
        tuple[
            tuple[int, int, int, int, int],
            int,
            Literal["rows", "behind", "all", "other"],
            list[tuple[bytes, bytes, int]],
            RowsImage | None,
            bytes,
        ]
        | None
    ):
        """Return what somebody outside lacks who has the rows up to a place.

        Args:
            since: a position of the log, its checksum, and the number of a change.
            most: of rows.
            seconds: for which it waits for a change.
            own: leave out rows that another data centre has as they are.

        Returns:
            The place with these rows (position, checksum, lineage, log time in ms, number of the
            last change), the number of the last change of all, and ``rows`` with the keys, the
            states and the numbers of their changes. Where these would be too many to look for,
            ``behind``: the image has them. ``all``: compare the image, for rows are forgotten that
            changed since. ``other``: the same, for the place may be of another history. The last is
            what ``states_entry`` needs to say of the writers. None: the node has not caught up with
            its log.
        """

    def append_states(self, rows: BroughtRows, seconds: float) -> bool:
        """Have all nodes join rows; return whether they are in this node's state in time.

        Where they may not be, to append them again does no harm.
        """

    def forget(self, node: str, seconds: float) -> bool:
        """Have no node wait for the checkpoints of one that is gone; return whether it is read."""

    def states_entry(
        self,
        rows: Sequence[tuple[bytes, bytes]],
        source: tuple[str, int, int, int],
        writers: bytes,
    ) -> bytes:
        """Return an entry with rows for the log of another data centre.

        Args:
            rows: keys and states.
            source: this data centre, the position and the checksum up to which it has given its
                rows, and the log time when they were so.
            writers: what ``changed`` has said of them then.
        """

    def release(self) -> None:
        """Serve from now on, if it was told to begin held."""

    def drain(self, seconds: float) -> bool:
        """Take no more writes; return whether those that it had are answered in time."""

    def checkpoint(self) -> tuple[str, int, int] | None:
        """Return the file in its folder of its newest checkpoint that is in the log, the position
        and its checksum. None: there is none, and one is made."""

    def install(self, path: str) -> None:
        """Have it take a checkpoint of another node, from a file in its folder. Whether that can be
        used its figures say later: ``needs_snapshot``."""

    def resync(self) -> None:
        """Have it forget its history, and read the log anew."""

    def stop(self) -> None:
        """End it."""

@final
class TableKeeper:
    """The calls of ``NODE`` at a hub whose table a node writes. Any thread may call.

    ``calls`` and ``size`` bound the calls that wait, taken or not, and their bytes: beyond them a
    client gets ``-TRYAGAIN``. When the last reference goes, or by ``close``, those that wait get an
    error: ``-NODE`` what was not taken, and was not done; ``-UNANSWERED`` the rest, also when the
    hub stops. Writes to the table go to the ``LogNode`` that has this keeper.
    """

    def __new__(cls, *, calls: int = 65536, size: int = 67108864) -> Self:
        """ValueError where one of them is 0."""
    def fileno(self) -> int:
        """Readable while there is something to take."""
    def take(self, most: int) -> list[tuple[int, bytes, bool, list[bytes]]]:
        """Takes up to so many calls, oldest first: the asker, the user's name (``b""`` without),
        whether it speaks RESP3, and the arguments as they came, the command's name first. Calls
        whose client is gone by then are left out."""
    def answer(self, replies: list[tuple[int, bytes]]) -> None:
        """Answers askers by whole replies, as they go out. Who is gone, or was answered, is passed
        over. ValueError where one does not end as a reply does: then nobody was answered."""
    def set_fresh(self, seconds: float | None) -> None:
        """Reads of its tables are answered for so many seconds from now, and then refused by
        ``-STALE``; None, as at first: for ever; 0: they are refused. ValueError where it is
        negative."""
    def close(self) -> None:
        """Refuses what waits, and what will come. Reads go on as ``set_fresh`` says."""

@final
class StoreFiles:
    """Reads messages out of the files of stores, and what comes later when it is asked again.
    ``path`` is a folder, or a file: its data, packed or not, or its index."""

    def __new__(
        cls, path: str, topic: bytes | None = None, position: tuple[int, int] = (0, 0)
    ) -> Self: ...
    def next(self, most: int) -> list[tuple[int, int, bytes, bytes, int]]:
        """The next messages, up to so many: position, topic, payload, microseconds since 1970.
        None: there are none yet. OSError says what cannot be read."""
    def missing(self) -> list[tuple[tuple[int, int], tuple[int, int], int, str, str]]:
        """The gaps that ``next`` has found since the last call: the first and the last position,
        the number of messages or 0 if it is unknown, the file, and the reason."""
    def unreadable(self) -> list[tuple[str, str]]:
        """The files that cannot be read at all, as far as ``next`` has looked: path and reason."""
    def trailing(self) -> list[tuple[str, int, tuple[int, int]]]:
        """The bytes behind the last message of each newest file: path, bytes, and the first
        position they can have. A running store may be writing them."""
    def verify(
        self,
    ) -> tuple[
        list[tuple[str, int, int, list[int], list[int], int, int, bool, bool]],
        list[tuple[tuple[int, int], tuple[int, int], int, str, str]],
        list[tuple[str, str]],
    ]:
        """Compares each file with its checksums and with the next file. For each file: path, number
        of whole messages, their bytes, sequences of changed messages, places of unreadable index
        records, number of missing messages, bytes behind the last message, whether it is closed,
        whether its data is gone. Then the gaps between files, as ``missing`` returns them, and the
        unreadable files, as ``unreadable`` returns them."""

@final
class EngineRenewals:
    """Leases on an engine in this process: it renews those that would run out before it is told
    the time, as ``LeaseRenewals`` does on servers. In the child of a fork nothing is renewed."""

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
        """Set the time at which the time of a lease's handler is over."""
    def errors(self) -> list[str]:
        """Return none: who holds a lease that is lost learns of it."""
    def stop(self) -> None:
        """Forget all leases."""

@final
class LeaseRenewals:
    """Leases that a native thread renews when their client has not by half of their time: a
    handler holds the GIL, or the event loop. In the child of a fork it does nothing."""

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
        """`function` moves the deadline of a lease; the rest is how servers are reached."""
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
        """Take a lease into care, or note that it was renewed. No other lease ever has its key.
        The deadline is by time.monotonic(), and so is the end of its handler's time."""
    def let_go(self, key: int) -> None:
        """Forget a lease."""
    def bound(self, key: int, until: float) -> None:
        """Renew nothing beyond this time, by time.monotonic()."""
    @property
    def renewed(self) -> int:
        """Number of renewals that it made."""
    def errors(self) -> list[str]:
        """Return the errors since the last call."""
    def stop(self) -> None:
        """End the thread."""

class JournalCopy:
    """The data to copy of a hub's journal, out of its folder, whether the hub runs or not. All
    of it is read once: OSError says what is damaged, or that there is no journal."""

    def __new__(cls, folder: str | PathLike[str]) -> Self: ...
    @property
    def last(self) -> int:
        """Number of the last record that is in it."""
    @property
    def files(self) -> list[tuple[str, int, int]]:
        """Of each file its name, how many bytes are to be copied, and how long it is, with zeroes
        behind those; to be written in this order."""
    def read(self, file: int, offset: int, count: int) -> bytes:
        """Up to `count` bytes of a file, by its place in `files`. OSError, and IndexError where
        there is no such file."""
