"""What a queue says unasked, on the ``interlock.queue`` logger."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from interlock.explanation import from_native, key_text

__all__ = ["log"]

log = logging.getLogger("interlock.queue")


def report(queue: str, events: Sequence[tuple[Any, ...]]) -> bool:
    """Logs what the queue noted. Answers whether each handled message is wanted too."""
    for kind, *rest in events:
        _REPORTS[kind](queue, *rest)
    return log.isEnabledFor(logging.DEBUG)


def _depth(queue: str, depth: int, key: bytes | None) -> None:
    extra = {"queue": queue, "depth": depth}
    log.warning("queue %r holds %d messages", queue, depth, extra=extra)
    if key is not None:
        log.warning(
            "queue %r: nearly all messages share the key %s, so that they are handled one by one",
            queue,
            key_text(key),
            extra={**extra, "keys": [key]},
        )


def _lane_depth(queue: str, key: bytes, depth: int) -> None:
    log.warning(
        "queue %r: %d messages stand on the key %s",
        queue,
        depth,
        key_text(key),
        extra={"queue": queue, "depth": depth, "keys": [key]},
    )


def _slow_wait(queue: str, id: int, waited: float, others: int, explained: Any) -> None:
    log.error(
        "queue %r: message %d has waited %.1f s%s\n%s",
        queue,
        id,
        waited,
        f" (and {others} more too long)" if others else "",
        from_native(explained) if explained else "settled meanwhile",
        extra={"queue": queue, "id": id, "waited": waited, "others": others},
    )


def _slow_lease(queue: str, id: int, consumer: int, held: float, explained: Any) -> None:
    log.error(
        "queue %r: message %d has been handled for %.1f s\n%s",
        queue,
        id,
        held,
        from_native(explained) if explained else "settled meanwhile",
        extra={"queue": queue, "id": id, "consumer": consumer, "held": held},
    )


def _failed(
    queue: str, id: int, attempt: int, outcome: tuple[str, int, float], error: str
) -> None:
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


def _handled(
    queue: str, id: int, keys: list[bytes], attempt: int, waited: float, handled: float
) -> None:
    log.debug(
        "queue %r: message %d [%s] waited %.1f ms, handled %.1f ms",
        queue,
        id,
        ", ".join(map(key_text, keys)),
        waited * 1000,
        handled * 1000,
        extra={"queue": queue, "id": id, "keys": keys, "attempt": attempt},
    )


_REPORTS = {
    "depth": _depth,
    "lane_depth": _lane_depth,
    "slow_wait": _slow_wait,
    "slow_lease": _slow_lease,
    "failed": _failed,
    "handled": _handled,
}
