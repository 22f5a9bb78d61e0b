"""Ctrl-C in the middle of what a client does with a reply."""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Callable
from functools import partial

import pytest

from interlock import LeaseLost, Retry, connect
from interlock.client.requests.lease_state import OPEN
from tests.executor.executors import LONG
from tests.executor.test_executor_interrupted import by_instructions, interrupted

FILES = tuple(
    f"interlock/client/{name}.py"
    for name in (
        "connection/call",
        "requests/lease_renewal",
        "requests/queue_handle",
        "requests/queue_puts",
        "wire/bad_reply",
        "wire/codec",
        "wire/messages",
    )
)

LEASES = ("interlock/client/faces/lease.py", "interlock/client/requests/lease_state.py")


@by_instructions
def test_ctrl_c_at_any_point_of_a_get_leaves_no_orphaned_lease() -> None:
    at = 0
    going_on = True
    with connect("memory://") as client, warnings.catch_warnings():
        # A dropped lease logs it.
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


@by_instructions
@pytest.mark.parametrize("how", ["ack", "nack", "release", "reject", "with"])
def test_ctrl_c_at_any_point_of_a_settlement_leaves_client_and_server_in_agreement(
    how: str,
) -> None:
    at = 0
    going_on = True
    with connect("memory://") as client:
        while going_on:
            at += 1
            queue = client.queue(f"settled-{at}", lease=3600, retry=Retry(attempts=None, first=0))
            id = queue.put("a")
            lease = queue.get()
            calls: dict[str, Callable[[], object]] = {
                "ack": lease.ack,
                "nack": partial(lease.nack, 0),
                "release": lease.release,
                "reject": partial(lease.reject, "no"),
                "with": partial(lease.__exit__, None, None, None),
            }
            # No lease of the last round ends in the middle of this one.
            gc.collect()
            going_on = interrupted(calls[how], at, files=LEASES)
            if lease._state == OPEN:
                # It may be tried again; then the report says that the engine already had it.
                with contextlib.suppress(LeaseLost):
                    lease.ack()
            held = [one.id for one in queue.messages() if one.state == "leased"]
            assert id not in held, f"point {at} of {how}()"
    assert at > 8
