"""The lines of a run as what happened: puts, and of each message its grants and settlements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.engine.faults.bank import Operation, operation
from tests.engine.faults.lines import Line


@dataclass
class Put:
    """One operation, put until it was answered or given up."""

    what: Operation
    lines: list[Line]
    """Each call of a put, the first one first."""
    delayed: bool
    answers: list[Line] = field(default_factory=list)

    @property
    def answered(self) -> Line | None:
        return self.answers[0] if self.answers else None


@dataclass
class Settling:
    """One call that settles; without an answer it may have been done or not."""

    line: Line
    how: str
    answer: Line | None = None

    @property
    def said(self) -> str:
        return self.answer["answer"] if self.answer else "unknown"


@dataclass
class Grant:
    """A message, handed to a worker."""

    get: Line
    """Line of the call that asked for it."""
    begin: Line
    settlings: list[Settling] = field(default_factory=list)
    unrenewed: Line | None = None

    @property
    def id(self) -> int:
        return int(self.begin["id"])

    @property
    def token(self) -> int:
        return int(self.begin["token"])

    @property
    def attempt(self) -> int:
        return int(self.begin["attempt"])

    @property
    def may_have_acked(self) -> list[Settling]:
        return [one for one in self.settlings if one.how == "ack" and one.said != "lost"]


@dataclass
class Message:
    """All that was seen of one message, its grants in the order of their tokens."""

    id: int
    what: Operation
    grants: list[Grant]

    @property
    def sequence(self) -> int:
        return int(self.grants[0].begin["sequence"])


class Story:
    """A run as all its processes saw it."""

    def __init__(self, logs: dict[str, list[Line]]) -> None:
        self.puts: dict[str, Put] = {}
        self.grants: list[Grant] = []
        self.stats: Line | None = None
        self.unanswered_gets = 0
        """Maximum number of leased messages without a line."""
        for lines in logs.values():
            self._read(lines)
        found: dict[int, list[Grant]] = {}
        for grant in sorted(self.grants, key=lambda one: one.token):
            found.setdefault(grant.id, []).append(grant)
        self.messages = {
            id: Message(id, operation(grants[0].begin["what"]), grants)
            for id, grants in found.items()
        }

    def in_order(self) -> list[Message]:
        """By their places."""
        return sorted(self.messages.values(), key=lambda one: one.sequence)

    def _read(self, lines: Iterable[Line]) -> None:
        get: Line | None = None
        left = 0
        held: dict[tuple[int, int], Grant] = {}
        open_: dict[tuple[int, int], Settling] = {}
        for line in lines:
            match line.what:
                case "put":
                    what = operation(line["what"])
                    known = self.puts.get(what.name)
                    if known is None:
                        self.puts[what.name] = Put(what, [line], bool(line["delay"]))
                    else:
                        known.lines.append(line)
                case "answered":
                    self.puts[line["name"]].answers.append(line)
                case "get":
                    self.unanswered_gets += left
                    get, left = line, int(line["limit"])
                case "got":
                    # Its leases have lines of their own, unless it is killed now.
                    left = int(line["count"])
                case "begin":
                    assert get is not None
                    grant = Grant(get, line)
                    self.grants.append(grant)
                    held[grant.id, grant.token] = grant
                    left -= 1
                case "unrenewed":
                    held[_of(line)].unrenewed = line
                case "settling":
                    settling = open_[_of(line)] = Settling(line, line["how"])
                    held[_of(line)].settlings.append(settling)
                case "settled":
                    open_.pop(_of(line)).answer = line
                case "stats":
                    self.stats = line
        self.unanswered_gets += left


def _of(line: Line) -> tuple[int, int]:
    return int(line["id"]), int(line["token"])
