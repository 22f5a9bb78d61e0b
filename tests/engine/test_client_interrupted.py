"""Ctrl-C in the middle of what a client does with a reply."""

from __future__ import annotations

import gc
import warnings
from functools import partial

from interlock import Retry, connect
from tests.unit.executors import LONG
from tests.unit.test_executor_interrupted import by_instructions, interrupted

FILES = tuple(
    f"interlock/engine/{name}.py"
    for name in ("call", "codec", "handle", "nonsense", "renewal", "wire")
)


@by_instructions
def test_ctrl_c_at_any_point_of_a_get_leaves_no_lease_that_nobody_holds() -> None:
    at = 0
    going_on = True
    with connect("memory://") as client, warnings.catch_warnings():
        # A lease that is dropped says so.
        warnings.simplefilter("ignore", ResourceWarning)
        while going_on:
            at += 1
            queue = client.queue(
                f"interrupted-{at}", lease=3600, retry=Retry(attempts=None, first=0)
            )
            queue.put_many(["a", "b"])
            going_on = interrupted(partial(queue.get_many, 2), at, files=FILES)
            gc.collect()
            for _ in "ab":
                queue.get(timeout=LONG).ack()
    assert at > 40
