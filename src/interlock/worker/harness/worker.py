"""``app.testing()``: handles what an app sends immediately, on an engine in memory."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Self

from interlock import _core
from interlock.client.connection.call import Engine
from interlock.client.faces import batch as batches
from interlock.client.faces.batch import LeasedBatch
from interlock.client.faces.client import Client
from interlock.client.transport.memory_link import MemoryEngine
from interlock.client.url import parse
from interlock.errors import PayloadError, Reject, RetryAfter
from interlock.failure import Expired
from interlock.retry import Seconds
from interlock.retry import seconds as _seconds
from interlock.worker.harness.calls import Noted, TestCall, Timetable
from interlock.worker.harness.run import HandlerRuns
from interlock.worker.message.execution import RELEASED, Invocation, Outcome, TaskLease, lease_at
from interlock.worker.message.scope import LONGEST_LEAVE, HeldScope, ScopeThread
from interlock.worker.message.source import pending
from interlock.worker.message.tasks import NotHere

__all__ = ["TestCall", "TestWorker"]


class TestWorker:
    """A worker for tests: on an engine in memory, with a clock that only the test advances.

    ::

        with app.testing() as worker:
            transfer.send("a", "b", 100)
            worker.run_until_idle()
            assert [call.args for call in worker.acked] == [("a", "b", 100)]

    While it is entered, the app's sends go to its own engine, encoded and decoded as for any other
    engine. Handlers run in the calling thread, one at a time; by ``arun_until_idle`` in the calling
    task. The app's lifespan and its start and stop hooks surround them; with ``async with``, on the
    running loop.
    """

    __test__ = False

    def __init__(
        self,
        app: Any,
        start: float = 0.0,
        timetable: Timetable | None = None,
        eager: bool = False,
    ) -> None:
        self.clock = _core.ManualClock(start)
        """The time of the engine."""
        self._timetable = timetable
        self._app = app
        self._tasks = app._as_tasks()
        self._noted = Noted()
        self._random: random.Random | None = None
        self._client: Any = None
        self._before: Any = None
        self._runs = HandlerRuns()
        self._eager = eager
        self._scope: ScopeThread | None = None
        self._held: tuple[HeldScope, asyncio.Task[None]] | None = None

    @property
    def sent(self) -> list[TestCall]:
        """All calls that were sent, in the order of the sends, without those that ``dedup``
        dropped."""
        return list(self._noted.sent)

    @property
    def acked(self) -> list[TestCall]:
        """All calls whose handler has returned, in the order of their returns."""
        return list(self._noted.acked)

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

    @property
    def errors(self) -> list[BaseException]:
        """Errors that handlers have raised, in order, except ``RetryAfter`` and ``Reject``."""
        return list(self._noted.errors)

    def run_until_idle(self, raise_errors: bool = True) -> int:
        """Handle the ready messages, and those that they send, until none is ready.

        The clock does not move: delayed and backing-off messages wait for ``advance``.

        Args:
            raise_errors: raise a handler's exception after its message is settled as usual; except
                ``RetryAfter`` and ``Reject``, which only control the outcome. Default True.

        Returns:
            the number of handlers that ran.
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

    async def arun_until_idle(self, raise_errors: bool = True) -> int:
        """Do what ``run_until_idle`` does, in this task: coroutine functions are awaited here.

        Several tasks may call it at the same time; each handles the messages that it leases.
        """
        ran = 0
        if self._timetable is not None and self._client is not None:
            self._timetable.fire()
        while (lease := self._next()) is not None:
            ran += 1
            error = await self._ahandle(*lease)
            if error is not None and raise_errors:
                raise error
        return ran

    def advance(self, seconds: Seconds) -> None:
        """Advance the clock. Nothing runs before the next ``run_until_idle``.

        It stops at each tick of the app's timetable and sends the call of the tick.
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
        """From now on take any of the ready messages, chosen by the seed. Every such order is
        legal: another engine, or more handlers, may produce it."""
        self._random = random.Random(seed)
        return self

    def close(self) -> None:
        """Restore the engine that the app sent to before."""
        if self._client is not None:
            self._app._hooks.remove("after_send", self._note)
            self._app._redirected(self._before)
            self._client.close()
            self._client = None
            if self._eager:
                self._app._tested_by = None

    def __enter__(self) -> Self:
        scope = self._tasks.scope(True, True)
        if scope is not None and self._client is None:
            self._scope = ScopeThread(scope)
            self._runs.loop = self._scope.loop
        return self._entered()

    def __exit__(self, *exc: object) -> None:
        self.close()
        if self._scope is not None:
            scope, self._scope = self._scope, None
            scope.close(LONGEST_LEAVE)
            self._runs.loop = None

    async def __aenter__(self) -> Self:
        scope = self._tasks.scope(True, True)
        if scope is not None and self._client is None:
            held = HeldScope(scope)
            self._held = held, asyncio.create_task(held.hold())
            await held.begun.wait()
            held.entered.result()
        return self._entered()

    async def __aexit__(self, *exc: object) -> None:
        if self._client is not None:
            await self._client.aio.close()
        self.close()
        if self._held is not None:
            (held, task), self._held = self._held, None
            held.leave()
            await task

    def _entered(self) -> Self:
        if self._client is not None:
            raise RuntimeError("this test worker is in use; make another by app.testing()")
        engine = Engine(parse("memory://"), memory=MemoryEngine(self.clock))
        self._client = Client(engine)
        self._before = self._app._redirected(self._client)
        self._app._hooks.add("after_send", self._note)
        if self._timetable is not None:
            self._timetable.begin()
        if self._eager:
            self._app._tested_by = self
        return self

    # -- Eager: called by the app -----------------------------------------------------------------

    def _after_send(self) -> None:
        """Handle the ready messages; if a handler sent this one, wait until that handler has
        ended."""
        if not self._runs.inside:
            self.run_until_idle(raise_errors=False)

    async def _aafter_send(self) -> None:
        """Do what ``_after_send`` does, awaited."""
        if not self._runs.inside:
            await self.arun_until_idle(raise_errors=False)

    def _before_result(self, queue: Any, id: int) -> bool:
        """Handle the ready messages. Return whether waiting for the message's end makes sense."""
        self.run_until_idle(raise_errors=False)
        return self._runs.others

    async def _abefore_result(self, queue: Any, id: int) -> bool:
        """Handle the ready messages, and those that other running handlers make ready, until the
        message is settled or none is left. Return whether waiting for its end makes sense."""
        while True:
            await self.arun_until_idle(raise_errors=False)
            if await queue.aio._state_of(id) in SETTLED or not self._runs.others:
                return False
            await self._runs.another_ended()

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
            call = self._tasks.prepare(lease).sent
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
            if self._random is None:
                asked = "any+" if self._tasks.takes_runs(name) else "any"
                _, batch = batches.exchange(queue, (), 1, kind=asked)
            else:
                _, batch = batches.exchange(queue, (), MANY)
            if batch is None:
                continue
            places = batch.runs(batch.places)
            chosen = places[0] if self._random is None else self._random.choice(places)
            for at, _ in places:
                if at != chosen[0]:
                    self._settle(batch, lease_at(name, batch, at), RELEASED)
            held = lease_at(name, batch, *chosen)
            # Time passes by the clock of the test alone.
            held._received = None
            return batch, held
        return None

    def _settle(self, batch: LeasedBatch, held: TaskLease, outcome: Outcome) -> None:
        run = held.run
        found = [(held, outcome)] if run is None else run.outcomes(held, outcome)
        batches.settle(batch.queue, [pending(batch, one, how).settlement for one, how in found])
        for rider in () if run is None else (*run.riders, *run.more):
            batch.settled(rider.id)

    def _handle(self, batch: LeasedBatch, held: TaskLease) -> BaseException | None:
        found = self._prepared(batch, held)
        if isinstance(found, BaseException):
            return found
        return self._over(batch, held, found, *self._runs.run(found, held))

    async def _ahandle(self, batch: LeasedBatch, held: TaskLease) -> BaseException | None:
        found = self._prepared(batch, held)
        if isinstance(found, BaseException):
            return found
        return self._over(batch, held, found, *await self._runs.arun(found, held))

    def _prepared(self, batch: LeasedBatch, held: TaskLease) -> Any:
        """Return the call of a message, or the error that makes it a dead letter now."""
        try:
            return self._tasks.prepare(held)
        except (NotHere, PayloadError) as error:
            # There is no other worker, so it would be redelivered forever.
            text = f"the message {error}" if isinstance(error, NotHere) else str(error)
            self._settle(batch, held, Outcome("reject", error=text))
            self._noted.errors.append(error)
            return error

    def _over(
        self,
        batch: LeasedBatch,
        held: TaskLease,
        invocation: Invocation,
        outcome: Outcome,
        raised: BaseException | None,
    ) -> BaseException | None:
        """Settle a message by its handler's outcome; return the handler's exception, unless it only
        controls the outcome."""
        self._settle(batch, held, outcome)
        self._runs.settled()
        for one, call in invocation.handled(raised is None):  # type: ignore[attr-defined]
            self._noted.acked.append(
                TestCall(
                    held.task, call.args, call.kwargs, one.queue, one.id, one.keys, one.shared,
                    one.attempt,
                )
            )  # fmt: skip
        # By its class: a handler's exception may itself raise when it is examined.
        if raised is None or issubclass(type(raised), RetryAfter | Reject | Expired):
            return None
        self._noted.errors.append(raised)
        return raised


SETTLED = ("dead", "acked", "expired", "cancelled", "skipped", "gone")
MANY = 64
"""Number of ready messages among which a shuffled run chooses."""
