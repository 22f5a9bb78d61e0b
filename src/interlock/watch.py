"""What a queue says unasked, on the ``interlock.queue`` logger."""

from __future__ import annotations

import _thread
import logging
import os
import queue as _queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from interlock import _core
from interlock.explanation import Explanation, from_native, key_names, key_text

__all__ = ["follow", "log_handled", "report"]

log = logging.getLogger("interlock.queue")


def report(queue: str, events: Sequence[tuple[Any, ...]]) -> bool:
    """Logs what the queue noted; called by the core, at least once a second while puts are made.

    Answers whether each handled message is wanted too.
    """
    for kind, *rest in events:
        _REPORTS[kind](queue, *rest)
    _ring()
    return log.isEnabledFor(logging.DEBUG)


def _depth(queue: str, depth: int, key: bytes | None) -> None:
    extra = {"queue": queue, "depth": depth}
    log.warning("queue %r holds %d messages", queue, depth, extra=extra)
    if key is not None:
        log.warning(
            "queue %r: nearly all messages share the key %s, so that everything is serialised by "
            "it: they are handled one after the other",
            queue,
            key_text(key),
            extra={**extra, "keys": key_names([key])},
        )


def _lane_depth(queue: str, key: bytes, depth: int) -> None:
    log.warning(
        "queue %r: %d messages stand on the key %s",
        queue,
        depth,
        key_text(key),
        extra={"queue": queue, "depth": depth, "keys": key_names([key])},
    )


def _more_lanes(queue: str, lanes: int) -> None:
    text = "queue %r: %d more keys passed the depth at which a key is named"
    log.warning(text, queue, lanes, extra={"queue": queue, "lanes": lanes})


def _slow_wait(queue: str, id: int, waited: float, others: int, explained: Any) -> None:
    log.error(
        "queue %r: message %d has waited %.1f s%s\n%s",
        queue,
        id,
        waited,
        f" (and {others} more too long)" if others else "",
        _drawn(explained),
        extra={"queue": queue, "id": id, "waited": waited, "others": others},
    )


def _slow_lease(queue: str, id: int, consumer: int, held: float, explained: Any) -> None:
    log.error(
        "queue %r: message %d has been handled for %.1f s\n%s",
        queue,
        id,
        held,
        _drawn(explained),
        extra={"queue": queue, "id": id, "consumer": consumer, "held": held},
    )


def _drawn(explained: Any) -> Any:
    """An explanation, of the core or of an engine; None: there is nothing to explain any more."""
    if explained is None:
        return "settled meanwhile"
    return explained if isinstance(explained, Explanation) else from_native(explained)


def _failed(queue: str, id: int, attempt: int, outcome: tuple[str, int, float], error: str) -> None:
    what, _next, after = outcome
    extra = {"queue": queue, "id": id, "attempt": attempt}
    why = error or "no reason given"
    if what == "again":
        text = "queue %r: attempt %d of message %d failed (%s); again in %.3g s"
        log.warning(text, queue, attempt, id, why, after, extra=extra)
    elif what == "dead":
        text = "queue %r: message %d is a dead letter after attempt %d (%s)"
        log.error(text, queue, id, attempt, why, extra=extra)
    else:
        text = "queue %r: message %d is held after attempt %d (%s); its keys stay closed until "
        text += "retry(%d), skip(%d) or bury(%d)"
        log.error(text, queue, id, attempt, why, id, id, id, extra=extra)


def _ended(queue: str, id: int, attempt: int, error: str) -> None:
    text = "queue %r: message %d failed for good at attempt %d (%s); its future has the exception"
    extra = {"queue": queue, "id": id, "attempt": attempt}
    log.error(text, queue, id, attempt, error, extra=extra)


def log_handled(
    queue: str,
    id: int,
    keys: Sequence[bytes],
    attempt: int,
    waited: float,
    handled: float,
    **more: Any,
) -> None:
    """Says that a message was handled, at level debug; ``more`` of its record: token, task."""
    known = {name: value for name, value in more.items() if value}
    log.debug(
        "queue %r: message %d%s [%s] waited %.1f ms, handled %.1f ms",
        queue,
        id,
        f" ({known['task']})" if "task" in known else "",
        ", ".join(map(key_text, keys)),
        waited * 1000,
        handled * 1000,
        extra={
            "queue": queue,
            "id": id,
            "keys": key_names(keys),
            "attempt": attempt,
            "waited": waited,
            "handled": handled,
            **known,
        },
    )


_REPORTS: dict[str, Callable[..., None]] = {
    "depth": _depth,
    "lane_depth": _lane_depth,
    "more_lanes": _more_lanes,
    "slow_wait": _slow_wait,
    "slow_lease": _slow_lease,
    "failed": _failed,
    "ended": _ended,
    "handled": log_handled,
}


# -- The watcher ----------------------------------------------------------------------------------
#
# What is slow is noticed by whoever calls next; where all handlers hang nobody calls, and then it
# matters most. So one thread of the process calls when it is time to look. The first put of a queue
# that is watched starts it. Everything here may run in a destructor or a signal handler, hence no
# lock that an interrupted thread could hold.

_followed: dict[int, weakref.ref[_core.Queue[Any]]] = {}
_bell: _queue.SimpleQueue[None] = _queue.SimpleQueue()
_started: dict[int, object] = {}
# Whether the watcher sleeps without an end, and so must be rung when there is something.
_idle = True

# Shortest time between two looks, and longest, seconds.
_PAUSE = 0.05
_LONGEST = 3600.0


def follow(queue: _core.Queue[Any]) -> None:
    """Has the watcher look after a queue as long as it lives."""
    key = id(queue)
    _followed[key] = weakref.ref(queue, lambda _: _followed.pop(key, None))
    if not _idle:
        # It may have to look at this one sooner than it meant to.
        _bell.put(None)


def _ring() -> None:
    if not _idle or not _followed:
        return
    me = object()
    if _started.setdefault(os.getpid(), me) is me:
        try:
            # Not threading.Thread, whose start takes locks.
            _thread.start_new_thread(_watch, ())
        except RuntimeError:
            # The interpreter is ending, or there is no room for a thread.
            _started.pop(os.getpid(), None)
            return
    _bell.put(None)


def _watch() -> None:
    global _idle
    threading.current_thread().name = "interlock-watch"
    while True:
        _idle = True
        left = _look_at_all()
        _idle = left is None
        started = time.monotonic()
        try:
            _bell.get(timeout=None if left is None else min(max(left, _PAUSE), _LONGEST))
        except _queue.Empty:
            continue
        if (gone := time.monotonic() - started) < _PAUSE:
            time.sleep(_PAUSE - gone)
        while not _bell.empty():
            _bell.get()


def _look_at_all() -> float | None:
    """Seconds until the next look; None: nothing is queued that could become slow."""
    first = None
    for reference in list(_followed.values()):
        queue = reference()
        if queue is not None:
            left = queue._look()
            if left is not None and (first is None or left < first):
                first = left
    return first


def _forked() -> None:
    global _bell, _idle
    # The watcher is not in the child of a fork.
    _bell = _queue.SimpleQueue()
    _idle = True


os.register_at_fork(after_in_child=_forked)
