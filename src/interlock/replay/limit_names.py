"""The limit names of recorded messages: from their lines, and from their keys."""

from __future__ import annotations

import dataclasses

from interlock.replay.trace import Message, Trace, TraceError
from interlock.runtime.concurrency import Limits, names_text


def limited(trace: Trace, limits: Limits) -> Trace:
    """Return the trace with the names under which these limits count each message.

    A message carries the names of its line; a declared name with which one of its keys begins; and
    each of its keys that begins with a declared prefix, such as ``tenant:*``. Raises TraceError if
    a message would carry more names than a queue allows.
    """
    messages = [dataclasses.replace(one, limit=_names(one, limits)) for one in trace.messages]
    return dataclasses.replace(trace, messages=messages)


def _names(message: Message, limits: Limits) -> tuple[str, ...]:
    keys, found = (*message.keys, *message.shared), set(message.limit)
    for name in limits:
        begins = [key for key in keys if key.startswith(name.removesuffix("*"))]
        if name.endswith("*"):
            found.update(begins)
        elif begins:
            found.add(name)
    try:
        names_text(found, f"message {message.id}")
    except ValueError as error:
        raise TraceError(str(error)) from None
    return tuple(sorted(found))
