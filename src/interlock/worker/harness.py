"""``app.testing()``: what an app sends is handled here and now, on an engine in memory."""

from __future__ import annotations

import asyncio
import contextvars
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, TypeVar

from interlock import _core
from interlock.engine import batch as batches
from interlock.engine.batch import LeasedBatch
from interlock.engine.call import Engine
from interlock.engine.client import Client
from interlock.engine.transport.memory import MemoryEngine
from interlock.engine.url import parse
from interlock.errors import PayloadError, Reject, RetryAfter
from interlock.message import _current
from interlock.retry import Seconds
from interlock.retry import seconds as _seconds
from interlock.worker.execution import (
    RELEASED,
    Invocation,
    Outcome,
    TaskLease,
    judge,
    lease_at,
)
from interlock.worker.source import pending
from interlock.worker.tasks import NotHere

__all__ = ["TestCall", "TestWorker"]

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class TestCall:
    """One call of a task in a test."""

    __test__ = False  # pytest would take it for a test by its name

    task: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    queue: str
    id: int
    keys: frozenset[bytes] = frozenset()
    shared: frozenset[bytes] = frozenset()
    attempt: int = 0
    """At which it was handled; 0 for one that was only sent."""
    error: str = ""
    """Of a dead letter, its last error."""


@dataclass(slots=True)
class _Noted:
    sent: list[TestCall] = field(default_factory=list)
    done: list[TestCall] = field(default_factory=list)


class Timetable(Protocol):
    """The timetable of an app, as a test goes through it."""

    def begin(self) -> None:
        """Put the timers of all entries."""

    def due(self) -> float | None:
        """Return the time of the next tick, in seconds since 1970; None: there is none."""

    def fire(self) -> int:
        """Send what is due by now; return how many timers were."""


