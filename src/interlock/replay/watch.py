"""Measurements of one run while it runs: times, worker, order and effect of each message.

All lists are as long as the trace and written at one place by one handler, so handlers on many
threads need no lock of ours. Times are nanoseconds of the monotonic clock, which all processes
of a machine share.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from time import monotonic_ns

from interlock.auditor import Auditor, Ledger, Verdict
from interlock.replay.trace import Message
from interlock.replay.workload import Workload

Seen = list[tuple[bytes, list[int]]]


@dataclass(frozen=True, slots=True)
class Handled:
    """One message handled in another process."""

    index: int
    process: int
    start: int
    end: int
    error: str | None


class Watch:
    """Runs the handler of each message and notes it. Messages are named by their place."""

    def __init__(self, messages: Sequence[Message], work: Workload) -> None:
        self.messages = messages
        self.puts = [0] * len(messages)
        self.starts = [0] * len(messages)
        self.ends = [0] * len(messages)
        self.workers = [0] * len(messages)
        self.failures: list[tuple[int, str]] = []
        self.auditor = Auditor()
        self.ledger = Ledger()
        self.function = work.function
        self.returned = 0
        self._coroutine = work.coroutine
        for index, message in enumerate(messages):
            self.auditor.expect(index, message.keys, message.shared)

    @property
    def finished(self) -> int:
        """Approximate number of messages handled so far."""
        return max(self.auditor.ends, self.returned)

    def put(self, index: int) -> None:
        """Note that the message is about to be put."""
        self.puts[index] = monotonic_ns()

    def handle(self, index: int, worker: int) -> None:
        """Handle a message on this thread. A handler's exception is noted, not raised."""
        message = self.messages[index]
        seen = self._begin(index, worker, message)
        try:
            self.function(message)
        except BaseException as error:
            self._fail(index, error)
        self._finish(index, message, seen)

    async def handle_on_loop(self, index: int, worker: int) -> None:
        """Handle a message on the running loop; a handler that is not a coroutine function blocks
        the loop, as in any asyncio program."""
        message = self.messages[index]
        seen = self._begin(index, worker, message)
        try:
            if self._coroutine is not None:
                await self._coroutine(message)
            else:
                self.function(message)
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._fail(index, error)
        self._finish(index, message, seen)

    def handle_in_pool(self, index: int, worker: int, pool: Executor) -> None:
        """Handle a message in a process of the pool while this thread waits for it. Its times are
        those of the process: the transfer does not count as work."""
        message = self.messages[index]
        seen = self._begin(index, worker, message)
        handled = pool.submit(timed, self.function, index, message).result()
        if handled.error is not None:
            self.failures.append((index, handled.error))
        self._finish(index, message, seen)
        self.starts[index], self.ends[index] = handled.start, handled.end

    def came_back(self, _: object) -> None:
        """Count a message handled in another process as done; `take_in` will note it."""
        self.returned += 1

    def take_in(self, handled: Iterable[Handled]) -> None:
        """Note the messages handled in other processes without a thread of this one, in the order
        of their events."""
        processes: dict[int, int] = {}
        seen: dict[int, Seen] = {}
        events = [(one.start, 1, one) for one in handled]
        # Of events at the same time, ends come first: a message that ended as another began did not
        # overlap it. But a handler that took no measurable time begins before it ends.
        events += [(one.end, 0 if one.start < one.end else 2, one) for _, _, one in events]
        for _, phase, one in sorted(events, key=lambda event: event[:2]):
            message = self.messages[one.index]
            if phase == 1:
                worker = processes.setdefault(one.process, len(processes))
                seen[one.index] = self._begin(one.index, worker, message)
                continue
            if one.error is not None:
                self.failures.append((one.index, one.error))
            self._finish(one.index, message, seen.pop(one.index))
            self.starts[one.index], self.ends[one.index] = one.start, one.end

    def verdict(self) -> Verdict:
        """Return the auditor's verdict on the run."""
        return self.auditor.check()

    def _begin(self, index: int, worker: int, message: Message) -> Seen:
        self.auditor.started(index)
        self.workers[index] = worker
        self.starts[index] = monotonic_ns()
        return self.ledger.begin(message.keys, message.shared)

    def _finish(self, index: int, message: Message, seen: Seen) -> None:
        self.ledger.finish(message.id, message.keys, message.shared, seen)
        self.ends[index] = monotonic_ns()
        self.auditor.ended(index)

    def _fail(self, index: int, error: BaseException) -> None:
        self.failures.append((index, _last_line(error)))


def timed(function: Callable[[Message], object], index: int, message: Message) -> Handled:
    """Handle a message in this process and return its times; runs in a process pool's workers."""
    error: str | None = None
    start = monotonic_ns()
    try:
        function(message)
    except BaseException as raised:
        error = _last_line(raised)
    return Handled(index, os.getpid(), start, monotonic_ns(), error)


def serial_digest(messages: Sequence[Message]) -> str:
    """Return the ledger's digest after all messages were handled singly in the trace's order."""
    ledger = Ledger()
    for message in messages:
        seen = ledger.begin(message.keys, message.shared)
        ledger.finish(message.id, message.keys, message.shared, seen)
    return ledger.digest()


def _last_line(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip()
