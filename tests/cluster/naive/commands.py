"""Commands: the writes of clients, as changes of states and as a hub's replies to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from tests.cluster.naive.calls import Change, KeptTable, Read
from tests.cluster.naive.stamps import HybridClock
from tests.cluster.naive.state import TableRules
from tests.cluster.naive.texts import ColumnText, Refusal
from tests.cluster.naive.writes import Writes

__all__ = ["Change", "Commands", "Outcome"]


class Outcome(NamedTuple):
    """The end of a command."""

    reply: bytes
    """As it goes out on the wire."""
    changes: list[Change]
    """In their order; none where the command failed or changes nothing."""
    states: Mapping[bytes, bytes] = {}
    """Rows as they are with all of the changes, where the command had to find that."""


class Commands:
    """The commands that write to one table.

    HSET, HMSET, HSETNX, HINCRBY, HINCRBYFLOAT, HDEL, DEL, UNLINK, EXPIRE, PEXPIRE, EXPIREAT,
    PEXPIREAT, PERSIST, and of TABLE: SET, MSET, PATCH, INCR, CAS, POP. Replies are those of a hub's
    own table; but what ends in an error changes nothing, also where a table does half of it.

    Args:
        rules: those of the table.
        table_name: the name in front of the keys.
        key_size: most bytes of a key.
        default_ttl_ms: ms that a row lives by default. None: for ever.
    """

    def __init__(
        self,
        rules: TableRules,
        *,
        table_name: str,
        key_size: int = 32,
        default_ttl_ms: int | None = None,
    ) -> None:
        self.rules = rules
        name = table_name.encode()
        self._kept = KeptTable(
            rules=rules,
            name=name,
            prefix=name + b":",
            key_size=key_size,
            default_ttl_ms=default_ttl_ms,
            texts={column.name.encode(): ColumnText(column) for column in rules.columns},
        )

    def run(
        self,
        arguments: list[bytes],
        resp3: bool,
        read: Read,
        clock: HybridClock,
        now_ms: int,
    ) -> Outcome:
        """Do one command.

        Args:
            arguments: the command's name and what follows, as a client sent them.
            resp3: whether the client speaks RESP3.
            read: gives the state of a key, changes that are under way included; None for nothing.
            clock: the data centre's; the stamps of the changes come from it.
            now_ms: the time, in ms since 1970: by it rows have expired or not.
        """
        call = Writes(self._kept, arguments, resp3, read, clock, now_ms)
        try:
            return Outcome(_reply(call), call.changes, call.changed)
        except Refusal as refusal:
            return Outcome(refusal.reply(), [])


def _reply(call: Writes) -> bytes:
    arguments = call.arguments
    name = arguments[0].lower() if arguments else b""
    if name == b"table" and len(arguments) > 1:
        name = b"table|" + arguments[1].lower()
    found = _COMMANDS.get(name)
    if found is None:
        raise Refusal(b"ERR unknown command '" + name[:128] + b"'")
    arity, do = found
    if len(arguments) != arity if arity > 0 else len(arguments) < -arity:
        raise call.wrong_count(name)
    return do(call)


_COMMANDS: dict[bytes, tuple[int, Callable[[Writes], bytes]]] = {
    b"hset": (-4, Writes.hset),
    b"hmset": (-4, Writes.hmset),
    b"hsetnx": (4, Writes.hsetnx),
    b"hincrby": (4, Writes.hincrby),
    b"hincrbyfloat": (4, Writes.hincrbyfloat),
    b"hdel": (-3, Writes.hdel),
    b"del": (-2, Writes.delete),
    b"unlink": (-2, Writes.delete),
    b"expire": (-3, Writes.expire),
    b"pexpire": (-3, Writes.pexpire),
    b"expireat": (-3, Writes.expireat),
    b"pexpireat": (-3, Writes.pexpireat),
    b"persist": (2, Writes.persist),
    b"table|set": (-5, Writes.table_set),
    b"table|mset": (-6, Writes.table_mset),
    b"table|patch": (-5, Writes.table_patch),
    b"table|incr": (-5, Writes.table_incr),
    b"table|cas": (6, Writes.table_cas),
    b"table|pop": (3, Writes.table_pop),
    b"table|barrier": (3, Writes.table_barrier),
}
"""Arity, negative for a minimum, and the operation."""
