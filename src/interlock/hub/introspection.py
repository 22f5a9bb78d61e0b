"""Requests to a running hub, or to Redis, with their answers as values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from interlock.hub.client import Client
from interlock.hub.resp import ProtocolError, ReplyError


@dataclass(frozen=True)
class Topics:
    """Topics that have subscribers. A subscriber by pattern is in none of the counts."""

    receivers: dict[bytes, int]
    """Number of connections subscribed to each topic, the most first."""

    patterns: int
    """Number of different patterns with subscribers."""


@dataclass(frozen=True)
class Subscriber:
    """A connection with a subscription."""

    id: int
    address: str
    name: str
    user: str


@dataclass(frozen=True)
class Subscribers:
    """Connections that are subscribed to a topic, a pattern or a shard topic."""

    kind: str
    """`topic`, `pattern` or `shard`."""

    topic: bytes
    """The name; for a pattern its text."""

    clients: list[Subscriber]
    """The oldest connection first."""


@dataclass(frozen=True)
class Connection:
    """A line of CLIENT LIST."""

    id: int
    address: str
    name: str
    library: str
    """Name and version, as reported by the client."""

    user: str
    age: int
    """Seconds since it was opened."""

    idle: int
    """Seconds since its last command."""

    topics: int
    """Subscriptions: to topics, shard topics and patterns together."""

    owed: int
    """Bytes that it has not read yet."""

    command: str
    """Its last command."""


def info(client: Client) -> dict[str, int | float | str]:
    """Return the figures of INFO, with numbers parsed."""
    found: dict[str, int | float | str] = {}
    for line in text(client, "INFO").splitlines():
        name, colon, value = line.partition(":")
        if colon and not line.startswith("#"):
            whole, decimal = WHOLE.fullmatch(value), DECIMAL.fullmatch(value)
            found[name] = int(value) if whole else float(value) if decimal else value
    return found


def tables(info: Mapping[str, int | float | str]) -> dict[str, dict[str, int]]:
    """Return the figures of each state table, by its name, from those of INFO."""
    return _figures(info, TABLE)


def stores(info: Mapping[str, int | float | str]) -> dict[str, dict[str, int]]:
    """Return the figures of each store, by its name, from those of INFO."""
    return _figures(info, STORE)


def store_list(client: Client) -> list[dict[str, int | str]]:
    """Return each store of a hub: its declaration, whether it writes, and its figures."""
    reply = client.call("STORE", "LIST")
    if not isinstance(reply, list) or not all(isinstance(one, dict) for one in reply):
        raise ProtocolError(f"STORE LIST was answered with {reply!r}")
    return [
        {
            name.decode(): value.decode(errors="backslashreplace")
            if isinstance(value, bytes)
            else value
            for name, value in one.items()
        }
        for one in reply
    ]


def _figures(info: Mapping[str, int | float | str], head: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for name, value in info.items():
        if name.startswith(head) and isinstance(value, str):
            pairs = (pair.partition("=") for pair in value.split(","))
            found[name.removeprefix(head)] = {
                figure: int(number) for figure, _, number in pairs if WHOLE.fullmatch(number)
            }
    return found


def topics(client: Client, pattern: str = "*") -> Topics:
    """Return the topics that match a glob, each with the number of its subscribers."""
    names = client.call("PUBSUB", "CHANNELS", pattern)
    patterns = client.call("PUBSUB", "NUMPAT")
    if not isinstance(names, list) or not isinstance(patterns, int):
        raise ProtocolError(f"PUBSUB was answered with {names!r} and {patterns!r}")
    found: dict[bytes, int] = {}
    for some in _batches(names, BATCH):
        found.update(_counts(client.call("PUBSUB", "NUMSUB", *some)))
    most_first = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return Topics(dict(most_first), patterns)


def subscribers(
    client: Client, pattern: str = "*", limit: int = 1_000
) -> tuple[int, list[Subscribers]]:
    """Return the number of subscriptions whose topic matches a glob, with their first subscribers.

    They are sorted by name: topics, then patterns, then shard topics, `limit` subscriptions at
    most. A pattern matches if its text does. Raises ReplyError if the server is not a hub: Redis
    cannot report it.
    """
    try:
        reply = client.call("PUBSUB", "CLIENTS", pattern, "LIMIT", limit)
    except ReplyError as error:
        if str(error).startswith("ERR unknown subcommand"):
            raise ReplyError(ONLY_A_HUB) from None
        raise
    match reply:
        case [int(total), list(groups)]:
            return total, [_subscribers(group) for group in groups]
    raise ProtocolError(f"PUBSUB CLIENTS was answered with {reply!r}")


def _subscribers(group: object) -> Subscribers:
    match group:
        case [bytes(kind), bytes(topic), list(rows)]:
            return Subscribers(kind.decode(), topic, [_subscriber(row) for row in rows])
    raise ProtocolError(f"PUBSUB CLIENTS returned {group!r}")


def _subscriber(row: object) -> Subscriber:
    match row:
        case [int(number), bytes(address), bytes(name), bytes(user)]:
            texts = (told.decode(errors="backslashreplace") for told in (address, name, user))
            return Subscriber(number, *texts)
    raise ProtocolError(f"PUBSUB CLIENTS returned {row!r}")


def connections(client: Client) -> list[Connection]:
    """Return all connections, oldest first."""
    return [connection(line) for line in text(client, "CLIENT", "LIST").splitlines()]


def connection(line: str) -> Connection:
    """Parse a line of CLIENT LIST. Redis before 7 reports less; missing fields are empty."""
    # The path of a unix socket may hold spaces.
    pairs = (word.partition("=") for word in re.split(r" (?=[a-z-]+=)", line.strip()))
    fields = {name: value for name, _, value in pairs}

    def number(*names: str) -> int:
        found = [fields.get(name, "") for name in names]
        return sum(int(value) for value in found if WHOLE.fullmatch(value))

    return Connection(
        id=number("id"),
        address=fields.get("addr", ""),
        name=fields.get("name", ""),
        library=" ".join(filter(None, (fields.get("lib-name"), fields.get("lib-ver")))),
        user=fields.get("user", ""),
        age=number("age"),
        idle=number("idle"),
        topics=number("sub", "psub", "ssub"),
        owed=number("omem"),
        command=fields.get("cmd", ""),
    )


def text(client: Client, *words: str) -> str:
    """Return a reply that is text."""
    reply = client.call(*words)
    if isinstance(reply, bytes):
        return reply.decode(errors="backslashreplace")
    if isinstance(reply, str):
        return reply
    raise ProtocolError(f"{' '.join(words)} was answered with {reply!r}")


def _batches(names: list[object], size: int) -> Iterator[list[bytes]]:
    for start in range(0, len(names), size):
        yield [name for name in names[start : start + size] if isinstance(name, bytes)]


def _counts(reply: object) -> Iterator[tuple[bytes, int]]:
    if not isinstance(reply, list):
        raise ProtocolError(f"PUBSUB NUMSUB was answered with {reply!r}")
    for name, count in zip(reply[::2], reply[1::2], strict=True):
        # Redis answers with a map's pairs; a client may have left since the list was made.
        if count:
            yield name, count


BATCH = 512
"""Names in one NUMSUB."""

ONLY_A_HUB = "only a hub of a recent release can list subscribed clients"

TABLE = "table_"
STORE = "store_"

WHOLE = re.compile(r"\d+")
DECIMAL = re.compile(r"\d+\.\d+", re.ASCII)