class TestWorker:
    """A worker for tests: on an engine in memory, with a clock that only the test moves.

    ::

        with app.testing() as worker:
            transfer.send("a", "b", 100)
            worker.run_until_idle()
            assert [call.args for call in worker.done] == [("a", "b", 100)]

    While it is entered, what the app sends goes to an engine of its own, encoded and decoded as
    for any other. Handlers run in the calling thread, one at a time.
    """

    __test__ = False

    def __init__(self, app: Any, start: float = 0.0, timetable: Timetable | None = None) -> None:
        self.clock = _core.ManualClock(start)
        """The time of the engine."""
        self._timetable = timetable
        self._app = app
        self._tasks = app._as_tasks()
        self._noted = _Noted()
        self._random: random.Random | None = None
        self._client: Any = None
        self._before: Any = None

    @property
    def sent(self) -> list[TestCall]:
        """All calls that were sent, in the order of the sends; known ones (``dedup``) are not
        among them."""
        return list(self._noted.sent)

    @property
    def done(self) -> list[TestCall]:
        """All calls whose handler has returned, in the order in which they did."""
        return list(self._noted.done)

    @property
    def dead(self) -> list[TestCall]:
        """The dead letters, oldest first, queue by queue."""
        found = []
        for name in self._queues():
            for letter in self._app._queue(name).dead_letters(1000):
                task, args, kwargs = self._read(letter.payload)
                found.append(
                    TestCall(
                        task, args, kwargs, name, letter.id, letter.keys, letter.shared,
                        letter.attempts, letter.error,
                    )
                )  # fmt: skip
        return found

    def run_until_idle(self, raise_errors: bool = True) -> int:
        """Handle what is ready, and what that sends, until nothing is.

        The clock stands still: what is delayed or backs off waits for ``advance``.

        Args:
            raise_errors: raise what a handler raises, when its message is settled by the rules;
                but ``RetryAfter`` and ``Reject``, by which it only steers. Default True.

        Returns:
            how many handlers ran.
        """
        ran = 0
        if self._timetable is not None and self._client is not None:
            self._timetable.fire()
        while (lease := self._next()) is not None:
            ran += 1
            error = self._handle(*lease)
            if error is not None and raise_errors:
                raise error
        return ran

    def advance(self, seconds: Seconds) -> None:
        """Move the clock on. Nothing runs before the next ``run_until_idle``.

        On its way it stops at each tick of the app's timetable, whose call is sent then.
        """
        if self._timetable is None or self._client is None:
            self.clock.advance(seconds)
            return
        target = self.clock.now() + _seconds(seconds, "advance(): seconds")
        self._timetable.fire()
        while (due := self._timetable.due()) is not None and due <= target:
            self.clock.advance(max(due - self.clock.now(), 0.0))
            if not self._timetable.fire():
                # A timer's delay was counted in whole µs.
                self.clock.advance(1e-6)
                if not self._timetable.fire():
                    break
        self.clock.advance(max(target - self.clock.now(), 0.0))

    def shuffle(self, seed: int) -> Self:
        """From now on takes any of the messages that are ready, chosen by the seed.

        Every such order is legal: another engine, or more handlers, may bring it."""
        self._random = random.Random(seed)
        return self

    def close(self) -> None:
        """Lets what the app sends go where it went before."""
        if self._client is not None:
            self._app._hooks.remove("after_send", self._note)
            self._app._redirected(self._before)
            self._client.close()
            self._client = None

    def __enter__(self) -> Self:
        if self._client is not None:
            raise RuntimeError("this test worker is in use; make another by app.testing()")
        engine = Engine(parse("memory://"), memory=MemoryEngine(self.clock))
        self._client = Client(engine)
        self._before = self._app._redirected(self._client)
        self._app._hooks.add("after_send", self._note)
        if self._timetable is not None:
            self._timetable.begin()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._app!r}>"

    def _note(self, sending: Any, job: Any) -> None:
        if not job.known:
            self._noted.sent.append(
                TestCall(
                    sending.task, sending.args, sending.kwargs, sending.queue, job.id,
                    sending.keys, sending.shared,
                )
            )  # fmt: skip

    def _queues(self) -> list[str]:
        return sorted({task.declared.queue for task in self._app.tasks.values()})

    def _read(self, payload: bytes) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        lease = TaskLease(
            queue="", id=0, sequence=0, attempt=0, token=0, keys=frozenset(), shared=frozenset(),
            payload=payload,
        )  # fmt: skip
        try:
            call = self._tasks.prepare(lease).call
        except (NotHere, PayloadError):
            return lease.task, (), {}
        return lease.task, call.args, call.kwargs

    def _next(self) -> tuple[LeasedBatch, TaskLease] | None:
        if self._client is None:
            raise RuntimeError("run_until_idle(): enter it first: with app.testing() as worker")
        names = self._queues()
        if self._random is not None:
            self._random.shuffle(names)
        for name in names:
            queue = self._app._queue(name)
            _, batch = batches.exchange(queue, (), 1 if self._random is None else MANY)
            if batch is None:
                continue
            places = list(batch.places)
            chosen = places[0] if self._random is None else self._random.choice(places)
            for at in places:
                if at != chosen:
                    self._settle(batch, lease_at(name, batch, at), RELEASED)
            return batch, lease_at(name, batch, chosen)
        return None

    def _settle(self, batch: LeasedBatch, held: TaskLease, outcome: Outcome) -> None:
        batches.settle(batch.queue, [pending(batch, held, outcome).settlement])

    def _handle(self, batch: LeasedBatch, held: TaskLease) -> BaseException | None:
        try:
            invocation = self._tasks.prepare(held)
        except (NotHere, PayloadError) as error:
            # There is no other worker, so it would come again and again.
            text = f"the message {error}" if isinstance(error, NotHere) else str(error)
            self._settle(batch, held, Outcome("reject", error=text))
            return error
        outcome, raised = _ran(invocation, held)
        self._settle(batch, held, outcome)
        if raised is None:
            call = invocation.call
            self._noted.done.append(
                TestCall(
                    held.task, call.args, call.kwargs, held.queue, held.id, held.keys,
                    held.shared, held.attempt,
                )
            )  # fmt: skip
        # By its class: an exception of a handler may raise when it is asked for it.
        steers = issubclass(type(raised), RetryAfter | Reject)
        return None if steers else raised


def _ran(invocation: Invocation, held: TaskLease) -> tuple[Outcome, BaseException | None]:
    token = _current.set(held)
    try:
        result = asyncio_run(invocation) if invocation.is_async else invocation.run()
    except BaseException as error:
        return judge(invocation.retry, held, error), error
    finally:
        _current.reset(token)
    return Outcome("ack", result), None


def asyncio_run(invocation: Invocation) -> bytes | None:
    """Awaits a handler from a plain function; where a loop runs in this thread, on another."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(invocation.arun())
    return _elsewhere(lambda: asyncio.run(invocation.arun()))


def _elsewhere(call: Callable[[], R]) -> R:
    found: list[R] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            found.append(call())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,))
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return found[0]


MANY = 64
"""Of so many ready messages a shuffled run chooses."""
