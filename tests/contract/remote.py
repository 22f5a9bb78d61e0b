"""A queue on an engine as the suite asks for it, and what none outside the process can hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from interlock.client.faces.aio_queue import AsyncRemoteQueue
from interlock.client.faces.client import Client
from interlock.client.faces.queue import RemoteQueue

_DEADLINE = (
    "across processes every lease has a deadline, and is renewed while it is held (clause 8)"
)
_ONE_TOKEN = "what one call leases is one lease, with one token"
_BYTES = "bytes are those of the encoded payload; there is no sizeof="
_READING = "reading applies nothing: what fell due counts as it did until the next call that writes"
_CLOSE = (
    "shutdown(immediate=True) is of a queue in process; across processes there are seal and purge"
)
_DEADLOCK = "an engine does not know which of its callers waits for what it handles itself"
_DEADLOCKS = (
    "25_a_put_into_a_full_queue_that_the_handler_alone_drains",
    "25_a_batch_put_into_a_full_queue_that_the_handler_alone_drains",
    "25_a_put_that_does_not_wait_is_just_full",
    "25_a_put_that_another_handler_makes_room_for_waits",
    "25_a_put_into_a_queue_full_of_messages_that_wait_for_the_handlers_slot",
    "25_a_get_after_shutdown_waits_while_others_may_take_a_message",
    "25_a_get_after_shutdown_whose_caller_handles_all_that_is_left",
    "25_a_get_within_the_with_of_all_that_is_left_after_shutdown",
    "25_shutdown_ends_the_get_of_who_handles_all_that_is_left",
    "25_gets_after_shutdown_that_wait_for_each_other",
    "25_a_get_after_shutdown_waits_for_what_may_still_come",
    "25_a_handler_that_joins_its_own_queue",
)
"""The cases of clause 25 about puts, gets and joins; an engine holds those about results."""

CAPABILITIES: dict[int | str, str] = {
    **dict.fromkeys(_DEADLOCKS, _DEADLOCK),
    "08_there_is_no_deadline_unless_asked_for": _DEADLINE,
    "08_extend_gives_a_deadline_to_a_lease_without_one": _DEADLINE,
    "17_a_lease_without_a_deadline_says_so": _DEADLINE,
    "08_tokens_rise_with_every_grant": _ONE_TOKEN,
    "11_a_returning_message_is_not_new": _BYTES,
    "11_a_queue_is_bounded_by_bytes": _BYTES,
    "11_the_queue_may_be_told_how_large_a_payload_is": _BYTES,
    "13_it_never_blocks_even_when_full": _BYTES,
    "23_a_cancelled_message_makes_room": _BYTES,
    "bad_call_a_callable_that_raises_reaches_the_caller": _BYTES,
    "bad_call_what_a_callable_gives_is_checked_like_an_argument": _BYTES,
    "bad_call_a_payload_without_a_size_is_refused_where_bytes_are_bounded": _BYTES,
    "15_an_immediate_shutdown_cancels_and_returns_what_is_not_leased": _CLOSE,
    "15_after_an_immediate_shutdown_no_get_waits_for_what_is_leased": _CLOSE,
    "15_shutdown_may_be_repeated_and_made_immediate": _CLOSE,
    "20_stats_show_what_is_due_as_applied": _READING,
    "20_expiries_are_applied_by_deadline_then_id": _READING,
    "20_thousands_that_fall_due_at_once_keep_their_order": (
        "a call applies at most 1,000 of what is due, and the clock's step makes none by itself"
    ),
    "20_a_recorded_schedule_gets_the_same_answers_again": (
        "ids follow the time, so that none is used again (clause 8)"
    ),
}

ON_REDIS: dict[int | str, str] = {
    **CAPABILITIES,
    "21_a_message_may_have_thousands_of_keys": "1,024 keys a message on Redis",
    "bad_call_more_than_4096_keys_are_a_value_error": "1,024 keys a message on Redis",
}


def batched(items: Iterable[Any]) -> list[list[Any]]:
    """In parts of what one put takes; one, even if it is empty."""
    listed = list(items)
    return [listed[at : at + 1024] for at in range(0, len(listed), 1024)] or [[]]


class Queue(RemoteQueue[Any]):
    """A remote queue whose `shutdown` is what an engine has in its place: `seal`."""

    def __init__(self, client: Client, name: str, options: dict[str, Any]) -> None:
        options = dict(options)
        # A case moves the clock by hours; leases do not run out unless it asks for that.
        options.setdefault("lease", 3 * 365 * 86_400)
        super().__init__(client, client._handle_of(name, Any, options))  # type: ignore[arg-type]

    @property
    def aio(self) -> AsyncRemoteQueue[Any]:
        return AsyncQueue(self._client.aio, self._handle)

    def put_many(self, items: Iterable[Any], *args: Any, **options: Any) -> list[int]:
        """In parts: the suite puts thousands into a queue that no one else uses."""
        parts = batched(items)
        return [id for part in parts for id in super(Queue, self).put_many(part, *args, **options)]

    def shutdown(self, immediate: bool = False) -> list[Any]:
        self.seal()
        if immediate:
            self.purge()
        return []


class AsyncQueue(AsyncRemoteQueue[Any]):
    """The same on the asyncio face."""

    async def put_many(self, items: Iterable[Any], **options: Any) -> list[int]:
        ids: list[int] = []
        for part in batched(items):
            ids += await super().put_many(part, **options)
        return ids

    async def shutdown(self, immediate: bool = False) -> list[Any]:
        await self.seal()
        if immediate:
            await self.purge()
        return []
