"""The shortest time any schedule could take, and the message that each one actually waited for.

Both follow from the conflicts in a trace and the measured durations of its handlers: two messages
conflict when they share a key and at least one holds it exclusively. The graph of all conflicts is
never built; for each key the last writer and the readers since suffice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from interlock.replay.trace import Message


@dataclass(frozen=True, slots=True)
class Limit:
    """Minimum seconds of any schedule of the same handlers."""

    critical_path: float
    """The longest chain of messages each of which conflicts with the next."""

    work: float
    """Total time of all handlers."""

    workers: int

    @property
    def seconds(self) -> float:
        """The larger of the critical path and the work divided by the workers."""
        return max(self.critical_path, self.work / self.workers)


def limit(messages: Sequence[Message], durations: Sequence[float], workers: int) -> Limit:
    """Return the limit of a trace whose handlers took `durations` seconds, in the trace's order."""
    written: dict[str, float] = {}
    read: dict[str, float] = {}
    longest = 0.0
    for message, seconds in zip(messages, durations, strict=True):
        begin = 0.0
        for key in message.keys:
            begin = max(begin, written.get(key, 0.0), read.get(key, 0.0))
        for key in message.shared:
            begin = max(begin, written.get(key, 0.0))
        end = begin + seconds
        for key in message.keys:
            written[key] = end
            read.pop(key, None)
        for key in message.shared:
            read[key] = max(read.get(key, 0.0), end)
        longest = max(longest, end)
    return Limit(longest, sum(durations), workers)


def waited_for(
    messages: Sequence[Message], puts: Sequence[float], ends: Sequence[float]
) -> list[int | None]:
    """Return for each message the index of the one it waited for last; None if it waited for none.

    This is the last to end of the messages it directly conflicts with, if that was after its own
    put.
    """
    written: dict[str, int] = {}
    read: dict[str, int] = {}
    answers: list[int | None] = []
    for place, message in enumerate(messages):
        before = [found for key in message.keys if (found := read.get(key)) is not None]
        for keys in (message.keys, message.shared):
            before += [found for key in keys if (found := written.get(key)) is not None]
        last = max(before, key=ends.__getitem__, default=None)
        answers.append(last if last is not None and ends[last] > puts[place] else None)
        for key in message.keys:
            written[key] = place
            read.pop(key, None)
        for key in message.shared:
            reader = read.get(key)
            if reader is None or ends[reader] < ends[place]:
                read[key] = place
    return answers
