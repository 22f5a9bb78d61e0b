"""Announcements: the nodes of a cluster describe themselves in the engine.

On Redis and Valkey an announcement is a key that expires; a set holds the ids, so that clients need
not scan all keys. On a hub it is a row with a time to live in the table ``nodes``, with the columns
`COLUMNS`. An announcement that is not renewed in time expires.
"""

from __future__ import annotations

import contextlib
import random
import time
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args

import msgspec

from interlock.client.connection import refusals
from interlock.client.request import Abandoned, Argument, Ask, AskAll, Broken, Nap, Refused, Request
from interlock.client.wire.bad_reply import nonsense
from interlock.errors import EngineUnavailable, InterlockError, NotATable

if TYPE_CHECKING:
    from interlock.client.connection.call import Engine
    from interlock.client.faces.client import Client
    from interlock.client.session import Session

Role = Literal["serving", "joining"]
ROLES: tuple[Role, ...] = get_args(Role)


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """One node, as it described itself. Unknown fields of a newer release are skipped."""

    id: str
    dc: str
    """Its data centre."""
    role: Role
    address: str
    """``HOST:PORT`` of its hub."""
    http: str = ""
    """``HOST:PORT`` of its pages; empty without `--http`."""
    position: int = 0
    """The number of entries of its log that it has applied."""
    rows_checksum: str = ""
    """Checksum of all rows at that position, the same on all nodes; in hexadecimal."""
    log_checksum: str = ""
    """Checksum of all entries up to that position. Nodes with different ones have different
    histories: the engine has lost entries, and one is about to go back."""
    lag_entries: int = 0
    """Entries that the most advanced node has applied and this one has not."""
    machine: str = ""
    """The machine that it runs on; nodes with the same one count once for ``--ack``."""
    lag_ms: float = 0.0
    since: float = 0.0
    """The time at which it started, in seconds since 1970, by its clock."""
    version: str = ""
    """Its release of Interlock."""
    table: str = ""
    draining: bool = False
    """It accepts no further writes, and clients should leave it."""


def announce(
    client: Client,
    cluster: str,
    announcement: Announcement,
    ttl_ms: int,
    is_listed: bool = False,
) -> None:
    """Announce a node, or renew its announcement.

    Args:
        client: of the engine: Redis, Valkey or a hub.
        cluster: the name of the cluster.
        ttl_ms: milliseconds after which the announcement expires unless it is renewed.
        is_listed: its id is among those of the cluster, and was added in the last hours: then only
            the announcement is written.

    Raises:
        ValueError: a name is not valid.
        EngineUnavailable: the engine did not answer in the client's timeout.
        NotATable: it is a hub that serves no table ``nodes``.
    """
    directory = Directory(client._engine, cluster)
    client._sessions.run(None, directory.announce, announcement, ttl_ms, is_listed)


def withdraw(client: Client, cluster: str, id: str) -> None:
    """Withdraw a node's announcement; raises as `announce`."""
    client._sessions.run(None, Directory(client._engine, cluster).withdraw, id)


def announcements(client: Client, cluster: str) -> list[Announcement]:
    """Return the announced nodes, sorted by id; raises as `announce`."""
    return client._sessions.run(None, Directory(client._engine, cluster).announced)


