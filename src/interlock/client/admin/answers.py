"""Waiting for the answers of workers to requests that were left for them at the engine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interlock.client.admin.operator import Operator

__all__ = ["answers", "wait_for_answer"]

Asked = tuple[str, str]
"""The queue at which a worker announced itself, and its name."""


def answers(
    operator: Operator, asked: Mapping[Asked, int], seconds: float
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Yield the name and the answer of each worker, as they arrive, for at most `seconds`.

    The answer is None if the worker has ended without one.

    Args:
        asked: numbers of the requests, as returned by ``Operator.ask``.
    """
    left = dict(asked)
    until = time.monotonic() + seconds
    while left and time.monotonic() < until:
        for queue in {queue for queue, _ in left}:
            announced = {one.worker: one for one in operator.workers(queue)}
            for worker in [worker for at, worker in left if at == queue]:
                one = announced.get(worker)
                answer = None if one is None else one.answer(left[queue, worker])
                if one is None or answer is not None:
                    del left[queue, worker]
                    yield worker, answer
        if left:
            time.sleep(PAUSE)


def wait_for_answer(
    operator: Operator, queue: str, worker: str, number: int, seconds: float
) -> dict[str, Any] | None:
    """Return a worker's answer; None if it ends, or does not answer within `seconds`."""
    for _, answer in answers(operator, {(queue, worker): number}, seconds):
        return answer
    return None


PAUSE = 0.1
"""Seconds between two looks: a worker announces itself every two."""
