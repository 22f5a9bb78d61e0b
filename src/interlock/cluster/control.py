"""``NODE …``: the commands of nodes to each other, and of operators to nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from interlock.cluster.reply import OK, array, bulk, error
from interlock.cluster.requests import Request
from interlock.cluster.transfer import ScanLost

if TYPE_CHECKING:
    from interlock.cluster.node import Node

MOST_NUMBER = 2**63 - 1
NOT_PRIMARY = error("NOTPRIMARY this node is not the primary under that token")
HELP = (
    "NODE <subcommand> [<argument> ...]. Subcommands are:",
    "STATUS -- What this node is, and what it knows, as JSON.",
    "SCAN <cursor> <count> -- Keys and states of all rows, some at a time; begins and ends with 0.",
    "FAILOVER [<node>] -- Have another node be the primary, or this one where it is none.",
    "DRAIN -- Be no primary any more, and say so to clients and balancers.",
    "RESYNC -- Take a snapshot of another node's rows.",
    "WRITE, HAVE, OFFER -- What nodes say to their primary.",
)


class Control:
    """Answers ``NODE`` of one node; its lock is held by the caller."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._subcommands: dict[bytes, Callable[[Sequence[bytes]], bytes]] = {
            b"STATUS": self._status,
            b"SCAN": self._scan,
            b"WRITE": self._write,
            b"HAVE": self._have,
            b"OFFER": self._offer,
            b"FAILOVER": self._failover,
            b"DRAIN": self._drain,
            b"RESYNC": self._resync,
            b"HELP": self._help,
        }

    def answer(self, arguments: Sequence[bytes]) -> bytes:
        """Return the reply to a command, whose first word is ``NODE``."""
        word = arguments[1].upper() if len(arguments) > 1 else b""
        subcommand = self._subcommands.get(word)
        if subcommand is None:
            return error(
                f"ERR unknown subcommand '{word.decode(errors='replace')[:40]}'. Try NODE HELP."
            )
        try:
            return subcommand(arguments[2:])
        except (ValueError, IndexError):
            return error(f"ERR wrong arguments for 'node|{word.decode().lower()}'. Try NODE HELP.")
        except ScanLost as lost:
            return error(f"NODE {lost}")

    def _help(self, _words: Sequence[bytes]) -> bytes:
        return array(line.encode() for line in HELP)

    def _status(self, _words: Sequence[bytes]) -> bytes:
        return bulk(json.dumps(self._node.figures.status()).encode())

    def _scan(self, words: Sequence[bytes]) -> bytes:
        cursor, count, *partial = words
        if partial not in ([], [b"PARTIAL"]):
            raise ValueError
        if self._node.machine.joining and cursor == b"0" and not partial:
            return error("NODE this node lacks changes itself just now")
        return self._node.scans.page(cursor.decode(), int(count))

    def _write(self, words: Sequence[bytes]) -> bytes:
        token, node, writes, at = int(words[0]), words[1].decode(), [], 2
        while at < len(words):
            number, resp3, count = (int(word) for word in words[at : at + 3])
            at += 3
            if not 0 < count <= len(words) - at or not 0 < number <= MOST_NUMBER:
                raise ValueError
            writes.append(Request(number, 0, list(words[at : at + count]), bool(resp3), 0.0))
            at += count
        if not self._node.machine.passed_on(token, node, writes):
            return NOT_PRIMARY
        return OK

    def _have(self, words: Sequence[bytes]) -> bytes:
        token, node, seq = words
        if not self._node.machine.has(node.decode(), int(token), int(seq)):
            return NOT_PRIMARY
        return OK

    def _offer(self, words: Sequence[bytes]) -> bytes:
        if len(words) % 2 == 0:
            raise ValueError
        changes = list(zip(words[1::2], words[2::2], strict=True))
        for key, state in changes:
            if not 1 <= len(key) <= self._node.settings.key_size:
                raise ValueError
            # All nodes will join it, again whenever they read the stream: it must be one.
            self._node.rules.check(state)
        seq = self._node.machine.offered(int(words[0]), changes)
        return NOT_PRIMARY if seq is None else b":%d\r\n" % seq

    def _failover(self, words: Sequence[bytes]) -> bytes:
        successor = words[0].decode() if words else ""
        if len(words) > 1:
            raise ValueError
        refusal = self._node.fail_over(successor)
        return error(f"NODE {refusal}") if refusal else OK

    def _drain(self, words: Sequence[bytes]) -> bytes:
        if words:
            raise ValueError
        self._node.drain()
        return OK

    def _resync(self, words: Sequence[bytes]) -> bytes:
        if words:
            raise ValueError
        refusal = self._node.resync()
        return error(f"NODE {refusal}") if refusal else OK