class Directory:
    """The announcements of one cluster on an engine, as requests of both faces."""

    def __init__(self, engine: Engine, cluster: str) -> None:
        check_name("cluster", cluster)
        self._engine = engine
        self.cluster = cluster
        # The braces: on a cluster of Redis all of them are on one server.
        self._index = f"il:nodes:{{{cluster}}}"
        self._prefix = f"il:node:{{{cluster}}}:"
        self._ids: list[bytes] = []
        """The ids that `announced` has read last."""

    def announce(
        self,
        session: Session[Any],
        announcement: Announcement,
        ttl_ms: int,
        is_listed: bool = False,
    ) -> Request[None]:
        """See `announce`."""
        check_name("id", announcement.id)
        text = msgspec.json.encode(announcement)
        until = self._until()
        if (yield from self._is_hub(session, until)):
            command = ("TABLE", "SET", self._row(announcement.id), "ANY", ttl_ms, COLUMN, text)
            yield from self._ask(session, until, *command)
            return
        key = f"{self._prefix}{announcement.id}"
        yield from self._ask(session, until, "SET", key, text, "PX", ttl_ms)
        if is_listed:
            return
        yield from self._ask(session, until, "SADD", self._index, announcement.id)
        yield from self._ask(session, until, "PEXPIRE", self._index, max(ttl_ms, INDEX_LIVES))

    def renew(
        self, session: Session[Any], announcement: Announcement, ttl_ms: int
    ) -> Request[list[Announcement] | None]:
        """Read the announcements and renew this one, in one round trip; for threads alone.

        None: ask `announced`, then `announce`. There is another node, or a failure to report.
        """
        until = self._until()
        if announcement.id.encode() not in self._ids or (yield from self._is_hub(session, until)):
            return None
        prefix, text = self._prefix.encode(), msgspec.json.encode(announcement)
        commands: tuple[tuple[Argument, ...], ...] = (
            ("SMEMBERS", self._index),
            ("MGET", *(prefix + one for one in self._ids)),
            ("SET", f"{self._prefix}{announcement.id}", text, "PX", ttl_ms),
        )
        within = max(until - time.monotonic(), 0.001) / 2
        address = yield from self._engine.nodes.of(self._index, session, within)
        try:
            ids, found, done = yield AskAll(address, (), within, commands=commands)
        except Broken:
            return None
        is_same = isinstance(ids, list) and sorted(map(repr, ids)) == sorted(map(repr, self._ids))
        is_read = isinstance(found, list) and len(found) == len(self._ids)
        if not (is_same and is_read) or isinstance(done, Refused) or found.count(None) > FORGOTTEN:
            return None
        return _sorted([one for one in found if one is not None])

    def withdraw(self, session: Session[Any], id: str) -> Request[None]:
        """See `withdraw`."""
        check_name("id", id)
        until = self._until()
        if (yield from self._is_hub(session, until)):
            yield from self._ask(session, until, "DEL", self._row(id))
            return
        yield from self._ask(session, until, "DEL", f"{self._prefix}{id}")
        yield from self._ask(session, until, "SREM", self._index, id)

    def announced(
        self, session: Session[Any], within: float | None = None
    ) -> Request[list[Announcement]]:
        """See `announcements`; `within`: seconds for it. Default: the client's timeout."""
        until = self._until(within)
        if (yield from self._is_hub(session, until)):
            return _sorted((yield from self._rows(session, until)))
        ids = yield from self._ask(session, until, "SMEMBERS", self._index)
        if not isinstance(ids, list) or not all(isinstance(one, bytes) for one in ids):
            raise nonsense(ids)
        self._ids = ids
        if not ids:
            return []
        prefix = self._prefix.encode()
        found = yield from self._ask(session, until, "MGET", *(prefix + one for one in ids))
        if not isinstance(found, list) or len(found) != len(ids):
            raise nonsense(found)
        gone = [one for one, text in zip(ids, found, strict=True) if text is None]
        if len(gone) > FORGOTTEN:
            # A node that returns just now adds its id again with its next announcement.
            yield from self._tidy(session, until, gone)
        return _sorted([text for text in found if text is not None])

    def _tidy(self, session: Session[Any], until: float, gone: list[bytes]) -> Request[None]:
        # The user may have no right to write.
        with contextlib.suppress(InterlockError):
            yield from self._ask(session, until, "SREM", self._index, *gone)

    def _rows(self, session: Session[Any], until: float) -> Request[list[bytes]]:
        prefix, cursor, texts = f"{self.cluster}/".encode(), b"0", dict[bytes, bytes]()
        while True:
            command = ("TABLE", "SCAN", TABLE, cursor, "COUNT", 1000)
            reply = yield from self._ask(session, until, *command)
            try:
                cursor, rows = reply
                for key, (text,) in zip(rows[::2], rows[1::2], strict=True):
                    if key.startswith(prefix):
                        texts[key] = text
            except (TypeError, ValueError, AttributeError):
                raise nonsense(reply) from None
            if cursor == b"0":
                return list(texts.values())

    def _row(self, id: str) -> str:
        return f"{TABLE}:{self.cluster}/{id}"

    def _is_hub(self, session: Session[Any], until: float) -> Request[bool]:
        """Return whether the engine is a hub, which has a table of nodes."""
        engine = self._engine
        if engine.serves_nodes is None:
            try:
                told = yield from self._raw(session, until, "TABLE", "INFO", TABLE)
            except Refused as error:
                if error.code == "NOTABLE":
                    raise NotATable(
                        f"{engine.target.shown} is a hub without the table {TABLE!r}, in which "
                        f"nodes announce themselves. Name the engine that the nodes have as "
                        f"--cluster; if that is this hub, give it the table: [[table]] name = "
                        f"{TABLE!r}, columns = {COLUMNS!r}, key_size = 128"
                    ) from None
                if "unknown command" not in str(error):
                    self._refused(error)
                engine.serves_nodes = False
            else:
                self._check(told)
                engine.serves_nodes = True
        return engine.serves_nodes

    def _check(self, told: Any) -> None:
        if not isinstance(told, list) or len(told) % 2:
            raise nonsense(told)
        columns = dict(zip(told[::2], told[1::2], strict=True)).get(b"columns")
        if not isinstance(columns, bytes) or not columns.startswith(f"{COLUMN}: str[".encode()):
            raise NotATable(
                f"{self._engine.target.shown} has a table {TABLE!r} with the columns "
                f"{columns!r}; for nodes to announce themselves it needs {COLUMNS!r}"
            )

    def _until(self, within: float | None = None) -> float:
        return time.monotonic() + (self._engine.target.timeout if within is None else within)

    def _ask(self, session: Session[Any], until: float, *command: Argument) -> Request[Any]:
        try:
            return (yield from self._raw(session, until, *command))
        except Refused as error:
            if error.code == "NOPERM" and refusals.ON_A_HUB not in str(error):
                # A node and its clients need other rights than a queue.
                raise EngineUnavailable(
                    f"{self._engine.target.shown}: {error}; give its user the right "
                    f"{refusals.missing_right(str(error))} with ACL SETUSER"
                ) from None
            self._refused(error)

    def _refused(self, error: Refused) -> NoReturn:
        raise refusals.said_by(self._engine.target.shown, error) from None

    def _raw(self, session: Session[Any], until: float, *command: Argument) -> Request[Any]:
        """Send a command, and again until it is answered: each may be done twice."""
        engine, tries = self._engine, 0
        while True:
            if session.interrupted:
                raise Abandoned
            left = max(until - time.monotonic(), 0.001)
            address = yield from engine.nodes.of(self._index, session, left)
            try:
                return (yield Ask(address, command, min(left, max(left / 2, 0.5))))
            except Refused as error:
                reason = str(error)
                if error.code == "MOVED" and engine.target.kind == "cluster":
                    engine.nodes.moved(reason, address)
                elif not refusals.passes(error):
                    raise
                elif refusals.of(reason).ends:
                    session.drop(address)
            except Broken as error:
                reason = str(error)
                engine.nodes.doubt()
            if session.interrupted:
                raise Abandoned
            tries += 1
            pause = min(0.05 * 2 ** min(tries - 1, 5), 1.0) * random.uniform(0.5, 1.0)
            if until - time.monotonic() <= pause:
                raise EngineUnavailable(
                    refusals.advised(
                        f"{engine.target.shown} did not answer about the nodes of cluster "
                        f"{self.cluster!r}: {reason}"
                    )
                )
            yield Nap(pause)


