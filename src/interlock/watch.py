"""Log lines that a queue writes unasked, on the ``interlock.queue`` logger."""

from __future__ import annotations

import heapq
import logging
import os
import queue as _queue
import threading
import time
import traceback
import weakref
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

from interlock import _core
from interlock.explanation import Explanation, from_native, key_names, key_text
from interlock.failure import first_line
from interlock.runtime import forks
from interlock.runtime.threads import start_thread

__all__ = ["follow", "handled_are_told", "log", "log_handled", "report", "tell_handled"]

_logger = logging.getLogger("interlock.queue")
_handled_at = logging.DEBUG


class _Log(logging.LoggerAdapter[logging.Logger]):
    """Never raises: handlers and filters are the user's code, and must not make a call fail."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs  # the adapter of the library would replace `extra`

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        try:
            # A record names the caller's line, not this one.
            super().log(level, msg, *args, **{"stacklevel": 2, **kwargs})
        except Exception:
            traceback.print_exc()


log = _Log(_logger, {})


def tell_handled(level: int) -> None:
    """Log handled messages at this level, for this process; the default is debug."""
    global _handled_at
    _handled_at = level


def handled_are_told() -> bool:
    """Return whether handled messages are logged."""
    return _logger.isEnabledFor(_handled_at)


def report(queue: str, events: Sequence[tuple[Any, ...]], number: int | None = None) -> bool:
    """Log the queue's notes, and return whether each handled message is wanted too.

    Called by the core, at least once a second while puts are made.

    ``number`` is that of a queue of this process, which the watcher may have to check.
    """
    for kind, *rest in events:
        _REPORTS[kind](queue, *rest)
    if number is not None:
        _ring(number)
    return handled_are_told()


def _depth(queue: str, depth: int, key: bytes | None) -> None:
    extra = {"queue": queue, "depth": depth}
    log.warning("queue %r holds %d messages", queue, depth, extra=extra)
    if key is not None:
        log.warning(
            "queue %r: nearly all messages share the key %s, so they are handled one after the "
            "other",
            queue,
            key_text(key),
            extra={**extra, "keys": key_names([key])},
        )


def _lane_depth(queue: str, key: bytes, depth: int) -> None:
    log.warning(
        "queue %r: %d messages have the key %s",
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
        f" (and {others} more have waited too long)" if others else "",
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


def _parked(
    queue: str,
    count: int,
    keys: bytes | Sequence[bytes],
    waited: float | None,
    behind: int | None,
) -> None:
    """``keys``: the one on which some of them are parked, or on one of which they are."""
    listed = [keys] if isinstance(keys, bytes) else keys
    log.warning(
        "queue %r: %d message%s parked; on %s %s%s, %s",
        queue,
        count,
        "" if count == 1 else "s",
        "the key" if len(listed) == 1 else "one of the keys",
        ", ".join(map(key_text, listed)),
        "" if waited is None else f" for {waited:.1f} s",
        "which is paused" if behind is None else f"behind message {behind}",
        extra={
            "queue": queue,
            "parked": count,
            "keys": key_names(listed),
            **({} if waited is None else {"waited": waited}),
            **({} if behind is None else {"id": behind}),
        },
    )


def _swept(queue: str, key: bytes, behind: int, buried: int, cancelled: int) -> None:
    log.warning(
        "queue %r: behind message %d on the key %s, %d became dead letters and %d were cancelled",
        queue,
        behind,
        key_text(key),
        buried,
        cancelled,
        extra={
            "queue": queue,
            "id": behind,
            "keys": key_names([key]),
            "buried": buried,
            "cancelled": cancelled,
        },
    )


def _drawn(explained: Any) -> Any:
    """Return an explanation, of the core or of an engine, as it is drawn.

    None: there is nothing to explain any longer.
    """
    if explained is None:
        return "settled meanwhile"
    return explained if isinstance(explained, Explanation) else from_native(explained)


def _failed(queue: str, id: int, attempt: int, outcome: tuple[str, int, float], error: str) -> None:
    what, _next, after = outcome
    extra = {"queue": queue, "id": id, "attempt": attempt}
    why = first_line(error) or "no reason given"
    if what == "again":
        text = "queue %r: attempt %d of message %d failed (%s); retrying in %.3g s"
        log.warning(text, queue, attempt, id, why, after, extra=extra)
    elif what == "dead":
        text = "queue %r: message %d is a dead letter after attempt %d (%s)"
        log.error(text, queue, id, attempt, why, extra=extra)
    else:
        text = "queue %r: message %d is held after attempt %d (%s); its keys are blocked until "
        text += "retry(%d), skip(%d) or bury(%d)"
        log.error(text, queue, id, attempt, why, id, id, id, extra=extra)


def _ended(queue: str, id: int, attempt: int, error: str) -> None:
    text = "queue %r: message %d failed for good at attempt %d (%s); its future has the exception"
    extra = {"queue": queue, "id": id, "attempt": attempt}
    log.error(text, queue, id, attempt, first_line(error), extra=extra)


def log_handled(
    queue: str,
    id: int,
    keys: Sequence[bytes],
    attempt: int,
    waited: float,
    handled: float,
    **more: Any,
) -> None:
    """Log that a message was handled; ``more`` of its record: token, task."""
    known = {name: value for name, value in more.items() if value}
    log.log(
        _handled_at,
        "queue %r: message %d%s [%s] waited %.1f ms, handled %.1f ms, attempt %d",
        queue,
        id,
        f" ({known['task']})" if "task" in known else "",
        ", ".join(map(key_text, keys)),
        waited * 1000,
        handled * 1000,
        attempt,
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
    "parked": _parked,
    "swept": _swept,
    "failed": _failed,
    "ended": _ended,
    "handled": log_handled,
}


# -- The watcher ----------------------------------------------------------------------------------
#
# The next call into a queue notices slow messages; if all handlers hang there is no next call, and
# then it matters most. So one thread of the process makes that call when it is time to check, for
# the queues that are due and no others, because there may be many. The first put of a watched queue
# starts it. Everything here may run in a destructor or a signal handler, so it takes no lock that
# an interrupted thread could hold.

_followed: dict[int, weakref.ref[_core.Queue[Any]]] = {}
# Queues that again have something that may become slow, by their numbers.
_bell: _queue.SimpleQueue[int] = _queue.SimpleQueue()
# Queues that the watcher will check by itself: no ring is needed for these.
_scheduled: set[int] = set()
_started: dict[int, object] = {}

# Minimum and maximum time between two rounds, seconds.
_PAUSE = 0.05
_LONGEST = 3600.0
# At most this many scheduled times of deleted queues are kept, plus as many as are wanted.
_STALE = 64


def follow(queue: _core.Queue[Any]) -> None:
    """Let the watcher check a queue as long as it lives."""
    number = queue._number

    def forget(_: object) -> None:
        _followed.pop(number, None)
        _scheduled.discard(number)

    _followed[number] = weakref.ref(queue, forget)


def _ring(number: int) -> None:
    if number in _scheduled or number not in _followed:
        return
    me = object()
    if _started.setdefault(forks.count, me) is me:
        try:
            start_thread(_watch)
        except RuntimeError:
            # The interpreter is ending, or the system cannot start another thread.
            _started.pop(forks.count, None)
            return
    _bell.put(number)


def _watch() -> None:
    threading.current_thread().name = "interlock-watch"
    # The queue to check at each time: times of the monotonic clock, and numbers.
    times: list[tuple[float, int]] = []
    while True:
        left = times[0][0] - time.monotonic() if times else _LONGEST
        try:
            rung = {_bell.get(timeout=min(max(left, _PAUSE), _LONGEST))}
        except _queue.Empty:
            rung = set()
        else:
            # A ring is immediate; a burst is one round.
            time.sleep(_PAUSE)
        while not _bell.empty():
            rung.add(_bell.get())
        rung -= _scheduled
        while times and times[0][0] <= time.monotonic():
            rung.add(heapq.heappop(times)[1])
        for number in rung:
            left_of_it = _look_at(number)
            if left_of_it is not None:
                heapq.heappush(times, (time.monotonic() + left_of_it, number))
        if len(times) > 2 * len(_scheduled) + _STALE:
            times = [entry for entry in times if entry[1] in _scheduled]
            heapq.heapify(times)


def _look_at(number: int) -> float | None:
    """Check a queue; return the seconds until the next check.

    None: nothing in it could become slow.
    """
    reference = _followed.get(number)
    queue = reference() if reference is not None else None
    if queue is None:
        return None
    _scheduled.add(number)
    left = queue._look()
    if left is None:
        _scheduled.discard(number)
        # A put in between saw no reason to ring.
        left = queue._look()
        if left is not None:
            _scheduled.add(number)
    return left


def _forked() -> None:
    global _bell
    # The child of a fork has no watcher.
    _bell = _queue.SimpleQueue()
    _scheduled.clear()


os.register_at_fork(after_in_child=_forked)
