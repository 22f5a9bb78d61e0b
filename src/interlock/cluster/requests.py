"""Writes of a node's own clients that are not answered yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from interlock.cluster.entry import EVERY

Asker = int


@dataclass(slots=True)
class Request:
    """A write that a client waits for."""

    number: int
    asker: Asker
    arguments: list[bytes]
    resp3: bool
    since: float
    """By the monotonic clock."""
    token: int = 0
    """Of the primary it was given to; 0: none so far."""
    reply: bytes | None = None
    """The answer, once it is done in the stream."""
    seq: int = 0
    """The number up to which replicas must have applied changes before the client hears it."""


class Requests:
    """All of a node's, oldest first."""

    def __init__(self) -> None:
        self._all: dict[int, Request] = {}
        self._unsent: dict[int, Request] = {}
        self._done: dict[int, Request] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._all)

    def new(self, asker: Asker, arguments: list[bytes], resp3: bool, since: float) -> Request:
        """Take a write; nobody has it yet."""
        self._last += 1
        request = Request(self._last, asker, arguments, resp3, since)
        self._all[request.number] = self._unsent[request.number] = request
        return request

    @property
    def unsent(self) -> bool:
        """Some are for the next primary."""
        return bool(self._unsent)

    def take_unsent(self, token: int, most: int) -> list[Request]:
        """Take the oldest that the primary under a token has not got yet."""
        taken: list[Request] = []
        for request in list(self._unsent.values())[:most]:
            del self._unsent[request.number]
            request.token = token
            taken.append(request)
        return taken

    def send_again(self, token: int) -> None:
        """Have all that were given to a primary and are not done given to it once more."""
        again = [r for r in self._all.values() if r.token == token and r.reply is None]
        self._unsent = {r.number: r for r in sorted([*again, *self._unsent.values()],
                                                   key=lambda r: r.number)}  # fmt: skip

    def fence(self, token: int) -> None:
        """Have all that no primary before `token` has done sent to that: it surely was not done."""
        self._unsent = {}
        for request in self._all.values():
            if request.reply is None and request.token < token:
                request.token = 0
                self._unsent[request.number] = request

    def reply(self, number: int, reply: bytes, seq: int) -> None:
        """Note that a write is done, and in the stream up to `seq`."""
        request = self._all.get(number)
        if request is not None and request.reply is None:
            request.reply, request.seq = reply, seq
            self._unsent.pop(number, None)
            self._done[number] = request

    def answerable(self, ack: int, acked: int, *, here: bool) -> list[tuple[Asker, bytes]]:
        """Take the answers for clients.

        `here`: this node is a replica, so that it is itself one that has the change.
        """
        if ack == 0 or (ack == 1 and here):
            ready = list(self._done.values())
        else:
            ready = [request for request in self._done.values() if request.seq <= acked]
        for request in ready:
            del self._done[request.number], self._all[request.number]
        return [(request.asker, request.reply or b"") for request in ready]

    def overdue(self, before: float, ack: int) -> list[tuple[Asker, bytes]]:
        """Take those that wait since before a time, each with an error that says how it stands."""
        late: list[tuple[Asker, bytes]] = []
        for request in self._oldest(before):
            if request.reply is not None:
                many = "all" if ack == EVERY else ack
                text = (
                    f"NOACK it is done, but not {many} replicas have said in time that they have it"
                )
            elif request.token:
                text = "UNKNOWN the primary does not answer: it is not known whether it is done"
            else:
                text = "TRYAGAIN there is no primary just now: it was not done"
            late.append((request.asker, b"-%s\r\n" % text.encode()))
            for held in (self._all, self._unsent, self._done):
                held.pop(request.number, None)
        return late

    def lose(self) -> list[tuple[Asker, bytes]]:
        """Take those that were sent and whose answers can be read no more."""
        text = (
            b"-UNKNOWN this node missed what became of it: it is not known whether it is done\r\n"
        )
        lost = [r for r in self._all.values() if r.token and r.reply is None]
        for request in lost:
            del self._all[request.number]
            self._unsent.pop(request.number, None)
        return [(request.asker, text) for request in lost]

    def _oldest(self, before: float) -> Iterator[Request]:
        for request in list(self._all.values()):
            if request.since >= before:
                return
            yield request
