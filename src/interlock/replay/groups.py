"""Groups of recorded messages, and how long each of them waits with turns and without."""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from interlock.replay.run import Run
from interlock.replay.trace import Message, Trace, TraceError
from interlock.runtime.concurrency import group_text

KEY = "key"
"""The field that is the first key of a message; with a separator behind it, a part of that key."""


def is_of_key(field: str) -> bool:
    """Return whether a field is the first key, or its part before a separator."""
    return field.startswith(KEY) and not field[len(KEY) : len(KEY) + 1].isalnum()


def grouped(trace: Trace, field: str) -> Trace:
    """Return the trace with the group of each message; those read from its lines stay.

    Raises TraceError if a group is not allowed in a queue.
    """
    of_key = is_of_key(field)
    messages = []
    for one in trace.messages:
        group = _part(one, field[len(KEY) :]) if of_key else one.group
        if group is not None:
            try:
                group_text(group, f"message {one.id}")
            except ValueError as error:
                raise TraceError(str(error)) from None
        messages.append(dataclasses.replace(one, group=group))
    return dataclasses.replace(trace, messages=messages)


def _part(message: Message, separator: str) -> str | None:
    keys = message.keys or message.shared
    if not keys or not separator:
        return keys[0] if keys else None
    part, found, _ = keys[0].partition(separator)
    return part if found and part else None


def compared(messages: Sequence[Message], run: Run, plain: Run) -> dict[str, Any]:
    """Return the waits of each group in a run with turns and in one without, in JSON's types.

    The index is Jain's, of the groups' throughputs: 1 if all have the same, 1 ÷ their number if one
    has all. A group's throughput is its number of messages by the time until the last one ended.
    """
    with_turns, without = _by_group(messages, run), _by_group(messages, plain)
    rows: list[dict[str, Any]] = [
        {
            "group": group,
            "messages": len(one.waits),
            "median": statistics.median(one.waits),
            "longest": max(one.waits),
            "without": {
                "median": statistics.median(without[group].waits),
                "longest": max(without[group].waits),
            },
        }
        for group, one in with_turns.items()
    ]
    rows.sort(key=lambda row: (-row["messages"], row["group"] or ""))
    return {
        "groups": len(rows),
        "index": _index(with_turns),
        "index_without": _index(without),
        "seconds_without": plain.seconds,
        "largest": rows[:LISTED],
    }


@dataclasses.dataclass(slots=True)
class _Waits:
    waits: list[float] = dataclasses.field(default_factory=list)
    """Seconds from the put to the start, of each message."""
    end: float = 0.0
    """The end of the last one, seconds since the first put."""


def _by_group(messages: Sequence[Message], run: Run) -> dict[str | None, _Waits]:
    found: dict[str | None, _Waits] = defaultdict(_Waits)
    for record in run.records:
        one = found[messages[record.index].group]
        one.waits.append(record.start - record.put_time)
        one.end = max(one.end, record.end)
    return found


def _index(groups: dict[str | None, _Waits]) -> float:
    rates = [len(one.waits) / one.end for one in groups.values() if one.end > 0]
    squares = len(rates) * sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / squares if squares else 1.0


LISTED = 100