def check_name(argument: str, name: object) -> None:
    """Raise TypeError or ValueError unless this can name a cluster, a node or a data centre."""
    if not isinstance(name, str):
        raise TypeError(f"{argument} is {type(name).__name__}; allowed: str")
    wrong = not name.isprintable() or any(char in " {}:/" for char in name)
    if wrong or not 1 <= len(name.encode(errors="replace")) <= MOST_NAME:
        raise ValueError(
            f"{argument} is {name!r}; allowed: up to {MOST_NAME} bytes, without spaces, braces, "
            f"colons and slashes"
        )


def _sorted(texts: list[bytes]) -> list[Announcement]:
    found = []
    for text in texts:
        try:
            found.append(_decoder.decode(text))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # written by an incompatible release
    return sorted(found, key=lambda one: one.id)


TABLE = "nodes"
"""Table of a hub; its keys are ``CLUSTER/ID``."""
COLUMN = "told"
COLUMNS = f"{COLUMN}: str[2048]"
MOST_NAME = 60
"""Bytes."""
INDEX_LIVES = 86_400_000
"""Milliseconds after which the ids of a cluster without nodes expire."""
FORGOTTEN = 16
"""Ids without an announcement that may stay in the index: their nodes may return."""
_decoder = msgspec.json.Decoder(Announcement)
